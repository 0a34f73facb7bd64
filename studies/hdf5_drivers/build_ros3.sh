#!/bin/sh
# sh build_ros3.sh PYTHON FOLDER: build an h5py with HDF5's own S3 driver, ROS3, into an environment that
# sees that of PYTHON. HDF5 2.2.0 comes as its Rust binding carries it, the AWS libraries for C as awscrt
# does, both checked. Of a build that fails nothing stays.
set -eu
python=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
mkdir -p "$2"
folder=$(cd "$2" && pwd) lock=$(cd "$(dirname "$0")" && pwd)/ros3.lock
crate=hdf5-metno-src version=0.10.4
sum=69c883c565498492954e344c482f8622525e58c7a71100dd9498c4940da82885

fail() {
    echo "error: ROS3 cannot be built ($1); allowed: cargo, make, a C and a C++ compiler, the headers of zlib" \
        "and a network, or ARRAYS_ROS3 with a Python of conda-forge, whose h5py has it" >&2
    exit 1
}
step() {
    "$@" >"$work/log" 2>&1 || fail "$(basename "$1"): $(grep -im1 -A3 error "$work/log" | tr -s '\n ' ' ' || tail -n1 "$work/log")"
}
install() { # NAMES, as in the lock
    grep -E "^($1)==" "$lock" >picked.lock
    step "$python" -m uv pip install --python "$folder" --no-cache --no-deps --require-hashes --no-build-isolation \
        --no-binary h5py -r picked.lock
}
build() { # SOURCE PREFIX OPTION...
    source=$1 prefix=$2 && shift 2
    step "$folder/bin/cmake" -S "$source" -B "$source/build" -G "Unix Makefiles" -DCMAKE_BUILD_TYPE=Release \
        -DBUILD_TESTING=OFF -DCMAKE_INSTALL_LIBDIR=lib -DCMAKE_INSTALL_PREFIX="$prefix" "$@"
    step "$folder/bin/cmake" --build "$source/build" --target install \
        --parallel "${CMAKE_BUILD_PARALLEL_LEVEL:-$(getconf _NPROCESSORS_ONLN)}"
}

exec 9>"$folder.lock" # a second build waits, and then finds it made
"$python" -c 'import fcntl; fcntl.flock(9, fcntl.LOCK_EX)'
made=$("$python" -m wire.sealed check "$folder") || exit 1 # others may write there: said in a line
[ "$made" = no ] || { echo "$folder/bin/python" && exit; }
work=$(mktemp -d "$folder.XXXXXX")
trap '[ $made = yes ] || rm -rf "$folder"; rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
for tool in cargo cc c++ make; do command -v $tool >/dev/null || fail "missing: $tool"; done
echo "building HDF5 with ROS3, and an h5py over it, once: some 20 minutes on 2 free cores" >&2
rm -rf "$folder" # of a build that was killed
cd "$work"

printf '[package]\nname="s"\nversion="0.0.0"\n[lib]\npath="s.rs"\n[dependencies]\n%s="=%s"\n' $crate $version >Cargo.toml
touch s.rs
step cargo vendor --quiet crates
grep -q "\"package\":\"$sum\"" crates/$crate/.cargo-checksum.json || fail "$crate $version: not the crate with sha256 $sum"
grep ^awscrt== "$lock" >picked.lock
step "$python" -m pip download --no-deps --no-binary :all: --no-build-isolation --require-hashes -r picked.lock
tar -xzf awscrt-*.tar.gz
step "$python" -m venv --without-pip "$folder"
"$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >"$(echo "$folder"/lib/python*/site-packages)/locked.pth"
install 'cmake|cython|pkgconfig'
build "$(echo "$work"/awscrt-*/crt)" "$work/aws"
hide=
[ "$(uname)" != Linux ] || hide=-DCMAKE_SHARED_LINKER_FLAGS=-Wl,--exclude-libs,ALL # this libcrypto is not Python's
build "$work/crates/$crate/ext/hdf5" "$folder" -DCMAKE_PREFIX_PATH="$work/aws" -DHDF5_ENABLE_ROS3_VFD=ON \
    -DHDF5_ENABLE_ZLIB_SUPPORT=ON -DHDF5_ENABLE_SZIP_SUPPORT=OFF -DHDF5_NO_PACKAGES=ON -DBUILD_STATIC_LIBS=OFF \
    -DHDF5_BUILD_TOOLS=OFF -DHDF5_BUILD_EXAMPLES=OFF -Dcrypto_LIBRARY="$work/aws/lib/libcrypto.a" \
    -Dcrypto_SHARED_LIBRARY="$work/aws/lib/libcrypto.a" -Dcrypto_INCLUDE_DIR="$work/aws/include" $hide
export HDF5_DIR="$folder" H5PY_ROS3=1
install h5py
step "$folder/bin/python" -c 'import h5py; assert h5py.h5.get_config().ros3, "error: it has no ROS3"'
"$python" -m wire.sealed seal "$folder"
made=yes
echo "$folder/bin/python"

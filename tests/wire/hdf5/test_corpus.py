"""Ordinary and hostile HDF5 files, made by the tools that are installed: each ends in an answer or a line."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin
import netCDF4
import numpy as np
import pytest
from click.testing import CliRunner
from h5py import h5d, h5s, h5t

from wire.errors import UserError
from wire.hdf5.cli import hdf5

FILTERS: dict[str, dict[str, Any]] = {
    "gzip": {"compression": "gzip", "shuffle": True},
    "lzf": {"compression": "lzf"},
    "scaleoffset": {"scaleoffset": 3},
    "blosc": dict(hdf5plugin.Blosc()),
    "zfp": dict(hdf5plugin.Zfp(rate=16)),
}


def add_types(f: Any) -> None:
    """Add values of every type that h5py writes, some of them in heaps."""
    text = h5py.string_dtype("ascii", 4)
    f["committed"] = np.dtype([("n", "<i4"), ("text", text)])
    f.create_dataset("a-of-committed", (3,), f["committed"])[0] = (1, b"full")
    f["unicode"] = np.array(["é".encode()], h5py.string_dtype("utf-8", 5))
    f["enum"] = np.array([0, 1], h5py.enum_dtype({"clear": 0, "rain": 1}, "u1"))
    f["half"], f["big"], f["complex"] = np.float16(1), np.arange(3, dtype=">f8"), 1j
    f["bool"], f["opaque"] = True, np.void(b"bytes")
    f["array"] = np.zeros(2, [("a", "f4", (2, 3))])
    f["time"] = np.array([1], "M8[s]").astype(h5py.opaque_dtype("M8[s]"))
    f.create_dataset("lists", (2,), h5py.vlen_dtype("i4"))[0] = [1, 2, 3]
    f.create_dataset("words", (2,), h5py.string_dtype(), fillvalue="none")[0] = "word"
    f.attrs["committed"], f.attrs["list"] = h5py.Empty("f4"), ["a", "bb"]


def add_links(f: Any) -> None:
    """Add references, hard links in a circle, soft ones that lead nowhere, and odd names."""
    f["x"] = np.arange(3)
    f["refs"] = np.array([f["x"].ref, h5py.Reference()], h5py.ref_dtype)
    f["pairs"] = np.array([(1, f["x"].ref)], [("n", "i4"), ("to", h5py.ref_dtype)])
    f["x"].attrs["self"] = f["x"].ref
    f["hard"], f["up"] = f["x"], f
    f["soft"], f["dangling"] = h5py.SoftLink("x"), h5py.SoftLink("/nowhere")
    f["away"] = h5py.ExternalLink("other.h5", "/x")
    for name in ("été", "a b", "x\ty", "[dim]", ".hidden", "-v", "a,b:c", "n" * 400):
        f[name] = np.arange(3)


def add_partly_stored(f: Any) -> None:
    """Add what has no values, some, none in chunks, or those in its header."""
    f["null"], f["none"] = h5py.Empty("f8"), np.zeros((0, 3))
    f.create_dataset("late", (5,), "f4", fillvalue=9)
    f.create_dataset("chunked", (5, 5), "f4", chunks=(2, 2), maxshape=(None, 5))
    made = f.create_dataset("partly", (100, 100), "i2", chunks=(7, 9), fillvalue=-1, compression=1)
    made[90:], made[3, 3] = 4, 5
    # above the chunk cache
    f.create_dataset("big", (600, 4000), "f8", chunks=(600, 4000))[5] = 1
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_layout(h5d.COMPACT)
    space = h5s.create_simple((4,))
    h5d.create(f.id, b"compact", h5t.NATIVE_INT32, space, dcpl=plist)


def make_by_h5py(path: Path, **how: Any) -> None:
    """Make a file of all that is ordinary."""
    with h5py.File(path, "w", **how) as f:
        for name, options in FILTERS.items():
            values = np.random.default_rng(0).normal(size=(12, 40))
            made = f.create_dataset(name, data=values, chunks=(5, 20), **options)
            made.attrs["units"], made.attrs["long_name"] = "m", "a name"
        for add in (add_types, add_links, add_partly_stored):
            add(f.create_group(add.__name__))


def make_by_netcdf(path: Path) -> None:
    """Make a file of netCDF's own types, with an unlimited dimension."""
    with netCDF4.Dataset(path, "w") as made:
        made.createDimension("time", None)
        made.createDimension("x", 3)
        clouds = made.createEnumType(np.uint8, "cloud_t", {"clear": 0, "rain": 1})
        made.createVariable("a_cloud", clouds, ("x",))[:] = [0, 1, 0]
        lists = made.createVariable("a_list", made.createVLType(np.int32, "list_t"), ("x",))
        for number in range(3):
            lists[number] = np.arange(number + 1, dtype="i4")
        pair = made.createCompoundType(np.dtype([("a", "f4"), ("b", "i4")]), "pair_t")
        new = made.createGroup("inner").createVariable("a_pair", pair, ("x",))
        new[:] = np.zeros(3, pair.dtype)
        made.createVariable("t", "i2", ("time", "x"), zlib=True)[:] = np.arange(12).reshape(4, 3)
        made.createVariable("words", str, ("x",))[:] = np.array(["a", "bb", ""], object)


ORDINARY: dict[str, Callable[[Path], None]] = {
    "earliest": make_by_h5py,
    "latest": lambda path: make_by_h5py(path, libver=("latest", "latest")),
    "pages": lambda path: make_by_h5py(path, fs_strategy="page", fs_page_size=4096),
    "space-kept": lambda path: make_by_h5py(path, fs_strategy="page", fs_persist=True),
    "userblock": lambda path: make_by_h5py(path, userblock_size=512),
    "netcdf": make_by_netcdf,
}
"""Files on which the command has an answer."""


def declare_chunks(f: Any) -> None:
    """Declare more chunks than anybody counts."""
    f.create_dataset("x", (10**12, 10**6), "f4", chunks=(10, 10), compression=1)[0, 0] = 1
    f.create_dataset("y", (2**62,), "u1", chunks=(10,), maxshape=(None,))[2**61] = 1


def make_virtual(f: Any, name: str, n: int = 10**9) -> None:
    """Declare a huge dataset of another's values."""
    layout = h5py.VirtualLayout((n, n), "f4")
    layout[0, :3] = h5py.VirtualSource(name, "y", (3,))
    f["y"] = np.arange(3, dtype="f4")
    f.create_virtual_dataset("x", layout)


def dangle(f: Any) -> None:
    """Refer to what is gone, and to a region."""
    f["x"], f["gone"] = np.zeros((5, 5)), 1
    f["regions"] = np.array([f["x"].regionref[2:4, 3]], h5py.regionref_dtype)
    f["refs"] = np.array([f["gone"].ref], h5py.ref_dtype)
    del f["gone"]


def filter_unknown(f: Any) -> None:
    """Store chunks by a filter that nobody has."""
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk((10,))
    plist.set_filter(305, h5py.h5z.FLAG_OPTIONAL, (1, 2, 3))
    space = h5s.create_simple((20,))
    made = h5d.create(f.id, b"x", h5t.NATIVE_INT32, space, dcpl=plist)
    made.write_direct_chunk((0,), b"12345" * 8, 0)


def make_simple(f: Any, kind: Any) -> None:
    """Make a dataset of a type that numpy lacks."""
    h5d.create(f.id, b"x", kind, h5s.create_simple((3,)))


CONTENTS: dict[str, Callable[[Any], Any]] = {
    "huge-chunked": declare_chunks,
    "huge-contiguous": lambda f: f.create_dataset("x", (10**9, 10**9), "f4"),
    "huge-virtual": lambda f: make_virtual(f, "."),
    "virtual": lambda f: make_virtual(f, "gone.h5", 4),
    "external": lambda f: f.create_dataset(
        "x", (5,), "f8", external=[("gone.bin", 0, h5py.h5f.UNLIMITED)]
    ),
    "dimensions-32": lambda f: f.create_dataset("x", data=np.ones((1,) * 32), chunks=(1,) * 32),
    "dangling": dangle,
    "unknown-filter": filter_unknown,
    "nested-lists": lambda f: make_simple(f, h5t.vlen_create(h5t.vlen_create(h5t.NATIVE_INT32))),
    "old-time": lambda f: make_simple(f, h5t.UNIX_D32LE),
    "bits": lambda f: make_simple(f, h5t.STD_B8LE),
}
BYTES = {"text": b"no HDF5 " * 99, "zip": b"PK\3\4" + bytes(99), "signature": b"\x89HDF\r\n\x1a\n", "netcdf-3": b"CDF\1" + bytes(28)}  # fmt: skip
SOUND = ("earliest", "latest", "netcdf")
HOSTILE = (*CONTENTS, *BYTES, "open", "swmr", *(f"{how}-{kind}-{n}" for kind in SOUND for how, numbers in (("cut", (3, 50, 97)), ("damaged", range(8))) for n in numbers))  # fmt: skip
"""Files on which it has an answer, or one line."""


def write_while(path: Path, *, is_swmr: bool) -> None:
    """Copy a file as it is on disk while it is written."""
    writing = path.with_suffix(".writing")
    with h5py.File(writing, "w", libver="latest") as f:
        made = f.create_dataset("x", data=np.arange(100), chunks=(10,), maxshape=(None,))
        if is_swmr:
            f.swmr_mode = True
        made.resize((200,))
        made[100:] = 4
        f.flush()
        shutil.copy(writing, path)


def make(path: Path, name: str) -> None:
    """Make a file by its name."""
    how, _, rest = name.partition("-")
    if name in ORDINARY:
        ORDINARY[name](path)
    elif name in CONTENTS:
        with h5py.File(path, "w") as f:
            CONTENTS[name](f)
    elif name in BYTES:
        path.write_bytes(BYTES[name])
    elif how in ("open", "swmr"):
        write_while(path, is_swmr=how == "swmr")
    else:
        kind, number = rest.split("-")
        ORDINARY[kind](path)
        found, rng, n = bytearray(path.read_bytes()), random.Random(name), int(number)
        if how == "cut":
            path.write_bytes(found[: len(found) * n // 100])
            return
        # bytes at random places, most of them in the metadata at the front
        stop = len(found) if n % 3 == 0 else min(len(found), 4000)
        for _ in range(1 + n % 4 * 5):
            found[rng.randrange(8, stop)] = rng.choice((0, 255, rng.randrange(256)))
        path.write_bytes(found)


QUICK = (*ORDINARY, "huge-virtual", "unknown-filter", "swmr", "cut-latest-50", "damaged-netcdf-1")
"""Those that every run of the tests has."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[] if n in QUICK else pytest.mark.slow) for n in (*ORDINARY, *HOSTILE)],
)
def test_every_file_ends_in_an_answer_or_a_line(name: str, tmp_path: Path) -> None:
    """No traceback on any file; an ordinary one is answered."""
    make(path := tmp_path / "made.h5", name)
    for arguments in (["--json", "--profile", "wide-area"], []):
        done = CliRunner().invoke(hdf5, ["advise", str(path), *arguments])
        if isinstance(done.exception, UserError):
            said = str(done.exception)
            assert name in HOSTILE and "\n" not in said and "; allowed: " in said
            continue
        assert done.exception is None, done.exception
        assert not arguments or json.loads(done.output)["advice"]

"""Ordinary and hostile HDF5 files, made by the tools that are installed: each ends in an answer or a line."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin
import netCDF4
import numpy as np
import pytest
from click.testing import CliRunner

from advisors.hdf5.cli import hdf5
from helpers.errors import UserError

Maker = Callable[[Path], None]

ORDINARY: dict[str, Maker] = {}
"""Files on which the command has an answer."""

HOSTILE: dict[str, Maker] = {}
"""Files on which it has an answer, or one line."""


def _add(made: dict[str, Maker], *cases: str) -> Callable[[Callable[..., None]], Any]:
    """Register a maker under its name, once for each of its arguments."""

    def register(maker: Callable[..., None]) -> Any:
        name = maker.__name__.strip("_").replace("_", "-")
        made.update(
            {f"{name}-{case}": partial(maker, name=case) for case in cases} or {name: maker}
        )
        return maker

    return register


def _fill(group: Any, n: int = 3, **options: Any) -> None:
    """Put a few chunked variables with attributes into a group."""
    rng = np.random.default_rng(n)
    for number in range(n):
        made = group.create_dataset(
            f"v{number}", data=rng.normal(size=(12, 40)), chunks=(5, 20), **options
        )
        made.attrs["units"], made.attrs["long_name"], made.attrs["axis"] = "m", "a name", "X"


# by h5py, for libraries old and new


_HOW: dict[str, dict[str, Any]] = {
    "earliest": {},
    "latest": {"libver": ("latest", "latest")},
    "space-kept": {"fs_strategy": "page", "fs_persist": True},
    "pages-4096": {"fs_strategy": "page", "fs_page_size": 4096},
    "userblock-512": {"userblock_size": 512},
}


@_add(ORDINARY, *_HOW)
def _h5py(path: Path, name: str) -> None:
    with h5py.File(path, "w", **_HOW[name]) as f:
        f.attrs["zulu"], f.attrs["alpha"] = 1, "two"
        _fill(f, 3, compression="gzip", shuffle=True)
        _fill(f.create_group("inner"), 9)


_FILTERS: dict[str, dict[str, Any]] = {
    "lzf": {"compression": "lzf"},
    "scaleoffset": {"scaleoffset": 3},
    "blosc": dict(hdf5plugin.Blosc()),
    "zstd": dict(hdf5plugin.Zstd()),
    "zfp": dict(hdf5plugin.Zfp(rate=16)),
}


@_add(ORDINARY, *_FILTERS)
def _filter(path: Path, name: str) -> None:
    with h5py.File(path, "w") as f:
        _fill(f, **_FILTERS[name])


@_add(ORDINARY)
def _types(path: Path) -> None:
    text = h5py.string_dtype("ascii", 4)
    with h5py.File(path, "w") as f:
        f["committed"] = np.dtype([("n", "<i4"), ("text", text)])
        f.create_dataset("a-of-committed", (3,), f["committed"])[0] = (1, b"full")
        f["full"] = np.array([b"full", b"gaps"], text)
        f["unicode"] = np.array(["é".encode()], h5py.string_dtype("utf-8", 5))
        f["enum"] = np.array([0, 1], h5py.enum_dtype({"clear": 0, "rain": 1}, "u1"))
        f["half"], f["big"], f["complex"] = np.float16(1), np.arange(3, dtype=">f8"), 1j
        f["bool"], f["opaque"] = True, np.void(b"bytes")
        f["array"] = np.zeros(2, [("a", "f4", (2, 3))])
        f["time"] = np.array([1], "M8[s]").astype(h5py.opaque_dtype("M8[s]"))
        f["ragged"] = np.empty(2, object)[:0].astype(h5py.vlen_dtype("i4"))
        f.create_dataset("lists", (2,), h5py.vlen_dtype("i4"))[0] = [1, 2, 3]
        f.create_dataset("words", (2,), h5py.string_dtype(), fillvalue="none")[0] = "word"
        f.attrs["committed"] = h5py.Empty("f4")
        f.attrs.create("typed", 3, dtype="i2")
        f.attrs["letters"], f.attrs["list"] = np.bytes_("full"), ["a", "bb"]


@_add(ORDINARY)
def _references(path: Path) -> None:
    with h5py.File(path, "w") as f:
        _fill(f)
        f["refs"] = np.array([f["v2"].ref, f["v0"].ref, h5py.Reference()], h5py.ref_dtype)
        f["zulu"], f["v0"].attrs["self"] = f["v0"], f["v0"].ref
        pairs = np.zeros(2, [("n", "i4"), ("to", h5py.ref_dtype)])
        pairs["to"] = [f["v1"].ref, f["v2"].ref]
        f["pairs"] = pairs


@_add(ORDINARY)
def _links(path: Path) -> None:
    with h5py.File(path, "w") as f:
        _fill(f.create_group("g"))
        f["hard"], f["group"] = f["g/v0"], f["g"]
        f["g/up"] = f  # a circle
        f["soft"], f["dangling"] = h5py.SoftLink("/g/v1"), h5py.SoftLink("/nowhere")
        f["away"] = h5py.ExternalLink("other.h5", "/x")


@_add(ORDINARY)
def _names(path: Path) -> None:
    with h5py.File(path, "w") as f:
        for name in ("été", "a b", "x\ty", "[dim]", ".hidden", "-v", "a,b:c", "n" * 400):
            f[name] = np.arange(3)
            f[name].attrs[f"of {name}"] = name


@_add(ORDINARY)
def _nothing_stored(path: Path) -> None:
    with h5py.File(path, "w") as f:
        f["null"], f["none"] = h5py.Empty("f8"), np.zeros((0, 3))
        f.create_dataset("late", (5,), "f4", fillvalue=9)
        f.create_dataset("chunked", (5, 5), "f4", chunks=(2, 2), maxshape=(None, 5))
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_layout(h5py.h5d.COMPACT)
        space = h5py.h5s.create_simple((4,))
        made = h5py.h5d.create(f.id, b"compact", h5py.h5t.NATIVE_INT32, space, dcpl=plist)
        made.write(h5py.h5s.ALL, h5py.h5s.ALL, np.arange(4, dtype="i4"))


@_add(ORDINARY)
def _partly_written(path: Path) -> None:
    with h5py.File(path, "w") as f:
        made = f.create_dataset("x", (100, 100), "i2", chunks=(7, 9), fillvalue=-1, compression=1)
        made[90:], made[3, 3] = 4, 5
        f.create_dataset("big", (600, 4000), "f8", chunks=(600, 4000))[5] = (
            1  # above the chunk cache
        )


# by netCDF's library, its tools and its friends


@_add(ORDINARY, "NETCDF4", "NETCDF4_CLASSIC")
def _netcdf(path: Path, name: Any) -> None:
    with netCDF4.Dataset(path, "w", format=name) as made:
        made.title, made.history, made.Conventions = "t", "h", "CF-1.8"
        made.createDimension("time", None)
        made.createDimension("x", 30)
        made.createVariable("time", "f8", ("time",))[:] = np.arange(4)
        new = made.createVariable("t", "i2", ("time", "x"), zlib=True, fill_value=-9)
        new.scale_factor, new.add_offset = 0.1, 2.0
        new[:] = np.arange(120).reshape(4, 30)
        made.createVariable("letters", "S1", ("x",))


@_add(ORDINARY)
def _netcdf_types(path: Path) -> None:
    with netCDF4.Dataset(path, "w") as made:
        made.zulu, made.alpha = 1, 2
        made.createDimension("x", 3)
        clouds = made.createEnumType(np.uint8, "cloud_t", {"clear": 0, "rain": 1})
        made.createVariable("a_cloud", clouds, ("x",))[:] = [0, 1, 0]
        lists = made.createVariable("a_list", made.createVLType(np.int32, "list_t"), ("x",))
        for number in range(3):
            lists[number] = np.arange(number + 1, dtype="i4")
        pair = made.createCompoundType(np.dtype([("a", "f4"), ("b", "i4")]), "pair_t")
        made.createGroup("inner").createVariable("a_pair", pair, ("x",))[:] = np.zeros(
            3, pair.dtype
        )
        made.createVariable("words", str, ("x",))[:] = np.array(["a", "bb", ""], object)


# hostile


@_add(HOSTILE, "huge-chunked", "huge-contiguous", "huge-virtual")
def _declared(path: Path, name: str) -> None:
    with h5py.File(path, "w") as f:
        if name == "huge-chunked":
            f.create_dataset("x", (10**12, 10**6), "f4", chunks=(10, 10), compression=1)[0, 0] = 1
            f.create_dataset("y", (2**62,), "u1", chunks=(10,), maxshape=(None,))[2**61] = 1
        elif name == "huge-contiguous":
            f.create_dataset("x", (10**9, 10**9), "f4")
        else:
            layout = h5py.VirtualLayout((10**9, 10**9), "f4")
            layout[0, :3] = h5py.VirtualSource(".", "y", (3,))
            f["y"] = np.arange(3, dtype="f4")
            f.create_virtual_dataset("x", layout)


@_add(HOSTILE)
def _dimensions_32(path: Path) -> None:
    with h5py.File(path, "w") as f:
        f.create_dataset("x", data=np.ones((1,) * 31 + (9,)), chunks=(1,) * 31 + (2,))


@_add(HOSTILE)
def _region_references(path: Path) -> None:
    with h5py.File(path, "w") as f:
        _fill(f)
        f["regions"] = np.array([f["v0"].regionref[2:4, 3]], h5py.regionref_dtype)


@_add(HOSTILE)
def _nested_lists(path: Path) -> None:
    with h5py.File(path, "w") as f:
        kind = h5py.h5t.vlen_create(h5py.h5t.vlen_create(h5py.h5t.NATIVE_INT32))
        h5py.h5d.create(f.id, b"x", kind, h5py.h5s.create_simple((3,)))


@_add(HOSTILE, "UNIX_D32LE", "STD_B8LE")
def _old_type(path: Path, name: str) -> None:
    with h5py.File(path, "w") as f:
        space = h5py.h5s.create_simple((3,))
        h5py.h5d.create(f.id, b"x", getattr(h5py.h5t, name), space)


@_add(HOSTILE)
def _dangling_reference(path: Path) -> None:
    with h5py.File(path, "w") as f:
        _fill(f)
        f["refs"] = np.array([f["v2"].ref], h5py.ref_dtype)
        del f["v2"]


@_add(HOSTILE, "mandatory", "optional")
def _unknown_filter(path: Path, name: str) -> None:
    with h5py.File(path, "w") as f:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((10,))
        plist.set_filter(305, h5py.h5z.FLAG_OPTIONAL, (1, 2, 3))
        space = h5py.h5s.create_simple((20,))
        made = h5py.h5d.create(f.id, b"x", h5py.h5t.NATIVE_INT32, space, dcpl=plist)
        made.write_direct_chunk((0,), b"12345" * 8, 0)


@_add(HOSTILE, "external", "virtual")
def _values_in_other_files(path: Path, name: str) -> None:
    with h5py.File(path, "w") as f:
        f["y"] = np.arange(3)
        if name == "external":
            f.create_dataset("x", (5,), "f8", external=[("gone.bin", 0, h5py.h5f.UNLIMITED)])
        else:
            layout = h5py.VirtualLayout((4,), "f8")
            layout[:] = h5py.VirtualSource("gone.h5", "x", (4,))
            f.create_virtual_dataset("x", layout)


@_add(HOSTILE, "open", "swmr")
def _being_written(path: Path, name: str) -> None:
    """Copy a file as it is on disk while it is written."""
    writing = path.with_suffix(".writing")
    with h5py.File(writing, "w", libver="latest") as f:
        made = f.create_dataset("x", data=np.arange(100), chunks=(10,), maxshape=(None,))
        if name == "swmr":
            f.swmr_mode = True
        made.resize((200,))
        made[100:] = 4
        f.flush()
        shutil.copy(writing, path)


@_add(HOSTILE, "no-bytes", "text", "zip", "netcdf-3", "signature-alone")
def _no_hdf5(path: Path, name: str) -> None:
    if name == "netcdf-3":
        with netCDF4.Dataset(path, "w", format="NETCDF3_CLASSIC") as made:
            made.createDimension("x", 3)
            made.createVariable("v", "f4", ("x",))
        return
    given = {"no-bytes": b"", "text": b"no HDF5 " * 99, "zip": b"PK\3\4" + bytes(99)}
    path.write_bytes(given.get(name, b"\x89HDF\r\n\x1a\n"))


def _make_sound(path: Path, kind: str) -> bytes:
    ALL["netcdf-types" if kind == "netcdf" else f"h5py-{kind}"](path)
    return path.read_bytes()


@_add(
    HOSTILE,
    *(f"{kind}-{share}" for kind in ("earliest", "latest", "netcdf") for share in (3, 50, 97)),
)
def _cut_short(path: Path, name: str) -> None:
    kind, share = name.split("-")
    whole = _make_sound(path, kind)
    path.write_bytes(whole[: len(whole) * int(share) // 100])


@_add(
    HOSTILE, *(f"{kind}-{seed}" for kind in ("earliest", "latest", "netcdf") for seed in range(8))
)
def _damaged(path: Path, name: str) -> None:
    """Change bytes at random places, most of them in the metadata at the front."""
    kind, seed = name.split("-")
    found, rng = bytearray(_make_sound(path, kind)), random.Random(name)
    stop = len(found) if int(seed) % 3 == 0 else min(len(found), 4000)
    for _ in range(1 + int(seed) % 4 * 5):
        found[rng.randrange(8, stop)] = rng.choice((0, 255, rng.randrange(256)))
    path.write_bytes(found)


ALL = ORDINARY | HOSTILE

QUICK = ("types", "references", "links", "netcdf-types", "filter-blosc", "h5py-userblock-512",
         "partly-written", "declared-huge-virtual", "cut-short-latest-50", "damaged-netcdf-1")  # fmt: skip
"""Those that every run of the tests has."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[] if n in QUICK else pytest.mark.slow) for n in ALL],
)
def test_every_file_ends_in_an_answer_or_a_line(name: str, tmp_path: Path) -> None:
    """No traceback on any file; an ordinary one is answered."""
    ALL[name](path := tmp_path / "made.h5")
    for arguments in (["--json", "--profile", "wide-area"], []):
        done = CliRunner().invoke(hdf5, ["advise", str(path), *arguments])
        if isinstance(done.exception, UserError):
            said = str(done.exception)
            assert name in HOSTILE and "\n" not in said and "; allowed: " in said
            continue
        assert done.exception is None, done.exception
        assert not arguments or json.loads(done.output)["advice"]

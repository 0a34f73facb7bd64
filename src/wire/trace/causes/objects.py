"""Causes in which objects are asked for that need not be, or again."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from wire.errors import format_size
from wire.trace import analysis
from wire.trace.analysis import is_metadata
from wire.trace.causes.registry import (
    FEW,
    Cause,
    Evidence,
    Remedy,
    advise,
    set_variable,
)
from wire.trace.whatif import Edit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wire.trace.whatif import Trace

_PLACES = 3  # of metadata, more than which could be in one
_COORDINATE_NBYTES = 2**20  # of a coordinate, at most
_COORDINATES = {
    "time", "lat", "lon", "latitude", "longitude", "x", "y", "z", "level", "step", "depth", "height",
    "delta_time", "valid_time", "number", "member", "band", "spatial_ref", "crs",
}  # fmt: skip
_OPENING = ("open_datatree", "open_groups", "open_zarr", "open_dataset", "open_mfdataset")


def drop(trace: Trace, places: Sequence[int], text: str, *, n_kept: int = 0) -> Evidence | None:
    """Ask for all but these, of which the first may have to stay."""
    if not places:
        return None
    return Evidence(places, text, Edit(trace.keep(places[n_kept:])))


def _find_looks(trace: Trace) -> Evidence | None:
    """Find objects whose size is asked for before they are read."""
    dropped = []
    for group in trace.by_object(range(len(trace.rows))):
        for i, j in itertools.pairwise(group):
            row, following = trace.rows[i], trace.rows[j]
            if row.method == "HEAD" and row.status < 300 and following.method == "GET":
                dropped.append(i)
    n_get = len(trace.places(lambda row: row.method == "GET"))
    text = f"before {len(dropped)} of {n_get} reads an extra request (HEAD) asked for the size"
    return drop(trace, sorted(dropped), text)


def _find_repeated(trace: Trace) -> list[int]:
    """Find the requests whose bytes had come before, in the whole run."""
    if trace.root is not trace:
        repeats = trace.root.repeated
        return [i for i, place in enumerate(trace.origin) if place in repeats]
    return sorted(trace.repeated)


def _find_repeats(trace: Trace) -> Evidence | None:
    """Find bytes of an object that had come before."""
    repeats = _find_repeated(trace)
    nbytes = sum(trace.rows[i].nbytes for i in repeats)
    text = f"{len(repeats)} requests brought {format_size(nbytes)} that had come before"
    return drop(trace, repeats, text)


def _find_samples(trace: Trace) -> Evidence | None:
    """Find chunks that are read again at once, for the next sample that lies in them."""
    repeats = {i for i in _find_repeated(trace) if trace.kinds[i] == "chunk"}
    if len(repeats) < FEW:
        return None
    chunks = [i for i in trace.data if trace.kinds[i] == "chunk"]
    latest, n_next = dict[tuple[str, str], int](), 0
    for number, i in enumerate(chunks):
        row = trace.rows[i]
        name = (row.host, row.key)
        # the chunk before, or one of the few of the sample before
        n_next += i in repeats and number - latest.get(name, -(10**9)) == 1
        latest[name] = number
    if n_next < 0.5 * len(repeats):
        return None
    text = (
        f"{len(latest)} chunks were read {len(chunks)} times:"
        " each sample reads the chunk again that it lies in"
    )
    return drop(trace, sorted(repeats), text)


def _find_metadata(trace: Trace) -> Evidence | None:
    """Find metadata asked for array by array, with the HEADs, listings and look-ups that go with them."""
    wanted = trace.places(is_metadata)
    wanted_gets = [i for i in wanted if trace.rows[i].method == "GET"]
    folders = {trace.rows[i].key.rpartition("/")[0] for i in wanted if trace.rows[i].status < 300}
    if len(folders) <= _PLACES:
        return None
    first, last = wanted[0], wanted[-1]
    chosen = {*wanted}
    family = [
        i
        for i in range(first, last + 1)
        if i in chosen
        or trace.kinds[i] == "listing"
        or (trace.kinds[i] in ("HEAD", "probe") and not analysis.is_chunk(trace.rows[i]))
    ]
    necessary = next((i for i in wanted_gets if trace.rows[i].status < 300), family[0])
    text = f"{len(family)} requests for metadata in {len(folders)} places, which could be in one"
    return Evidence(family, text, Edit(trace.keep(i for i in family if i != necessary)))


def _find_tree(trace: Trace) -> Evidence | None:
    """Find coordinates of many groups or arrays that are read while a dataset is opened, in turn."""
    by_array = defaultdict[str, list[int]](list)
    for i in trace.data:
        row = trace.rows[i]
        if trace.kinds[i] == "chunk":
            by_array[analysis.array_of(row.key)].append(i)
    small = {
        array: places
        for array, places in by_array.items()
        if len(places) <= 2 and sum(trace.rows[i].nbytes for i in places) <= _COORDINATE_NBYTES
    }
    call = trace.code_line.library_call if trace.code_line else ""
    if not any(name in call for name in _OPENING):
        names = [array.rpartition("/")[2] for array in small]
        small = {
            array: places
            for (array, places), name in zip(small.items(), names, strict=True)
            if name.lower() in _COORDINATES
        }
        if len(small) < 0.5 * len(by_array):
            return None
    places = sorted(i for group in small.values() for i in group)
    if len(small) < FEW or analysis.most_in_flight([trace.rows[i] for i in places]) > 2:
        return None
    n_groups = len({array.rpartition("/")[0] for array in small})
    where = f" of {n_groups} groups" if n_groups > 1 else ""
    text = f"{len(small)} coordinates{where} were read one by one while the data were opened"
    return drop(trace, places, text)


def _find_probes(trace: Trace) -> Evidence | None:
    """Find look-ups of what is not there."""
    missing = trace.places(lambda row: row.status == 404)
    names = Counter(trace.rows[i].key.rpartition("/")[2] for i in missing)
    example = ", ".join(name for name, _ in names.most_common(1))
    text = f"{len(missing)} of {len(trace.rows)} requests were answered 404, such as for {example}"
    return drop(trace, missing, text)


def _find_listings(trace: Trace) -> Evidence | None:
    """Find listings before each read."""
    listings = [i for i, kind in enumerate(trace.kinds) if kind == "listing"]
    text = f"{len(listings)} listings for {len(trace.data)} reads"
    return drop(trace, listings, text, n_kept=1)


_CONSOLIDATE = Remedy("zarr.consolidate_metadata(store)")
_TREE = Remedy("tree = xr.open_datatree(url, decode_times=False, create_default_indexes=False)")

CAUSES = [
    Cause(
        "looks",
        "an extra request (HEAD) before each object",
        "asking for the size of each object before reading it",
        _find_looks,
        "symptoms-zarr.html#my-zarr-is-slow-since-i-updated",
        advise("read without the HEAD: the answer of a GET has the size"),
        {
            "zarr": Remedy(
                "group = zarr.open_group(url, mode='r',"
                " storage_options={**storage_options, 'max_concurrency': 1})",
                setting="max_concurrency=1",
            ),
            "xarray": Remedy(
                "ds = xr.open_zarr(url, storage_options={**storage_options, 'max_concurrency': 1})",
                setting="max_concurrency=1",
            ),
            "s3fs": Remedy(
                "fs = s3fs.S3FileSystem(max_concurrency=1)", setting="max_concurrency=1"
            ),
            "boto3": Remedy(
                "answer = client.get_object(Bucket=bucket, Key=key)\nnbytes = answer['ContentLength']"
            ),
            "obstore": Remedy("answer = obstore.get(store, path)\nnbytes = answer.meta['size']"),
            "requests": Remedy(
                "response = session.get(url)\nnbytes = int(response.headers['Content-Length'])"
            ),
            "httpx": Remedy(
                "response = client.get(url)\nnbytes = int(response.headers['Content-Length'])"
            ),
            "gdal": set_variable("CPL_VSIL_CURL_USE_HEAD=NO", "CPL_VSIL_CURL_USE_HEAD=NO"),
        },
    ),
    Cause(
        "samples",
        "the same chunk for each sample",
        "reading the same chunk again for each sample",
        _find_samples,
        "recipes-services.html#load-random-boxes",
        Remedy("block = array[first:last]\nsamples = [block[i] for i in range(last - first)]"),
        {
            "xarray": Remedy(
                "block = array[first:last].load()\nsamples = [block[i] for i in range(last - first)]"
            )
        },
        absorbs=("repeats",),
    ),
    Cause(
        "repeats",
        "the same bytes again",
        "reading bytes that it had read before",
        _find_repeats,
        "recipes.html",
        advise("keep what was read, or put a cache before the store"),
        {
            "zarr": Remedy("values = array[:]  # once, before the loop"),
            "xarray": Remedy("ds = ds.load()  # once, before the loop"),
            "gdal": set_variable(
                "CPL_VSIL_CURL_CACHE_SIZE=134217728", "CPL_VSIL_CURL_CACHE_SIZE=134217728"
            ),
            "fsspec": Remedy("data = fs.cat(paths)  # once, then data[path]"),
            "boto3": Remedy(
                "data = client.get_object(Bucket=bucket, Key=key)['Body'].read()  # once"
            ),
            "obstore": Remedy("data = obstore.get(store, path).bytes()  # once"),
            "requests": Remedy("data = session.get(url).content  # once"),
            "httpx": Remedy("data = client.get(url).content  # once"),
        },
        {
            "compute": Remedy("ds = ds.persist()  # before the first compute"),
            "read_parquet": Remedy("table = pd.read_parquet(path)  # once"),
        },
    ),
    Cause(
        "metadata",
        "metadata that are not consolidated",
        "reading metadata array by array",
        _find_metadata,
        "symptoms-zarr.html#opening-takes-ninety-seconds",
        _CONSOLIDATE,
        {"tensorstore": advise("open each array once and keep it")},
        absorbs=("looks", "probes", "listings", "in-turn", "repeats"),
    ),
    Cause(
        "tree",
        "coordinates read one by one at opening",
        "opening groups and reading their coordinates one by one",
        _find_tree,
        "symptoms-zarr.html#opening-takes-ninety-seconds",
        Remedy("ds = xr.open_zarr(url, decode_times=False, create_default_indexes=False)"),
        {"zarr": advise("read coordinates where they are needed, and all at once")},
        {
            "open_datatree": _TREE,
            "open_groups": _TREE,
            "open_dataset": Remedy(
                "ds = xr.open_dataset(url, decode_times=False, create_default_indexes=False)"
            ),
            "open_mfdataset": Remedy(
                "ds = xr.open_mfdataset(urls, engine='zarr', parallel=True, coords='minimal',"
                " compat='override', decode_times=False)"
            ),
        },
        absorbs=("in-turn",),
    ),
    Cause(
        "probes",
        "look-ups of what is not there",
        "asking for what is not there",
        _find_probes,
        "symptoms-zarr.html#why-is-zarr-3-slower-than-2",
        advise("ask only for what is there, by names of one listing"),
        {
            "zarr": Remedy(
                "group = zarr.open_group(store, mode='r', zarr_format=3, use_consolidated=True)"
            ),
            "xarray": Remedy("ds = xr.open_zarr(url, zarr_format=3, consolidated=True)"),
            "gdal": set_variable("GDAL_DISABLE_READDIR_ON_OPEN=EMPTY_DIR", "readdir=EMPTY_DIR"),
            "fsspec": Remedy("names = fs.ls(folder)  # once, then read what is in it"),
            "obstore": Remedy("names = [item['path'] for item in obstore.list(store).collect()]"),
        },
    ),
    Cause(
        "listings",
        "a listing before each read",
        "listing names before each read",
        _find_listings,
        "symptoms.html",
        advise("list once and keep the names, or open by name"),
        {
            "gdal": set_variable("GDAL_DISABLE_READDIR_ON_OPEN=EMPTY_DIR", "readdir=EMPTY_DIR"),
            "fsspec": Remedy("names = fs.ls(folder)  # once, before the loop"),
            "obstore": Remedy(
                "names = [item['path'] for item in obstore.list(store).collect()]  # once"
            ),
            "boto3": Remedy(
                "pages = client.get_paginator('list_objects_v2').paginate(Bucket=bucket)\n"
                "keys = [item['Key'] for page in pages for item in page.get('Contents', [])]  # once"
            ),
        },
    ),
]

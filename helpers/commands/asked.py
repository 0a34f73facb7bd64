"""What the options of ``python -m helpers chunks`` stand for: an array, accesses, a store."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from helpers.errors import UserError
from helpers.mixes import Access
from helpers.models.accesses import Store
from helpers.models.fluid import Network
from helpers.storage import layout
from helpers.storage.layout import Shape
from helpers.storage.metadata import ArrayFacts
from helpers.storage.network import get_profile

_TYPES = {1: "uint8", 2: "int16", 4: "float32", 8: "float64", 16: "complex128"}
_MB = 1e6


def facts_from(options: dict[str, Any]) -> ArrayFacts:
    """Take the array from numbers."""
    if not options["shape"]:
        raise UserError("shape: none; allowed: --shape 98128,277,349, or a STORE to read it from")
    try:
        shape = tuple(int(text) for text in options["shape"].split(","))
    except ValueError as error:
        raise UserError(
            f"shape: {options['shape']!r}; allowed: whole numbers and commas"
        ) from error
    shape = layout.check_shape("shape", shape)
    dtype, itemsize = options["dtype"], options["itemsize"]
    if dtype:
        itemsize = _itemsize_of(dtype)
    if not itemsize or itemsize < 1:
        raise UserError(f"itemsize: {itemsize}; allowed: bytes of an element, at least 1")
    return ArrayFacts("array", shape, dtype or _TYPES.get(itemsize, f"V{itemsize}"), itemsize, None)


def _itemsize_of(dtype: str) -> int:
    """Look up the bytes of an element."""
    try:
        found = np.dtype(dtype)
    except TypeError as error:
        raise UserError(f"dtype: {dtype!r}; allowed: a numpy type such as float32") from error
    if found.hasobject or found.itemsize == 0:
        raise UserError(f"dtype: {dtype!r}; allowed: a type of fixed size, such as float32")
    return found.itemsize


def store_from(options: dict[str, Any], facts: ArrayFacts) -> Store:
    """Describe the network as it is, not to scale, and a reader that decodes as it goes."""
    profile = get_profile(options["profile"])
    first = profile.first_byte_s

    def rate(value: float | None) -> float:
        return math.inf if value is None else value * profile.scale

    network = Network(
        first.median_s if first else 0.0,
        first.p95_s if first else 0.0,
        rate(profile.stream_mb_per_s) * _MB,
        rate(profile.aggregate_mb_per_s) * _MB,
        rate(profile.requests_per_s),
    )
    if not options["decode_mb_per_s"] > 0:
        raise UserError(f"decode-mb-per-s: {options['decode_mb_per_s']}; allowed: above 0")
    ratio = options["compression_ratio"] or facts.compression_ratio or 1.0
    return Store(
        network,
        options["connections"],
        chunk_s=5e-4,
        decode_s_per_nbyte=1 / (options["decode_mb_per_s"] * _MB),
        compression_ratio=ratio,
    )


def parse_accesses(texts: tuple[str, ...], shape: Shape) -> tuple[list[Access], list[float]]:
    """Read accesses and their weights, which are 1 where none is given."""
    accesses, weights = [], []
    for text in texts:
        what, _, weight = text.partition(":")
        accesses.append(Access(what, _extent_of(what, shape)))
        try:
            weights.append(float(weight or 1))
        except ValueError as error:
            raise UserError(f"access: {text!r}; allowed: WHAT:NUMBER") from error
    return accesses, weights


def _extent_of(what: str, shape: Shape) -> Shape:
    """Turn a name, or a box such as 365x10x10, into elements for each dimension."""
    named = {
        "series": (shape[0], *(1 for _ in shape[1:])),
        "slice": (1, *shape[1:]),
        "whole": shape,
    }
    if what in named:
        return named[what]
    try:
        extent = tuple(int(part) for part in what.split("x"))
    except ValueError as error:
        raise UserError(
            f"access: {what!r}; allowed: series, slice, whole, or a box such as 365x10x10"
        ) from error
    return layout.check_within("access", extent, shape)

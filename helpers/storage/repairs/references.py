"""References from one object of an HDF5 file to another, wherever they lie in a type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import h5py
import numpy as np

from helpers.errors import UserError


def map_references(
    values: Any, dtype: np.dtype[Any], refer: Callable[[h5py.Reference], h5py.Reference]
) -> Any:
    """Turn the references in values into others.

    Parameters
    ----------
    values : Any
        As h5py reads them.
    dtype : numpy dtype
        Their type, as h5py gives it.
    refer : callable
        From a reference to the one that takes its place.

    Returns
    -------
    Any
        The values; the same where they hold no references.

    Raises
    ------
    UserError
        If there are region references, which cannot be followed.
    """
    kind = h5py.check_ref_dtype(dtype)
    if kind is h5py.RegionReference:
        raise UserError("file: has region references; allowed: others, unless h5repack is on PATH")
    if kind is h5py.Reference:
        mapped = np.empty(np.shape(values), dtype)
        for index in np.ndindex(mapped.shape):
            mapped[index] = refer(np.asarray(values, object)[index])
        return mapped
    base = h5py.check_vlen_dtype(dtype)
    if base is not None and h5py.check_ref_dtype(base) is not None:
        mapped = np.empty(np.shape(values), dtype)
        for index in np.ndindex(mapped.shape):
            mapped[index] = map_references(np.asarray(values, object)[index], base, refer)
        return mapped
    if dtype.fields and dtype.hasobject:
        mapped = np.array(values, dtype)
        for name, field in dtype.fields.items():
            mapped[name] = map_references(mapped[name], field[0], refer)
        return mapped
    return values

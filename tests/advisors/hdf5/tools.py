"""Tools of HDF5 that tests run where they are there."""

from __future__ import annotations

import shutil

import pytest

from advisors.hdf5.apply import TOOLS

needs_tools = pytest.mark.skipif(
    not (shutil.which("h5repack") and shutil.which("h5diff")),
    reason=f"h5repack and h5diff are not on the path ({TOOLS})",
)
"""Skips a test where `h5repack` or `h5diff` is missing."""

"""What `wire trace` needs is small, so that it installs anywhere within seconds."""

from __future__ import annotations

import subprocess
import sys

_HEAVY = {"dask", "matplotlib", "numpy", "pandas", "pyarrow", "scipy", "xarray", "zarr"}
_IMPORT_ALL = """
import importlib, pkgutil, sys
import wire.cli, wire.trace
sys.path_importer_cache.clear()
for module in pkgutil.iter_modules(wire.trace.__path__):
    if module.name not in ("dask_plugin", "pytest_plugin"):  # for who has Dask, or pytest
        importlib.import_module(f"wire.trace.{module.name}")
print(*{name.partition(".")[0] for name in sys.modules})
"""


def test_no_module_of_the_trace_imports_a_heavy_package() -> None:
    """NumPy alone is larger than all that `wire trace` needs."""
    completed = subprocess.run(
        [sys.executable, "-I", "-c", _IMPORT_ALL], capture_output=True, text=True, check=True
    )
    packages = {*completed.stdout.split()}
    assert "cryptography" in packages
    assert packages & _HEAVY == set()

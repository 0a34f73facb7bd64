"""Begin the shim in a program's Python, then run the sitecustomize that this one stands before.

Any Python reads this file, 2.7 too, which says aloud what it cannot compile: the shim proper is
`shim.py`, for 3.6 and later. Older ones are led to the gateway by variables alone.
"""

# mypy: ignore-errors
# ruff: noqa: S110, SIM105, UP036 (nothing here may fail the program, whatever Python it has)

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _begin():
    import importlib.util

    path = os.path.join(_HERE, "shim.py")
    spec = importlib.util.spec_from_file_location("_wire_shim", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["_wire_shim"] = module
    spec.loader.exec_module(module)


def _run_next():
    sys.path[:] = [place for place in sys.path if os.path.abspath(place) != _HERE]
    if sys.version_info < (3,):
        del sys.modules["sitecustomize"]
        try:
            import sitecustomize  # noqa: F401
        except ImportError:
            pass
        return
    import importlib.machinery
    import importlib.util

    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if sys.version_info >= (3, 6):
    try:
        _begin()
    except Exception:
        pass
_run_next()

"""Lead libraries to the gateway that ask no variable of the environment; whatever Python the program runs."""

# mypy: ignore-errors

import contextlib
import importlib.machinery
import importlib.util
import os
import sys


def _lead_certifi(certifi):  # netCDF4 and others take its file whatever the variables say
    certifi.where = lambda: os.environ["SSL_CERT_FILE"]


def _lead_duckdb(duckdb):  # it heeds no variable
    connect, lead = duckdb.connect, "SET http_proxy = '{}'".format(os.environ["HTTP_PROXY"])

    def connect_through(*args, **kwargs):
        connection = connect(*args, **kwargs)
        connection.execute(lead)
        return connection

    duckdb.connect = connect_through
    duckdb.execute(lead)


_LEADS = {"certifi": _lead_certifi, "duckdb": _lead_duckdb}


class _Leader:
    """Find these modules as they are found without us, and change them once they are imported."""

    def find_spec(self, name, path=None, target=None):
        if name not in _LEADS:
            return None
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            sys.meta_path.insert(0, self)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module):
                run(module)
                with contextlib.suppress(Exception):  # then it is not seen, and nothing more
                    _LEADS[name](module)

            spec.loader.exec_module = exec_module
        return spec


def _run_next():
    """Run the sitecustomize that this one stands before."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [place for place in sys.path if os.path.abspath(place) != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


sys.meta_path.insert(0, _Leader())
_run_next()

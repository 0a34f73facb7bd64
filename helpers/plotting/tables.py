"""Records as tables and words, in one look."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib_inline.backend_inline import set_matplotlib_formats

from helpers.plotting import narrow, palette


def count_rows(rows: pd.DataFrame, *, stopped_by: str) -> pd.DataFrame:
    """Count the blocks and rows of a record by phase, and say what ended the measurement."""
    table = rows.groupby("phase").agg(blocks=("block", "nunique"), rows=("block", "size"))
    ends = ["" if phase != "measured" else format_head(stopped_by) for phase in table.index]
    return table.assign(**{"ended by": ends})


def trace_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Spread the numbers of the trace into columns."""
    return pd.json_normalize([json.loads(text) for text in rows["trace"]]).set_index(rows.index)


def name_cpus(rows: pd.DataFrame) -> str:
    """Name the CPUs of the machines that measured some rows.

    Examples
    --------
    >>> name_cpus(pd.DataFrame({"machine": ['{"cpu": "Intel(R) Xeon(R) Processor"}']}))
    'Intel Xeon Processor'
    """
    cpus = {str(json.loads(text)["cpu"]) for text in rows["machine"].unique()}
    return ", ".join(sorted(cpus)).replace("(R)", "")


def set_style() -> None:
    """Set the look of figures and tables: one for the book."""
    plt.style.use(palette.STYLE)
    set_matplotlib_formats("svg")  # type: ignore[no-untyped-call]
    narrow.draw_both()
    for name in ("max_colwidth", "max_rows", "max_columns"):  # a page shows its tables whole
        pd.set_option(f"display.{name}", None)
    if "inline" in plt.get_backend():  # it draws what it shows: not once more before that
        plt.switch_backend(plt.get_backend())
        plt.uninstall_repl_displayhook()


_MISSING = "\N{EN DASH}"
_UNITS = {
    "_gb_s": "GB s",
    "_mb_per_s": "MB/s",
    "_per_s": "a second",
    "_nbytes": "bytes",
    "_mb": "MB",
    "_gb": "GB",
    "_ms": "ms",
    "_s": "s",
    "_usd": "USD",
}


def show(
    frame: pd.DataFrame,
    *,
    kind: palette.Kind | None = None,
    names: Mapping[str, str] | None = None,
) -> pd.DataFrame:
    """Write a table as a page shows it: heads in words with units, three significant digits.

    Heads are names of the code that end with their unit, as `read_s`. Names of contenders of a
    `kind`, wherever they stand, become labels, and so do those of `names`.
    """
    names_shown = {**(palette.labels(kind) if kind else {}), **(names or {})}
    out = frame.map(lambda value: _write_value(value, names_shown))
    out = out.rename(index=lambda name: _write_value(name, names_shown))
    out = out.rename(index=lambda text: format_head(text) if _CODE.fullmatch(text) else text)
    out = out.rename(columns=lambda name: names_shown.get(name, format_head(str(name))))
    out.index.names = [
        format_head(str(name)) if name is not None else None for name in frame.index.names
    ]
    out.columns.names = [None] * out.columns.nlevels
    return out


_CODE = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)+")


def _write_value(value: object, names: Mapping[str, str]) -> str:
    """Write a cell: a number to three digits, truth as yes and no, what is missing as a dash."""
    if isinstance(value, tuple):
        return ", ".join(_write_value(item, names) for item in value)
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, int | float | np.number):
        number = float(value)
        if not math.isfinite(number):
            return _MISSING if math.isnan(number) else "without end"
        whole = isinstance(value, int | np.integer) or abs(number) >= 100
        return f"{number:,.0f}" if whole else format_digits(number, n=3)
    return _MISSING if value is None or value is pd.NA else names.get(str(value), str(value))


def format_head(name: str) -> str:
    """Spell a name of the code in words, its unit in brackets.

    Examples
    --------
    >>> format_head("stream_mb_per_s"), format_head("n_workers"), format_head("MB asked")
    ('stream (MB/s)', 'workers', 'MB asked')
    """
    unit = next((end for end in _UNITS if name.endswith(end)), "")
    stem = name.removesuffix(unit).removeprefix("n_").replace("_", " ")
    return f"{stem} ({_UNITS[unit]})" if unit else stem


def format_digits(value: float, *, n: int = 2) -> str:
    """Format a number with two significant digits, or `n`, without an exponent.

    Examples
    --------
    >>> format_digits(1234.5), format_digits(3.14159), format_digits(1.272, n=3), format_digits(0.0000367), format_digits(math.inf)
    ('1200', '3.1', '1.27', '0.000037', 'not measured')
    """
    if not math.isfinite(value):
        return "not measured"
    rounded = float(f"{value:.{n}g}")
    if abs(rounded) >= 10 ** (n - 1):
        return f"{rounded:.0f}"
    return np.format_float_positional(rounded, trim="-")

"""What the harness finds, as numbers."""

from __future__ import annotations

import pandas as pd

from helpers.benchmark import statistics


def overhead_ms(rows: pd.DataFrame) -> statistics.Interval:
    """Compute the milliseconds that each more chunk costs, from reads of the same bytes in few and many.

    Rows have `n_chunks`; what is paired is a block's read with the fewest and that with the most.

    Examples
    --------
    >>> lines = [(0, 10, 1.0), (0, 110, 1.2), (1, 10, 1.0), (1, 110, 1.2)]
    >>> round(overhead_ms(pd.DataFrame(lines, columns=["block", "n_chunks", "read_s"])).centre, 6)
    2.0
    """
    wide = rows.pivot(index="block", columns="n_chunks", values="read_s").dropna()
    few, many = (float(n) for n in (wide.columns.min(), wide.columns.max()))
    return statistics.median_interval(1000 * (wide[many] - wide[few]) / (many - few))

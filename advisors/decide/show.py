"""An answer on a screen, in ten lines or with its reasons, and as plain values."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from advisors.chunks.forecast import Layout
from advisors.chunks.question import Question
from advisors.decide.choices import Choice
from advisors.decide.rank import Answer

_N_LINES = 10  # of a short answer

_ADVICE = {
    "default": "Keep the defaults",
    "stay": "Stay, for nothing gains 10 %",
    "set": "Set, and keep the bytes",
    "write": "Write one copy",
    "rechunk": "Rechunk into one copy",
    "copy": "Keep two copies",
}


def to_mapping(answer: Answer) -> dict[str, Any]:
    """Return plain values, for JSON: seconds, bytes and USD add up to the totals beside them."""
    question, array = answer.question, answer.question.array
    return {
        "array": {
            "variable": array.variable,
            "shape": array.shape,
            "type": str(array.dtype),
            "format": array.format,
            "codec": array.codec,
            "compression": question.compression,
            "nbytes": array.nbytes,
            "n_arrays": question.n_arrays,
            "chunk_shape": array.layout.chunk_shape if array.layout else None,
            "shard_shape": array.layout.shard_shape if array.layout else None,
        },
        "asked": {
            "access": dict(zip([a.name for a in question.accesses], question.shares, strict=True)),
            "profile": question.profile,
            "reads_per_month": question.reads_per_month,
            "loader": asdict(question.loader) if question.loader else None,
            "per_second": question.per_second,
        },
        "answer": _choice(answer, answer.best),
        "now": _choice(answer, answer.now),
        "choices": [_choice(answer, one) for one in answer.choices],
    }


def _choice(answer: Answer, one: Choice) -> dict[str, Any]:
    shape, itemsize = answer.question.array.shape, answer.question.array.dtype.itemsize
    return {
        "action": one.action,
        "label": one.label,
        "layouts": [
            {
                "chunk_shape": layout.chunk_shape,
                "shard_shape": layout.shard_shape,
                "chunk_nbytes": math.prod(layout.chunk_shape) * itemsize,
                "n_objects": layout.count_objects(shape),
                "serves": names,
            }
            for layout, names in zip(one.layouts, one.serves, strict=False)
        ],
        "client": one.client.name,
        "in_flight": one.in_flight,
        "reads": [asdict(each) for each in one.reads],
        "seconds": one.seconds,
        "usd_month": dict(one.usd_month),
        "usd_month_total": one.usd,
        "write_usd": one.write_usd,
        "append_nbytes": one.append_nbytes,
        "samples_per_s": one.samples_per_s,
        "gain": answer.gain(one),
        "support": one.support,
        "is_on_front": one.is_on_front,
        "is_knee": one.is_knee,
        "is_over_budget": one.is_over_budget,
    }


def write_short(answer: Answer) -> Iterator[str]:
    """Write an answer in ten lines.

    Yields
    ------
    str
        A line.
    """
    question, best, now = answer.question, answer.best, answer.now
    yield _write_array(question)
    over = "Nothing fits the budget; the cheapest: " * best.is_over_budget
    is_whole = [one.chunk_shape for one in best.layouts] == [question.array.shape]
    is_new = best.action in ("write", "rechunk")
    advice = "Store one chunk" if is_whole and is_new else _ADVICE[best.action]
    than, dearer = "today" if now.action == "stay" else "by default", best.bill - now.bill
    gain = (
        f"{_number(answer.gain(best), 2)} times as fast as {than}, for {_usd(abs(dearer))} a month"
    )
    if best is now:
        gain = f"{_seconds(best.seconds)} a read, {_usd(best.bill)} a month"
    else:
        gain += " more" if dearer >= 0 else " less"
    yield f"{over}{advice}: {gain}."
    layouts = _write_layouts(question, best)
    yield from (f"  {line}" for line in layouts)
    rows = [["", "* chosen, k knee", *(one.access for one in best.reads), "USD/month", "gain"]]
    for one in _pick(answer, _N_LINES - 4 - len(layouts)):
        mark = ("*" if one is best else "") + ("k" if one.is_knee else "")
        label = f"{one.action}: {_write_shapes(one)}{', over budget' * one.is_over_budget}"
        times = [_seconds(each.p50_s) for each in one.reads]
        rows.append([mark, label, *times, _number(one.usd), _number(answer.gain(one), 2)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [cell.rjust(width) for cell, width in zip(row[2:], widths[2:], strict=True)]
        yield "  ".join([row[0].ljust(widths[0]), row[1].ljust(widths[1]), *cells])
    yield f"Read by {_write_client(best)}; {best.support}. More with --why."


def _pick(answer: Answer, n: int) -> list[Choice]:
    """Keep what is there, what is chosen, and the cheapest others of the front, `n` in all."""
    needed = [one for one in answer.choices if one in (answer.now, answer.best)]
    others = [one for one in answer.choices if one.is_on_front and one not in needed]
    kept = [*needed, *others[: n - len(needed)]]
    return [one for one in answer.choices if one in kept]


def write_why(answer: Answer) -> Iterator[str]:
    """Write every choice with what is expected of it, what it costs and what it rests on.

    Yields
    ------
    str
        A line.
    """
    from advisors.decide.snippets import write_code

    question = answer.question
    for one in answer.choices:
        marks = "chosen" * (one is answer.best), "knee" * one.is_knee, "front" * one.is_on_front
        told = ", ".join(mark for mark in marks if mark)
        yield f"\n{one.action}, {one.label}{f' ({told})' if told else ''}"
        yield from (f"  {line}" for line in _write_choice(question, one))
    on = question.predicted_on()
    yield (
        f"\nPredicted over {on['profile']}: first byte {1000 * on['first_byte_median_s']:.3g} ms,"
        f" {on['stream_mb_per_s'] or math.inf:.3g} MB/s a connection and"
        f" {on['aggregate_mb_per_s'] or math.inf:.3g} a reader, decoding {on['decode_mb_per_s']:g} MB/s;"
        f" {_number(question.reads_per_month)} reads a month of an array that is open."
    )
    if question.per_second:
        yield "Caches of tiles and of opened datasets, and their bills: wire costs."
    if question.array.format == "hdf5":
        yield "What its metadata cost, and how to repack it: wire hdf5 advise."
    yield f"\n{write_code(question, answer.best)}"


def _write_choice(question: Question, one: Choice) -> Iterator[str]:
    yield _write_client(one)
    for layout, text in zip(one.layouts, _write_layouts(question, one), strict=False):
        n = layout.count_objects(question.array.shape) * question.n_arrays
        yield text if one.client.is_of_file else f"{text}, {n:,} objects"
    for each in one.reads:
        yield (
            f"{each.access} ({100 * each.share:.3g} %): median {_seconds(each.p50_s)}, 95 % within"
            f" {_seconds(each.p95_s)}; {_number(each.n_requests)} requests, {_bytes(each.nbytes)};"
            f" {_number(each.over_read)} bytes read for each that is asked"
        )
    bill = ", ".join(f"{name} {_usd(usd)}" for name, usd in one.usd_month.items() if usd)
    yield f"a month: {bill or '0 USD'}{_write_once(one)}"
    if one.append_nbytes is not None:
        yield f"an append rewrites {_bytes(one.append_nbytes)} of the array"
    if question.loader and one.samples_per_s:
        loader, itemsize = question.loader, question.array.dtype.itemsize
        box = max(math.prod(access.extent) for access in question.accesses) * itemsize
        held = loader.workers * loader.prefetch * loader.batch * box
        yield f"{_number(one.samples_per_s)} samples a second; batches that are ready take {_bytes(held)}"
    if question.per_second:
        n_requests = question.per_second * math.fsum(r.share * r.n_requests for r in one.reads)
        at_once = _number(question.per_second * one.seconds)
        yield f"{at_once} reads at once, {_number(n_requests)} requests a second"
    yield one.support


def _write_array(question: Question) -> str:
    array, n = question.array, question.n_arrays
    stored = _bytes(array.nbytes * n / question.compression)
    parts = [
        f"{array.variable}: {' x '.join(map(str, array.shape))} {array.dtype}, {stored} stored"
    ]
    parts[0] += f" in {n} such arrays" if n > 1 else ""
    if array.layout:
        parts.append(_write_layout(array.layout, array.dtype.itemsize))
    if array.codec:
        parts.append(f"codec {array.codec}")
    if question.compression != 1:
        parts.append(f"compressed {question.compression:.3g} times")
    if len(array.names) > 1 and array.variable == array.names[0]:
        parts.append(f"largest of {len(array.names)} arrays, before {', '.join(array.names[1:4])}")
    return "; ".join(parts)


def _write_layouts(question: Question, one: Choice) -> list[str]:
    """Write the layout of each copy, a line each; none of a file that stays."""
    if one.client.is_of_file and one.action in ("stay", "set"):
        return []
    itemsize, is_copy = question.array.dtype.itemsize, len(one.layouts) > 1
    pairs = zip(one.layouts, one.serves, strict=True)
    return [
        _write_layout(layout, itemsize) + f" for {', '.join(names)}" * is_copy
        for layout, names in pairs
    ]


def _write_shapes(one: Choice) -> str:
    """Write the chunks of each copy alone, for a table; of a file that stays, the way it is read."""
    if one.client.is_of_file and one.action in ("stay", "set"):
        return one.client.text
    return ", ".join(
        "x".join(map(str, each.chunk_shape)) + " in shards" * bool(each.shard_shape)
        for each in one.layouts
    )


def _write_layout(layout: Layout, itemsize: int) -> str:
    chunk, shard = (
        f"{'x'.join(map(str, shape))} ({_bytes(math.prod(shape) * itemsize)})"
        for shape in (layout.chunk_shape, layout.object_shape)
    )
    return f"chunks {chunk} in shards {shard}" if layout.shard_shape else f"chunks {chunk}"


def _write_client(one: Choice) -> str:
    return f"{one.client.text}, {one.in_flight} in flight"


def _write_once(one: Choice) -> str:
    if one.write_usd < 0.01:
        return ""
    return f"; writing it is {_usd(one.write_usd)} in requests, once"


def _seconds(value: float) -> str:
    return f"{1000 * value:.2g} ms" if value < 0.0995 else f"{_number(value, 2)} s"


def _number(value: float, digits: int = 3) -> str:
    """Write a number to some digits, without an exponent.

    Examples
    --------
    >>> _number(1234.5)
    '1,230'
    """
    return f"{float(f'{value:.{digits}g}'):,.15g}"


def _usd(value: float) -> str:
    return f"{_number(value)} USD"


def _bytes(value: float) -> str:
    """Write bytes in the unit that reads best.

    Examples
    --------
    >>> _bytes(1_048_576), _bytes(40)
    ('1.05 MB', '40 B')
    """
    for size, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= size:
            return f"{_number(value / size)} {unit}"
    return f"{_number(value)} B"

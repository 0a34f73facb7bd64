"""An answer on a screen, in ten lines or with its reasons, and as plain values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from advisors.decide.choices import Action, Answer, Choice
from advisors.decide.layouts import Layout
from advisors.decide.question import Question
from advisors.decide.snippets import write_code
from helpers.errors import cut, write_bytes
from helpers.models import WORTH

_N_LINES = 10  # of a short answer
_ADVICE: dict[Action, str] = {
    "default": "Keep the defaults",
    "stay": "Stay, for nothing gains 10 %",
    "set": "Set, and keep the bytes",
    "write": "Write one copy",
    "rechunk": "Rechunk into one copy",
    "copy": "Keep two copies",
}


def to_mapping(answer: Answer) -> dict[str, Any]:
    """Return plain values, for JSON: seconds, bytes and USD add up to the totals next to them."""
    question, array, asked = answer.question, answer.question.array, asdict(answer.question.asked)
    told = ("variable", "shape", "format", "codec", "nbytes")
    return {
        "array": {
            **{name: getattr(array, name) for name in told},
            "type": str(array.dtype),
            "compression": question.store.compression_ratio,
            "n_arrays": asked.pop("arrays"),
            "chunk_shape": array.layout and array.layout.chunk_shape,
            "shard_shape": array.layout and array.layout.shard_shape,
        },
        "asked": asked,
        "predicted_on": _list_basis(question),
        "answer": _list_values(answer, answer.best),
        "now": _list_values(answer, answer.now),
        "choices": [_list_values(answer, one) for one in answer.choices],
        "ties": [one.label for one in answer.ties],
    }


def _list_values(answer: Answer, one: Choice) -> dict[str, Any]:
    array, found = answer.question.array, asdict(one)
    serves, samples = found.pop("serves"), found.pop("samples") or (None, None)
    layouts = [
        {
            **asdict(layout),
            "chunk_nbytes": math.prod(layout.chunk_shape) * array.dtype.itemsize,
            "n_objects": layout.count_objects(array.shape),
            "serves": names,
        }
        for layout, names in zip(one.layouts, serves, strict=False)  # a file may have none
    ]
    return {
        **found,
        "layouts": layouts,
        "client": one.client.name,
        "seconds": one.seconds,
        "usd_month_total": one.usd,
        "samples_per_s": samples[0],
        "samples_bound": samples[1],
        "gains": answer.gains(one),
    }


def _list_basis(question: Question) -> dict[str, Any]:
    """List the network, at full scale, and the reader that times are predicted on."""
    store, network = question.store, question.store.network
    rates = {
        f"{name}_mb_per_s": rate / 1e6
        if (rate := getattr(network, f"{name}_nbytes_per_s")) < math.inf
        else None
        for name in ("stream", "aggregate")
    }
    return {
        "profile": question.asked.profile,
        "first_byte_median_s": network.first_byte_median_s,
        "first_byte_p95_s": network.first_byte_p95_s,
        **rates,
        "in_flight": question.asked.in_flight,
        "decode_mb_per_s": round(1e-6 / store.decode_s_per_nbyte, 6),
        "chunk_ms": 1000 * store.chunk_s,
        "compression": store.compression_ratio,
    }


def write_short(answer: Answer) -> Iterator[str]:
    """Write an answer in ten lines.

    Yields
    ------
    str
        A line.
    """
    question, best = answer.question, answer.best
    yield _write_array(question)
    over = "Nothing fits the budget; the cheapest: " * best.is_over_budget
    is_whole = [one.chunk_shape for one in best.layouts] == [question.array.shape]
    is_new = best.action in ("write", "rechunk")
    advice = "Store one chunk" if is_whole and is_new else _ADVICE[best.action]
    yield f"{over}{advice}: {_write_headline(answer)}."
    layouts = _write_layouts(question, best)
    yield from (f"  {line}" for line in layouts)
    samples = ["samples/s"] if best.samples else []
    rows = [["", "* chosen", *(one.access for one in best.reads), *samples, "USD/month", "gain"]]
    for one in _pick(answer, _N_LINES - 4 - len(layouts) - bool(answer.ties)):
        label = f"{one.action}: {_write_shapes(one)}{', over budget' * one.is_over_budget}"
        times = [_seconds(each.p50_s) for each in one.reads]
        rate = [_number(one.samples[0])] if one.samples else []
        told = [*times, *rate, _number(one.usd), _range(answer.gains(one).values())]
        rows.append(["*" * (one is best), label, *told])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
        yield "  ".join([row[0].ljust(widths[0]), row[1].ljust(widths[1]), *cells[2:]])
    if answer.ties:
        others = " or ".join(f"{one.action} ({_write_shapes(one)})" for one in answer.ties[:2])
        yield f"A tie: {others} would do as well, within 10 %."
    yield f"Read by {best.client.text}, {best.in_flight} in flight; {best.support}. More with --why."


def _write_headline(answer: Answer) -> str:
    """Say how fast, and what it costs: next to what is there, never next to what nobody runs."""
    best, now = answer.best, answer.now
    bill, is_there = f"{_number(best.bill)} USD a month", now.action == "stay"
    if best is now:
        return f"{_seconds(best.seconds)} a read, {bill}"
    gains = answer.gains(best)
    slower = {name: gain for name, gain in gains.items() if gain * WORTH < 1}
    faster = {name: gain for name, gain in gains.items() if name not in slower}
    which = f"{' and '.join(faster)} " if slower else ""
    told = (
        f"{which}{_range(faster.values())} times as fast as {'today' if is_there else 'by default'}"
    )
    if slower:
        told += ", but " + ", ".join(f"{k} {_number(1 / v, 2)} times slower" for k, v in slower.items())  # fmt: skip
    if is_there:
        dearer = best.bill - now.bill
        bill = f"{_number(abs(dearer))} USD a month {'more' if dearer >= 0 else 'less'}"
    return f"{told}, for {bill}"


def _range(gains: Iterable[float]) -> str:
    """Write the least and the most of some gains; the one number where these are alike."""
    ordered = sorted(gains)
    return " to ".join(dict.fromkeys(_number(gain, 2) for gain in (ordered[0], ordered[-1])))


def _pick(answer: Answer, n: int) -> list[Choice]:
    """Keep what is there, what is chosen, settings and aligned boxes, and the cheapest others that nothing beats."""
    is_loader = answer.question.asked.batch is not None
    ranked = [
        [one for one in answer.choices if one in (answer.now, answer.best)],
        [one for one in answer.choices if is_loader and one.action in ("set", "align")],
        [one for one in answer.choices if one.is_on_front],
    ]
    kept = [*{id(one): one for group in ranked for one in group}.values()][:n]
    return [one for one in answer.choices if one in kept]


def write_why(answer: Answer) -> Iterator[str]:
    """Write every choice with what is expected of it, what it costs and what it rests on.

    Yields
    ------
    str
        A line.
    """
    question = answer.question
    for one in answer.choices:
        yield f"\n{one.action}, {one.label}{' (chosen)' if one is answer.best else ''}"
        yield from (f"  {line}" for line in _write_choice(question, one))
    on = _list_basis(question)
    yield (
        f"\nPredicted over {on['profile']}: first byte {1000 * on['first_byte_median_s']:.3g} ms,"
        f" {on['stream_mb_per_s'] or math.inf:.3g} MB/s a connection and"
        f" {on['aggregate_mb_per_s'] or math.inf:.3g} a reader, decoding {on['decode_mb_per_s']:g} MB/s;"
        f" {_number(question.asked.reads_per_month)} reads a month of"
        f" {'a file that each opens first' if question.array.format == 'hdf5' else 'an array that is open'}."
        f" A GB is billed as 2^30 bytes, before discounts for volume."
    )
    if question.asked.per_second:
        yield "Caches of tiles and of opened datasets, and their bills: wire costs."
    if question.array.format == "hdf5":
        yield "What its metadata cost, and how to repack it: wire hdf5 advise."
    yield f"\n{write_code(question, answer.best)}"


def _write_choice(question: Question, one: Choice) -> Iterator[str]:
    yield f"{one.client.text}, {one.in_flight} in flight"
    for layout, text in zip(one.layouts, _write_layouts(question, one), strict=False):
        n = layout.count_objects(question.array.shape) * question.asked.arrays
        yield text if one.client.is_of_file else f"{text}, {n:,} objects"
    for each in one.reads:
        yield (
            f"{each.access} ({100 * each.share:.3g} %): median {_seconds(each.p50_s)}, 95 % within"
            f" {_seconds(each.p95_s)}; {_number(each.n_requests)} requests, {write_bytes(each.nbytes)};"
            f" {_number(each.over_read)} bytes read for each that is asked"
        )
    bill = ", ".join(f"{name} {_number(usd)} USD" for name, usd in one.usd_month.items() if usd)
    yield f"a month: {bill or '0 USD'}{_write_once(question, one)}"
    asked, itemsize = question.asked, question.array.dtype.itemsize
    if one.append_nbytes is not None:
        yield f"an append rewrites at most {write_bytes(one.append_nbytes)} of what is stored of an array"
    if asked.batch and one.samples:
        box = max(math.prod(access.extent) for access in asked.accesses) * itemsize
        held = write_bytes(asked.workers * asked.prefetch * asked.batch * box)
        link = one.samples[0] / asked.batch * math.fsum(r.share * r.nbytes for r in one.reads)
        yield (
            f"{_number(one.samples[0])} samples a second, bounded by the {one.samples[1]}: {write_bytes(link)}"
            f" a second over a link of {_number(asked.link_mb_per_s or 0)} MB/s, {asked.cores} cores;"
            f" batches that are ready take {held}"
        )
    if asked.per_second:
        n_requests = asked.per_second * math.fsum(r.share * r.n_requests for r in one.reads)
        at_once = _number(asked.per_second * one.seconds)
        yield f"{at_once} reads at once, {_number(n_requests)} requests a second"
    yield one.support


def _write_array(question: Question) -> str:
    array, n, ratio = question.array, question.asked.arrays, question.store.compression_ratio
    parts = [
        f"{cut(array.variable)}: {' x '.join(map(str, array.shape))} {cut(str(array.dtype))},"
        f" {write_bytes(question.stored_nbytes)} stored{f' in {n} such arrays' if n > 1 else ''}"
    ]
    if array.layout:
        parts.append(_write_layout(array.layout, array.dtype.itemsize))
    if array.codec:
        parts.append(f"codec {cut(array.codec)}")
    if ratio != 1:
        parts.append(f"compressed {ratio:.3g} times")
    if len(array.names) > 1 and array.variable == array.names[0]:
        others = cut(", ".join(array.names[1:4]))
        parts.append(f"largest of {len(array.names)} arrays, before {others}")
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
        f"{'x'.join(map(str, shape))} ({write_bytes(math.prod(shape) * itemsize)})"
        for shape in (layout.chunk_shape, layout.object_shape)
    )
    return f"chunks {chunk} in shards {shard}" if layout.shard_shape else f"chunks {chunk}"


def _write_once(question: Question, one: Choice) -> str:
    """Say what writing takes: requests, and the bytes that one reader moves at the least."""
    if one.action not in ("write", "rechunk", "align", "copy"):
        return ""
    moved = question.stored_nbytes * (1 + len(one.layouts))
    hours = moved / question.store.network.aggregate_nbytes_per_s / 3600
    least = f", at least {_number(hours, 2)} hours over one link" if hours > 0.1 else ""
    return f"; writing it, once: {_number(one.write_usd)} USD in requests, {write_bytes(moved)} read and written{least}"


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

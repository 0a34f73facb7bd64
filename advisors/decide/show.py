"""An answer on a screen, in ten lines or with its reasons, and as plain values."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from advisors.chunks.forecast import Forecast
from advisors.chunks.problem import Layout
from advisors.chunks.question import Question
from advisors.decide import clients
from advisors.decide.choices import Choice
from advisors.decide.rank import Answer

_N_ROWS = 5  # choices on a short answer

_ADVICE = {
    "default": "Keep the defaults",
    "stay": "Stay: nothing gains 10 %",
    "set": "Set: keep the bytes, read them with other settings",
    "write": "Write one copy",
    "rechunk": "Rechunk: one copy in another layout",
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
    """Write an answer in ten lines."""
    question, best, now = answer.question, answer.best, answer.now
    yield _write_array(question)
    yield f"{_ADVICE[best.action]}: {_write_layouts(question, best)}."
    if best is now:
        yield f"That takes {_seconds(best.seconds)} a read and {_usd(best.bill)} a month."
    else:
        than = "today" if now.action == "stay" else "by default"
        more = f"{_usd(abs(best.bill - now.bill))} a month {'more' if best.bill >= now.bill else 'less'}"
        faster = _number(answer.gain(best), 2)
        yield f"Read by {_write_client(best)}: {faster} times as fast as {than}, for {more}{_write_once(best)}."
    rows = [["", "choice", *(one.access for one in best.reads), "USD/month", "gain"]]
    for one in _pick(answer):
        mark = ("*" if one is best else "") + ("k" if one.is_knee else "")
        label = f"{one.action}: {_write_shapes(one)}{', over budget' if one.is_over_budget else ''}"
        times = [_seconds(each.p50_s) for each in one.reads]
        rows.append([mark, label, *times, _number(one.usd), _number(answer.gain(one), 2)])
    yield from _align(rows)
    yield f"{_sentence(best.support)}. * chosen, k knee of time against dollars; more with --why."


def _pick(answer: Answer) -> list[Choice]:
    """Keep what is there, what is chosen, and the cheapest others of the front."""
    needed = (answer.now, answer.best)
    others = [one for one in answer.choices if one.is_on_front and one not in needed]
    kept = [*needed, *others[: _N_ROWS - len(needed)]]
    return [one for one in answer.choices if one in kept]


def write_why(answer: Answer) -> Iterator[str]:
    """Write every choice with what is expected of it, what it costs and what it rests on."""
    question = answer.question
    for one in answer.choices:
        yield ""
        marks = [
            word
            for word, holds in (
                ("chosen", one is answer.best),
                ("knee", one.is_knee),
                ("on the front", one.is_on_front),
                ("over the budget", one.is_over_budget),
            )
            if holds
        ]
        yield f"{one.action}, {one.label}{f' ({", ".join(marks)})' if marks else ''}"
        yield f"  {_write_layouts(question, one)}; {_write_client(one)}"
        for layout, names in zip(one.layouts, one.serves, strict=False):
            n = layout.count_objects(question.array.shape) * question.n_arrays
            yield f"  {n:,} objects{f' for {", ".join(names)}' if len(one.layouts) > 1 else ''}"
        for each in one.reads:
            yield f"  {_write_read(each)}"
        bill = ", ".join(f"{name} {_usd(usd)}" for name, usd in one.usd_month.items() if usd)
        yield f"  a month: {bill or '0 USD'}{_write_once(one)}"
        if one.append_nbytes is not None:
            yield f"  an append rewrites {_bytes(one.append_nbytes)} of the array"
        if one.samples_per_s is not None and question.loader:
            yield f"  {_number(one.samples_per_s)} samples a second{_write_loader(question)}"
        if question.per_second:
            rate = question.per_second
            n_at_once = rate * one.seconds
            n_requests = rate * math.fsum(r.share * r.n_requests for r in one.reads)
            yield f"  {_number(n_at_once)} reads at once, {_number(n_requests)} requests a second"
        yield f"  {one.support}"
    pattern = question.pattern()
    network = pattern.store.network
    yield ""
    yield (
        f"Predicted over {question.profile}: first byte {1000 * network.first_byte_median_s:.3g} ms"
        f" in the median, {network.stream_nbytes_per_s / 1e6:.3g} MB/s a connection,"
        f" {network.aggregate_nbytes_per_s / 1e6:.3g} MB/s a reader, decoding at"
        f" {1e-6 / pattern.store.decode_s_per_nbyte:.3g} MB/s, of an array that is open."
    )
    yield f"A month has {_number(question.reads_per_month)} reads; rewriting is priced in requests alone."
    if question.per_second:
        yield "Caches of tiles and of opened datasets, and their bills: wire costs."
    if question.array.format == "hdf5":
        yield "What its metadata cost, and how to repack it: wire hdf5 advise."
    yield ""
    yield write_code(answer)


def _write_read(one: Forecast) -> str:
    return (
        f"{one.access} ({100 * one.share:.3g} %): median {_seconds(one.p50_s)}, 95 % within"
        f" {_seconds(one.p95_s)}; {_number(one.n_requests)} requests, {_bytes(one.nbytes)}; reads"
        f" {_number(one.over_read)} times what is asked"
    )


def _write_loader(question: Question) -> str:
    loader = question.loader
    if loader is None:
        return ""
    box = math.fsum(
        share * math.prod(access.extent)
        for access, share in zip(question.accesses, question.shares, strict=True)
    )
    held = loader.workers * loader.prefetch * loader.batch * box * question.array.dtype.itemsize
    return (
        f", of {loader.workers} workers with batches of {loader.batch}; what they have ready"
        f" takes {_bytes(held)}"
    )


def write_code(answer: Answer) -> str:
    """Write the lines to paste for what is chosen."""
    question, best = answer.question, answer.best
    shape, dtype = question.array.shape, str(question.array.dtype)
    simple = {
        clients.DEFAULT_FILE: clients.read_default,
        clients.BLOCKS: clients.read_blocks,
        clients.WHOLE: lambda: clients.read_whole(best.in_flight),
        clients.REFERENCES: clients.read_references,
    }
    for client, write in simple.items():
        if best.client is client:
            first = f"{clients.rewrite_file(best.layouts[0].chunk_shape)}\n\n" if best.action == "rechunk" else ""  # fmt: skip
            return first + write()
    new = [layout for layout in best.layouts if layout != question.array.layout]
    names = {id(layout): f"copy-{i}" if len(new) > 1 else "new" for i, layout in enumerate(new, 1)}
    parts = [clients.write_array(shape, layout, dtype, names[id(layout)]) for layout in new]
    usual = max(zip(question.shares, question.accesses, strict=True), key=lambda pair: pair[0])[1]
    serving = next((i for i, who in enumerate(best.serves) if usual.name in who), 0)
    layout = best.layouts[serving]
    address = f"{clients.BUCKET}/{names.get(id(layout), 'array')}.zarr"
    selection = clients.select(usual.extent, shape)
    parts.append(clients.read_array(best.client, best.in_flight, selection, address))
    if question.loader:
        loader = question.loader
        boxes = clients.draw_boxes(usual.extent, loader.batch, loader.workers, loader.prefetch)
        parts.append(boxes)
    return "\n\n".join(parts)


def _write_array(question: Question) -> str:
    array = question.array
    shape = " x ".join(f"{n}" for n in array.shape)
    stored = array.nbytes * question.n_arrays / question.compression
    parts = [f"{array.variable}: {shape} {array.dtype}, {_bytes(stored)} stored"]
    if question.n_arrays > 1:
        parts[0] += f" in {question.n_arrays} such arrays"
    if array.layout:
        parts.append(_write_layout(array.layout, array.dtype.itemsize))
    if array.codec:
        parts.append(f"codec {array.codec}")
    if question.compression != 1:
        parts.append(f"compressed {question.compression:.3g} times")
    if len(array.names) > 1 and array.variable == array.names[0]:
        parts.append(
            f"the largest of {len(array.names)} arrays ({', '.join(array.names[1:4])} next)"
        )
    return "; ".join(parts)


def _write_layouts(question: Question, one: Choice) -> str:
    """Write the layout of each copy in full; of a file that stays, the way it is read."""
    if not one.layouts or (one.client.is_of_file and one.action in ("stay", "set")):
        return one.client.text
    texts = [_write_layout(layout, question.array.dtype.itemsize) for layout in one.layouts]
    if len(texts) > 1:
        texts = [f"{t} for {', '.join(names)}" for t, names in zip(texts, one.serves, strict=True)]
    return " and ".join(texts)


def _write_shapes(one: Choice) -> str:
    """Write the chunks of each copy alone, for a table."""
    if not one.layouts or (one.client.is_of_file and one.action in ("stay", "set")):
        return one.client.text
    parts = (
        f"{'x'.join(map(str, layout.chunk_shape))}{' in shards' if layout.shard_shape else ''}"
        for layout in one.layouts
    )
    return ", ".join(parts)


def _write_layout(layout: Layout, itemsize: int) -> str:
    text = f"chunks {_shape(layout.chunk_shape, itemsize)}"
    return (
        f"{text} in shards {_shape(layout.shard_shape, itemsize)}" if layout.shard_shape else text
    )


def _shape(shape: tuple[int, ...], itemsize: int) -> str:
    return f"{'x'.join(map(str, shape))} ({_bytes(math.prod(shape) * itemsize)})"


def _write_client(one: Choice) -> str:
    return f"{one.client.text}, {one.in_flight} in flight"


def _write_once(one: Choice) -> str:
    return (
        f"; writing it is {_usd(one.write_usd)} in requests, once" if one.write_usd >= 0.01 else ""
    )


def _align(rows: list[list[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.ljust(width) if i < 2 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


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

"""An answer on a screen, in twelve lines or with its reasons; as plain values; and as lines to paste."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

import yaml

from wire.decide.choices import Action, Answer, Choice
from wire.decide.layouts import Layout
from wire.decide.question import Question
from wire.errors import cut, format_size
from wire.hdf5.repacked import Repack
from wire.models import WORTH

_N_LINES = 12  # of a short answer
_LEAST_HOURS = 1 / 60  # of writing, below which nobody plans it
_ADVICE: dict[Action, str] = {
    "default": "Keep the defaults",
    "stay": "Stay, for nothing is 10 % faster",
    "set": "Set, and keep the bytes",
    "write": "Write one copy",
    "rechunk": "Rechunk into one copy",
    "copy": "Keep two copies",
}


def to_mapping(answer: Answer) -> dict[str, Any]:
    """Return plain values, for JSON: seconds, bytes and USD add up to the totals next to them."""
    question, array = answer.question, answer.question.array
    store, network = question.store, question.store.network
    rates = [network.stream_nbytes_per_s, network.aggregate_nbytes_per_s]
    stream, aggregate = (rate / 1e6 if rate < math.inf else None for rate in rates)
    facts = ("variable", "shape", "format", "codec", "nbytes")
    billing = question.billing
    return {
        "array": {
            **{name: getattr(array, name) for name in facts},
            "type": str(array.dtype),
            "compression": store.compression_ratio,
            "n_arrays": question.n_arrays,
            "chunk_shape": array.layout and array.layout.chunk_shape,
            "shard_shape": array.layout and array.layout.shard_shape,
        },
        "asked": {
            **question.options.model_dump(),
            "address": question.address,
            "accesses": [asdict(access) for access in question.pattern.accesses],
            "shares": question.shares,
        },
        "predicted_on": {
            "profile": question.options.profile,
            "first_byte_median_s": network.first_byte_median_s,
            "first_byte_p95_s": network.first_byte_p95_s,
            "stream_mb_per_s": stream,
            "aggregate_mb_per_s": aggregate,
            "in_flight": question.options.in_flight,
            "decode_mb_per_s": round(1e-6 / store.decode_s_per_nbyte, 6),
            "chunk_ms": 1000 * store.chunk_s,
            "compression": store.compression_ratio,
        },
        "prices": {
            "provider": billing.provider,
            "region": billing.region,
            "assumed": billing.assumed,
            "source": billing.prices and billing.prices.source,
            "items": billing.prices and dict(billing.prices.items),
            "unknown": billing.missing,
        },
        "answer": _list_values(answer, answer.best),
        "now": _list_values(answer, answer.now),
        "choices": [_list_values(answer, choice) for choice in answer.choices],
        "ties": [choice.label for choice in answer.ties],
    }


def _list_values(answer: Answer, choice: Choice) -> dict[str, Any]:
    question, options, itemsize = answer.question, answer.question.options, answer.question.array.dtype.itemsize  # fmt: skip
    values = {**asdict(choice), "client": choice.client.name}
    values["layouts"] = [
        {
            **asdict(layout),
            "chunk_nbytes": math.prod(layout.chunk_shape) * itemsize,
            "n_objects": layout.count_objects(question.array.shape),
            "serves": names,
        }
        for layout, names in zip(choice.layouts, values.pop("serves"), strict=False)  # a file may have none
    ]  # fmt: skip
    values |= {
        "seconds": choice.seconds,
        "usd_month_total": choice.usd,
        "gains": answer.gains(choice),
    }
    values["write_hours_at_least"] = _count_write_hours(question, choice)
    if options.batch and choice.samples_per_s:
        box = max(math.prod(access.extent) for access in question.pattern.accesses) * itemsize
        values["link_nbytes_per_s"] = choice.samples_per_s / options.batch * choice.mean("nbytes")
        values["ready_nbytes"] = options.workers * options.prefetch * options.batch * box
    if options.per_second:
        values["reads_at_once"] = options.per_second * choice.seconds
        values["requests_per_s"] = options.per_second * choice.mean("n_requests")
    return values


def _count_write_hours(question: Question, choice: Choice) -> float:
    """Compute the hours that writing takes one machine at its full bandwidth, without computing."""
    return choice.write_nbytes / question.store.network.aggregate_nbytes_per_s / 3600


def write_short(answer: Answer) -> Iterator[str]:  # numpydoc ignore=YD01
    """Write an answer in twelve lines."""
    question, best = answer.question, answer.best
    yield _write_array(question)
    over = "Nothing fits the budget; the cheapest: " * best.is_over_budget
    is_whole = [layout.chunk_shape for layout in best.layouts] == [question.array.shape]
    is_new = best.action in ("write", "rechunk")
    advice = "Store one chunk" if is_whole and is_new else _ADVICE[best.action]
    yield f"{over}{advice}: {_write_headline(answer)}."
    before = [
        "  "
        + _write_layout(layout, question)
        + f" for {', '.join(names)}" * (len(best.layouts) > 1)
        for layout, names in zip(best.layouts, best.serves, strict=False)
        if not _is_file_as_it_is(best)
    ]
    before += [effort] if (effort := write_effort(answer)) else []
    after = list(_write_notes(answer))
    yield from before
    is_priced, samples = question.prices is not None, ["samples/s"] if best.samples_per_s else []
    usd = ["USD/month"] if is_priced else ["stored"]
    rows = [["", "* chosen", *(read.access for read in best.reads), *samples, *usd, "speed-up"]]
    for choice in _pick(answer, _N_LINES - 3 - len(before) - len(after)):
        label = f"{choice.action}: {_write_shapes(choice)}{', over budget' * choice.is_over_budget}"
        times = [_seconds(read.p50_s) for read in choice.reads]
        rate = [_number(choice.samples_per_s)] if choice.samples_per_s else []
        cost = format_size(choice.stored_nbytes) if choice.usd is None else _number(choice.usd)
        row_cells = [*times, *rate, cost, _range(answer.gains(choice).values())]
        rows.append(["*" * (choice is best), label, *row_cells])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
        yield "  ".join([row[0].ljust(widths[0]), row[1].ljust(widths[1]), *cells[2:]])
    yield from after


def _write_notes(answer: Answer) -> Iterator[str]:
    """Write what follows the table: ties, settings that gain nothing, prices, and what it rests on."""
    question, best = answer.question, answer.best
    if answer.ties:
        others_text = " or ".join(
            f"{choice.action} ({_write_shapes(choice)})" for choice in answer.ties[:2]
        )
        yield f"A tie: {others_text} would do as well, within 10 %."
    settings = [
        choice for choice in answer.choices if choice.action == "set" and choice.samples_per_s
    ]
    if settings and all(max(answer.gains(choice).values()) < WORTH for choice in settings):
        limit = settings[0].samples_bound
        yield f"Changing only settings does not help here: the {limit} is the limit with and without."
    if conflict := describe_conflict(answer):
        yield conflict
    yield write_prices(question)
    yield f"Read by {best.client.text}, {best.in_flight} concurrent requests; {best.support}. More with --why."


def write_effort(answer: Answer) -> str:
    """Write what writing and appending take: hours at the full bandwidth, bytes rewritten each time."""
    question, best, parts = answer.question, answer.best, list[str]()
    if best.write_nbytes:
        hours = _count_write_hours(question, best)
        moved = format_size(best.write_nbytes)
        time = f", which takes at least {_hours(hours)}" * (hours > _LEAST_HOURS)
        parts.append(f"writing it moves {moved}{time}")
    if best.append_nbytes is not None and best.action != "stay":
        rewritten = f"rewrites up to {format_size(best.append_nbytes)} already stored of a variable"
        parts.append(
            f"each append {rewritten if best.append_nbytes else 'rewrites nothing stored'}"
        )
        if best.append_nbytes:
            n_appends = count_buffered_appends(question, best)
            parts.append(f"collected in a buffer and written {n_appends:,} at a time, none do")
    text = "; ".join(parts)
    return f"  {text[:1].upper()}{text[1:]}." if text else ""


def count_buffered_appends(question: Question, choice: Choice) -> int:
    """Count the appends that fill whole objects of each copy, so that none is rewritten."""
    assert question.pattern.append is not None
    axis, steps = question.pattern.append
    extents = [layout.object_shape[axis] for layout in choice.layouts]
    return math.lcm(steps, *extents) // steps


def describe_conflict(answer: Answer) -> str:
    """Describe a choice that serves the most frequent read better, where it is clearly faster."""
    best, reads = answer.best, answer.best.reads
    if len(reads) < 2 or best.samples_per_s:
        return ""
    place = max(range(len(reads)), key=lambda i: reads[i].share)
    is_first = all(read.share < reads[place].share for read in reads if read is not reads[place])
    candidates = [choice for choice in answer.choices if choice.action != "align"]
    fastest = min(candidates, key=lambda choice: choice.reads[place].p50_s)
    gain = reads[place].p50_s / fastest.reads[place].p50_s
    if not is_first or gain <= WORTH:
        return ""
    return (
        f"Your most frequent read, {reads[place].access}, is {_number(gain, 2)}x faster with"
        f" {fastest.action} ({_write_shapes(fastest)}); the choice weighs all reads and the bill."
    )


_REGIONS = {
    "same": "the reader is in the store's region, so no egress",
    "other": "the reader is in another region, so egress between regions counts",
    "outside": "the reader is outside, so egress counts",
    "unknown": "the reader's region is unknown",
}


def write_prices(question: Question) -> str:
    """Write whose prices count and where the reader is, or which prices are unknown."""
    billing = question.billing
    where, assumed = _REGIONS[billing.region], f" ({billing.assumed})" * bool(billing.assumed)
    if billing.prices:
        return f"Prices: {billing.prices.source}; {where}{assumed}."
    missing = " ".join(f"--price {item}=USD" for item in billing.missing)
    return (
        f"Prices are unknown (provider: {billing.provider}; {where}): bytes stored count instead of"
        f" dollars; or give {missing}."
    )


def _write_headline(answer: Answer) -> str:
    """Say how fast, and what it costs: next to what is there, never next to what nobody runs."""
    best, now = answer.best, answer.now
    is_there = now.action == "stay"
    bill = "" if best.bill is None else f", for {_number(best.bill)} USD a month"
    if best is now:
        return f"{_seconds(best.seconds)} a read{bill}"
    gains = answer.gains(best)
    slower = {name: gain for name, gain in gains.items() if gain * WORTH < 1}
    faster = {name: gain for name, gain in gains.items() if name not in slower}
    which = f"{' and '.join(faster)} " if slower else ""
    change = (
        f"{which}{_range(faster.values())}x faster than {'today' if is_there else 'by default'}"
    )
    if slower:
        change += ", but " + ", ".join(
            f"{k} {_number(1 / v, 2)}x slower" for k, v in slower.items()
        )
    if is_there and best.bill is not None and now.bill is not None:
        dearer = best.bill - now.bill
        bill = f", for {_number(abs(dearer))} USD a month {'more' if dearer >= 0 else 'less'}"
    return change + bill


def _range(gains: Iterable[float]) -> str:
    """Write the least and the most of some gains; the one number where these are alike."""
    ordered = sorted(gains)
    return " to ".join(dict.fromkeys(_number(gain, 2) for gain in (ordered[0], ordered[-1])))


def _pick(answer: Answer, n: int) -> list[Choice]:
    """Keep what is there, what is chosen, settings and aligned boxes, and the cheapest others that nothing beats."""
    is_loader = answer.question.options.batch is not None

    def place(choice: Choice) -> int:
        if choice in (answer.now, answer.best):
            return 0
        return 1 if is_loader and choice.action in ("set", "align") else 3 - choice.is_on_front

    shown = [choice for choice in sorted(answer.choices, key=place) if place(choice) < 3][:n]
    return [choice for choice in answer.choices if choice in shown]


def _write_array(question: Question) -> str:
    array, n, ratio = question.array, question.n_arrays, question.store.compression_ratio
    parts = [
        f"{cut(array.variable)}: {' x '.join(map(str, array.shape))} {cut(str(array.dtype))},"
        f" {format_size(question.stored_nbytes)} stored{f' in {n} such arrays' if n > 1 else ''}"
    ]
    parts += [_write_layout(array.layout, question)] if array.layout else []
    parts += [f"codec {cut(array.codec)}"] if array.codec else []
    parts += [f"compressed {ratio:.3g} times"] if ratio != 1 else []
    if len(array.names) > 1 and array.variable == array.names[0]:
        other_names = cut(", ".join(array.names[1:4]))
        parts.append(f"largest of {len(array.names)} arrays, before {other_names}")
    return "; ".join(parts)


def _is_file_as_it_is(choice: Choice) -> bool:
    return choice.client.method is not None and choice.action in ("stay", "set")


def _write_shapes(choice: Choice) -> str:
    """Write the chunks of each copy alone, for a table; of a file that stays, the way it is read."""
    if _is_file_as_it_is(choice):
        return choice.client.text
    return ", ".join(
        "x".join(map(str, layout.chunk_shape)) + " in shards" * bool(layout.shard_shape)
        for layout in choice.layouts
    )


def _write_layout(layout: Layout, question: Question) -> str:
    chunk, shard = (
        f"{'x'.join(map(str, s))} ({format_size(math.prod(s) * question.array.dtype.itemsize)})"
        for s in (layout.chunk_shape, layout.object_shape)
    )
    return f"chunks {chunk} in shards {shard}" if layout.shard_shape else f"chunks {chunk}"


def _seconds(value: float) -> str:
    return f"{1000 * value:.2g} ms" if value < 0.0995 else f"{_number(value, 2)} s"


def _hours(hours: float) -> str:
    """Write a duration of hours in the unit that reads best.

    Examples
    --------
    >>> _hours(0.1), _hours(30.2), _hours(400)
    ('6 minutes', '30 hours', '17 days')
    """
    for least, size, unit in ((48, 24, "days"), (1, 1, "hours")):
        if hours >= least:
            return f"{_number(hours / size, 2)} {unit}"
    return f"{_number(60 * hours, 2)} minutes"


def _number(value: float, digits: int = 3) -> str:
    """Write a number to some digits, without an exponent.

    Examples
    --------
    >>> _number(1234.5)
    '1,230'
    """
    return f"{float(f'{value:.{digits}g}'):,.15g}"


def write_why(answer: Answer) -> Iterator[str]:  # numpydoc ignore=YD01
    """Write every choice of the JSON answer, as YAML to three digits, and what to paste for the best."""
    text = json.dumps(to_mapping(answer))
    values = json.loads(text, parse_float=lambda number: float(f"{float(number):.3g}"))
    summary = {name: values[name] for name in ("predicted_on", "prices", "choices")}
    yield "\n" + yaml.safe_dump(summary, sort_keys=False, default_flow_style=None, width=100)
    if answer.question.prices:
        yield "A GB is billed as 2^30 bytes, before discounts for volume."
    if answer.question.options.per_second:
        yield "Caches of tiles and of opened datasets, and their bills: wire costs."
    if answer.question.array.format == "hdf5":
        yield "What its metadata cost, and how to repack it: wire hdf5 advise."
    recipes = [answer.best.client.recipe, "Load random boxes" * bool(answer.question.options.batch)]
    yield f"Recipes of the book: {', '.join(filter(None, recipes)) or 'none'}."
    if code := write_code(answer.question, answer.best):
        yield f"\n{code}"


BUCKET = "s3://BUCKET"
"""What stands for the reader's own where a dataset lies in none."""

_NEW = """\
import zarr
from obstore.store import from_url
from zarr.codecs import Crc32cCodec, ZstdCodec
from zarr.storage import ObjectStore

store = ObjectStore(from_url({address!r}))
array = zarr.open_group(store, zarr_format=3).create_array(
    {variable!r}, shape={shape}, dtype={dtype!r},
    chunks={layout.chunk_shape}, shards={layout.shard_shape},
    # crc32c catches flipped bytes, which are read as wrong values without it;
    # compressors=ZstdCodec(checksum=True) catches them too, in less time
    compressors=[ZstdCodec(), Crc32cCodec()],
    dimension_names={dimensions!r},
)
"""
_REPACK = """\
# needs h5repack: apt install hdf5-tools
import subprocess

subprocess.run({command!r}, check=True)"""
_PAGE_NBYTES = 8 * 2**20  # of a repacked file, as published advice has it


def write_code(question: Question, choice: Choice) -> str:
    """Write lines that make what is new, in Zarr or by h5repack, with what comes from a dataset in `repr`."""
    array, is_written = question.array, choice.action not in ("default", "set")
    scheme, _, place = question.address.rstrip("/").partition("://")
    folder, _, name = place.rpartition("/")
    is_known = scheme == "s3" and folder
    variable, code = array.variable if question.address else "field", list[str]()
    if question.address.rstrip("/").endswith(f"/{array.variable}") and not choice.client.method:
        variable = ""  # an array that is given by its own address has no name in a group
    for i, layout in enumerate(choice.layouts, start=1):
        if layout == array.layout or not is_written:
            continue
        if choice.client.method:
            repack = Repack(_PAGE_NBYTES, ((variable, layout.chunk_shape),))
            file = name if is_known else "granule.h5"
            code.append(_REPACK.format(command=["h5repack", *repack.list_arguments(), file, "new.h5"]))  # fmt: skip
            continue
        copy = f"copy-{i}.zarr" if len(choice.layouts) > 1 else "new.zarr"
        code.append(
            _NEW.format(
                address=f"{f'{scheme}://{folder}' if is_known else BUCKET}/{copy}",
                variable=variable,
                shape=array.shape,
                dtype=str(array.dtype),
                layout=layout,
                dimensions=list(array.dimensions) or [f"d{j}" for j in range(len(array.shape))],
            )
        )
    return "\n".join(code)

"""What drivers do, predicted by the engine of `wire hdf5 advise`: for these files, and larger ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pandas as pd

from helpers.plotting.tables import trace_of
from studies.hdf5_drivers.drivers import DRIVERS, VARIABLES
from studies.hdf5_drivers.files import THREE_VARIABLES, StoredFile
from studies.hdf5_drivers.findings import measured
from wire.bed.networks import Profile
from wire.hdf5.files import open_source
from wire.hdf5.inspection import FileLayout, record_reads
from wire.hdf5.prediction import choose_earthaccess, list_read_methods, predict_read
from wire.models.transfer import network_of


def record_library(
    stored: StoredFile, layout: str, names: Sequence[str] = THREE_VARIABLES
) -> FileLayout:
    """Note what the library asks for to open a layout and read variables, nothing in between.

    What decoding takes is estimated from their filters, as for any file.
    """
    with open_source(stored.locate(layout)) as file:
        file_layout = record_reads(file, layout, names, groups=())
    return replace(file_layout, references_nbytes=stored.references_nbytes[layout])


def enlarge(recorded: FileLayout, n: int) -> FileLayout:
    """Lengthen a file to `n` times: its chunks, with what lies between them, come again and again.

    What the library reads before the first chunk of a variable it reads once.
    """
    shifts = [copy * recorded.file_nbytes for copy in range(n)]
    lengthened = []
    for reads in recorded.read:
        first = next(place for place, read in enumerate(reads) if not read.is_metadata)
        repeated = (
            read._replace(offset=read.offset + shift) for shift in shifts for read in reads[first:]
        )
        lengthened.append((*reads[:first], *repeated))
    return replace(
        recorded,
        read=tuple(lengthened),
        file_nbytes=n * recorded.file_nbytes,
        references_nbytes=n * recorded.references_nbytes,
        decode_s=n * recorded.decode_s,
    )


def predict_all(
    reads: Iterable[str],
    recorded: Mapping[str, FileLayout],
    profile: Profile,
    *,
    dilation: float = 1.0,
) -> pd.DataFrame:
    """Predict each "driver on layout": a row each; `dilation` is that of the network."""
    lines = []
    for name in reads:
        driver, _, layout = name.partition(" on ")
        method = DRIVERS[driver].method
        if driver == "earthaccess":  # by the length of the file
            method = choose_earthaccess(recorded[layout].file_nbytes)
        prediction = predict_read(method, recorded[layout], network_of(profile), dilation=dilation)
        gb, mb = recorded[layout].file_nbytes / 1e9, prediction.nbytes / 1e6
        lines.append((driver, layout, gb, prediction.seconds, prediction.n_requests, mb))
    columns = ["driver", "layout", "file_gb", "predicted_s", "requests_predicted", "predicted_mb"]
    return pd.DataFrame(lines, columns=columns)


def predict_others(recorded: FileLayout, profile: Profile) -> pd.DataFrame:
    """Predict a way that is not measured: references with more requests in flight."""
    ways = [
        candidate
        for candidate in list_read_methods(recorded)
        if candidate.name == "references, 64 in flight"
    ]
    predicted = [predict_read(reading, recorded, network_of(profile)) for reading in ways]
    lines = [
        (prediction.method.name, prediction.seconds, prediction.n_requests, prediction.nbytes / 1e6)
        for prediction in predicted
    ]
    columns = ["way", "predicted_s", "requests_predicted", "predicted_mb"]
    return pd.DataFrame(lines, columns=columns).set_index("way")


def predict_larger(
    reads: Sequence[str],
    recorded: Mapping[str, FileLayout],
    profile: Profile,
    n_times: Iterable[int],
) -> pd.DataFrame:
    """Predict files so many times as long, of which as large a share is asked for."""
    tables = []
    for n in n_times:
        longer = {layout: enlarge(file_layout, n) for layout, file_layout in recorded.items()}
        predicted = predict_all(reads, longer, profile)
        # a repack is a little shorter: all are told apart by the file as it was written
        gb = longer["original"].file_nbytes / 1e9
        tables.append(predicted.assign(times=n, file_gb=gb))
    return pd.concat(tables, ignore_index=True)


def compare_predicted(rows: pd.DataFrame, predicted: pd.DataFrame) -> pd.DataFrame:
    """Put the measured medians next to what `predict_all` has; `error` is that of the time."""
    part = measured(rows)
    part = part[part["task"] == VARIABLES]
    trace = trace_of(part)
    part = part.assign(
        driver=part["contender"],
        measured_s=part["total_s"],
        requests_measured=trace["all_requests"],
        measured_mb=trace["all_nbytes"] / 1e6,
    )
    names = ["measured_s", "requests_measured", "measured_mb"]
    medians = part.groupby(["driver", "layout"], sort=False)[names].median().reset_index()
    both = predicted.merge(medians, on=["driver", "layout"])
    return both.assign(error=both["predicted_s"] / both["measured_s"] - 1)

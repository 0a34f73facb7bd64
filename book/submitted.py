"""Records of others: the folder that is sent, and what it has to hold to be shown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import pandas as pd

from book.cases import find_case
from book.pages import escape
from helpers.benchmark.record import read_records
from helpers.errors import UserError, copy_redacted
from helpers.findings import SUFFIX as FINDINGS
from helpers.findings import read_findings
from helpers.paths import ROOT, check_name

FOLDER = ROOT / "results" / "submitted"
DIGESTS = "sha256.json"
SUFFIXES = (".csv", ".runs.json", FINDINGS)


def submit(name: str, titles: Sequence[str], site: str, *, folder: Path = FOLDER) -> Path:
    """Copy records of a site, without credentials, to the folder that its measurer sends; return it.

    Each is in the state in which it was measured: what is not committed is refused.
    """
    into, digests = folder / check_name(name), {}
    cases = [find_case(title, site) for title in titles]
    if not cases:
        raise UserError("wire submit: no case; allowed: at least one that you measured")
    for case in cases:
        record = case.result(".csv")
        if not record.exists():
            raise UserError(f"{case.title}: no record; allowed: after wire run {case.title}")
        if read_records([record])["is_dirty"].any():
            raise UserError(f"{case.title}: measured with sources that are in no commit; allowed: a record of a clean checkout")  # fmt: skip
    for case in cases:
        for suffix in SUFFIXES:
            if (source := case.result(suffix)).exists():
                target = into / f"{case.title}{suffix}"
                target.parent.mkdir(parents=True, exist_ok=True)
                copy_redacted(source, target)
    for path in sorted(path for path in into.rglob("*") if path.is_file() and path.name != DIGESTS):
        digests[path.relative_to(into).as_posix()] = sha256(path.read_bytes()).hexdigest()
    (into / DIGESTS).write_text(json.dumps(digests, indent=1) + "\n", encoding="utf-8")
    return into


def check(into: Path) -> None:
    """Refuse a folder that holds something else than the files it names, or rows that are none."""
    try:
        known = dict(json.loads((into / DIGESTS).read_bytes()))
    except (OSError, TypeError, ValueError) as error:
        raise UserError(f"{into.name}: no {DIGESTS}; allowed: what wire submit writes") from error
    there = {path.relative_to(into).as_posix() for path in into.rglob("*") if path.is_file()}
    if odd := sorted(there ^ {*known, DIGESTS}):
        raise UserError(f"{into.name}: {odd[0]} is not as {DIGESTS} has it; allowed: its files")
    for name, digest in known.items():
        if sha256((into / name).read_bytes()).hexdigest() != digest:
            raise UserError(f"{into.name}: {name} was changed; allowed: what wire submit writes")
        if name.endswith(FINDINGS):
            read_findings(into / name)
        elif name.endswith(".csv"):
            read_records([into / name])


def tabulate(folder: Path = FOLDER) -> pd.DataFrame:
    """Tabulate the records of others, with machine and store."""
    columns, lines = ["by", "case", "machine", "store", "measured", "commit"], []
    for into in sorted(path for path in folder.glob("*") if path.is_dir()):
        check(into)
        for path in sorted(into.rglob("*.csv")):
            if path.name.endswith(FINDINGS):
                continue
            last = read_records([path]).iloc[-1]
            machine, asked = (json.loads(last[name]) for name in ("machine", "parameters"))
            told = (
                path.relative_to(into).with_suffix("").as_posix(),
                f"{machine.get('cpu', 'unknown')}, {machine.get('n_cores', '?')} cores",
                asked.get("store", "embedded"),
                str(last["started_utc"])[:10],
                str(last["commit"])[:7],
            )
            lines.append([escape(into.name), *map(escape, told)])
    return pd.DataFrame(lines, columns=columns)

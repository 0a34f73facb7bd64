"""Records of others: the folder that is sent, and what it has to hold to be shown."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import pandas as pd

from helpers.again import SUBMITTER, read_author
from helpers.benchmark.record import read_records
from helpers.findings import SUFFIX as FINDINGS
from helpers.findings import read_findings
from helpers.parameters import write_table
from helpers.paths import ROOT
from runner.cases import find_case
from runner.pages import escape
from wire.errors import UserError, copy_redacted, cut, redact
from wire.files import check_name
from wire.untrusted import UntrustedFolder

FOLDER = ROOT / "results" / "submitted"
DIGESTS = "sha256.json"
SUFFIXES = (".csv", ".runs.json", FINDINGS)
COLUMNS = ["by", "case", "machine", "store", "measured", "commit"]


@dataclass(frozen=True, slots=True)
class Submissions:
    """Records that were sent, in the lines of a table, and the folders that are left out."""

    lines: Sequence[tuple[str, ...]]  # in the order of `COLUMNS`
    left_out: Sequence[str]  # each with its reason


def submit(
    name: str, titles: Sequence[str], site: str, *, measurer: str = "", folder: Path = FOLDER
) -> Path:
    """Copy records of a site, without credentials, to the folder that its measurer sends; return it.

    Each is in the state in which it was measured: what is not committed is refused. `measurer` is who
    measured, by default the name of the folder.
    """
    into = folder / check_name(name)
    cases = [find_case(title, site) for title in titles]
    if not cases:
        raise UserError("wire submit", "no case", "at least one that you measured")
    for case in cases:
        record = case.result(".csv")
        if not record.exists():
            raise UserError(case.title, "no record", f"after wire run {case.title}")
        if read_records([record])["is_dirty"].any():
            raise UserError(case.title, "measured with sources that are in no commit", "a record of a clean checkout")  # fmt: skip
    for case in cases:
        for suffix in SUFFIXES:
            if (source := case.result(suffix)).exists():
                target = into / f"{case.title}{suffix}"
                target.parent.mkdir(parents=True, exist_ok=True)
                copy_redacted(source, target)
    (into / SUBMITTER).write_text(json.dumps({"by": measurer or name}) + "\n", encoding="utf-8")
    write_digests(into)
    return into


def write_digests(into: Path) -> None:
    """Write the digest of each file of a folder into it."""
    files = [path for path in into.rglob("*") if path.is_file() and path.name != DIGESTS]
    digests = {
        path.relative_to(into).as_posix(): sha256(path.read_bytes()).hexdigest()
        for path in sorted(files)
    }
    (into / DIGESTS).write_text(json.dumps(digests, indent=1) + "\n", encoding="utf-8")


def check(into: Path) -> list[tuple[str, ...]]:
    """Read the records of a folder that a stranger may have filled, as lines of the table.

    Refused is a folder that holds something else than the files it names, or rows that are none.
    """
    folder = UntrustedFolder(into, cut(into.name))
    if into.is_symlink():
        raise folder.refuse("it is a link", "a folder")
    names = folder.list_files()
    if DIGESTS not in names:
        raise folder.refuse(f"no {DIGESTS}", "what wire submit writes")
    digests = folder.read_json(DIGESTS)
    if not isinstance(digests, dict):
        raise folder.refuse(f"{DIGESTS} names no files", "what wire submit writes")
    if odd := sorted({*names} ^ {*digests, DIGESTS}):
        raise folder.refuse(f"{cut(odd[0])} is not as {DIGESTS} has it", "its files")
    for name, digest in digests.items():
        if sha256(folder.read_bytes(name)).hexdigest() != digest:
            raise folder.refuse(f"{cut(name)} was changed", "what wire submit writes")
        if name != SUBMITTER and not name.endswith(SUFFIXES):
            raise folder.refuse(f"{cut(name)} is no file of a record", ", ".join(SUFFIXES))
    about = folder.read_json(SUBMITTER) if SUBMITTER in names else {}
    measurer = str(about.get("by") or into.name) if isinstance(about, dict) else into.name
    try:
        return [(measurer, *line) for line in _read_lines(folder, names)]
    except UserError as error:
        raise error.within(folder.label) from error
    except Exception as error:  # whatever rows of a stranger make a library say
        problem = f"its rows cannot be read ({type(error).__name__})"
        raise folder.refuse(problem, "what wire submit writes") from error


def _read_lines(folder: UntrustedFolder, names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Read each record of a folder, whose files are known to be regular and small."""
    for name in names:
        if name.endswith(".json"):
            folder.read_json(name)  # refuses what is nested too deep
    for name in names:
        if name.endswith(FINDINGS):
            read_findings(folder.folder / name)
        if not name.endswith(".csv") or name.endswith(FINDINGS):
            continue
        rows = read_records([folder.folder / name])
        if rows.empty:
            raise folder.refuse(f"{cut(name)} holds no row", "a record with at least one")
        yield name.removesuffix(".csv"), *_describe(rows.iloc[-1])


def _describe(row: pd.Series[Any]) -> tuple[str, ...]:
    """Describe machine, store, day and commit of a row."""
    machine, parameters = (json.loads(row[name]) for name in ("machine", "parameters"))
    return (
        f"{machine.get('cpu', 'unknown')}, {machine.get('n_cores', '?')} cores",
        str(parameters.get("store", "embedded")),
        str(row["started_utc"])[:10],
        str(row["commit"])[:7],
    )


def read_all(folder: Path = FOLDER) -> Submissions:
    """Read all folders that were sent; one that is refused is left out, and the others are not."""
    lines, left_out = list[tuple[str, ...]](), []
    for into in sorted(path for path in folder.glob("*") if path.is_dir()):
        try:
            lines += check(into)
        except UserError as error:
            left_out.append(str(error))
    return Submissions(lines, left_out)


def render(sent: Submissions, *, is_own: bool) -> str:
    """Write the table of the records that the makers of the book submitted, or of those of others."""
    author = read_author()
    lines = [line for line in sent.lines if (line[0] == author) == is_own]
    text = "Nobody has sent one yet.\n"
    if lines:
        cells = [[escape(cut(redact(cell))) for cell in line] for line in lines]
        text = write_table(COLUMNS, cells)
    notes = [] if is_own else [f"Left out: {escape(reason)}." for reason in sent.left_out]
    return "\n\n".join([text, *notes]) + "\n"

"""Issues that a weekly check opens: one for each jump, and one for each package that it could not check.

``python -m wire.ledger.issues`` reads what ``wire ledger check --json`` printed, the log of that
run, and what ``gh issue list`` printed. It writes a title and a body for each new issue. It and `wire.errors` import the standard library alone: where it runs
is a token that may open issues, so nothing is installed there. The report is that of a machine
that ran packages released today, and is trusted no more than they are.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wire.errors import say

MOST_ISSUES = 20
"""Issues that one week opens at most; what is left out is there next week too."""
COULD_NOT_RUN = "The weekly check of the ledger could not run"
_MOST_TITLE, _MOST_BODY = 200, 20_000  # characters; GitHub allows 256 and 65536
_COUNTS = {"n_requests": "requests", "wire_nbytes": "bytes", "n_waits": "requests in a chain"}


@dataclass(frozen=True)
class Issue:
    """An issue to open."""

    title: str
    body: str
    is_final: bool = True  # whether it stays known once it is closed


def list_issues(report: Mapping[str, Any]) -> list[Issue]:
    """List an issue for each access that requests more or reads wrong values, and each package not checked."""
    issues = list[Issue]()
    for result in report["results"]:
        accesses = dict[tuple[str, str, str], list[Any]]()
        for entry in result["differences"]:
            key = entry["client"], entry["layout"], entry["access"]
            accesses.setdefault(key, []).append(entry)
        for (client, layout, access), entries in accesses.items():
            if any(entry["is_more"] for entry in entries):
                title = f"{client}: {access} of {layout} requests more with {result['candidate']}"
                issues.append(Issue(title, describe_counts(result, entries)))
        issues += [
            Issue(
                f"{failure['client']}: {failure['access']} of {failure['layout']} "
                f"reads wrong values with {result['candidate']}",
                f"{failure['reason']}\n\n{describe_packages(result)}",
            )
            for failure in result["wrong"]
            if failure["environment"] == "candidate"
        ]
        if failures := list_new_failures(result):
            reasons = "\n".join(
                f"{failure['client']}, {failure['access']} of {failure['layout']}: "
                f"{failure['reason']}"
                for failure in failures
            )
            title = f"The ledger could not check {result['package']}"
            issues.append(Issue(title, f"{reasons}\n\n{describe_packages(result)}", is_final=False))
    return issues


def list_new_failures(result: Mapping[str, Any]) -> list[Any]:
    """List the failures of the candidate alone, and all of them where nothing could be compared."""
    absent = result["absent"]
    if not result["n_compared"]:
        return list(absent) or [
            {"client": "none", "access": "none", "layout": "none", "reason": "nothing was measured"}
        ]
    places = ("client", "layout", "access")
    before = {
        tuple(failure[name] for name in places)
        for failure in absent
        if failure["environment"] != "candidate"
    }
    return [
        failure
        for failure in absent
        if failure["environment"] == "candidate"
        and tuple(failure[name] for name in places) not in before
    ]


def describe_counts(result: Mapping[str, Any], entries: Sequence[Mapping[str, Any]]) -> str:
    """Describe what an access requests with the last release and with the candidate."""
    lines = [
        f"{_COUNTS.get(entry['count'], entry['count'])}: {entry['before']:,.0f} with the last "
        f"release, {entry['after']:,.0f} now"
        for entry in entries
    ]
    clients = " ".join(dict.fromkeys(f"--client {entry['client']}" for entry in entries))
    candidate = result["candidate"].replace(" ", "==")
    command = f'to see it: wire ledger check --with "{candidate}" {clients}'
    return "\n".join([*lines, "", describe_packages(result), "", command])


def describe_packages(result: Mapping[str, Any]) -> str:
    """Describe which versions were compared."""
    return (
        f"last release: {result['last_packages'] or 'nothing ran'}\n"
        f"candidate:    {result['candidate_packages'] or 'nothing ran'}"
    )


def choose_new(issues: Iterable[Issue], existing: Sequence[Mapping[str, str]]) -> list[Issue]:
    """Choose the issues whose title no issue has.

    A jump that was closed stays known: somebody has judged that release. What could not run is
    known as long as its issue is open.
    """
    titles = {entry["title"] for entry in existing}
    titles_of_open = {entry["title"] for entry in existing if entry["state"].upper() == "OPEN"}
    chosen = dict[str, Issue]()
    for issue in issues:
        if issue.title not in (titles if issue.is_final else titles_of_open):
            chosen.setdefault(issue.title, issue)
    return [*chosen.values()]


def clean(issue: Issue) -> Issue:
    """Make a title one short line of printable characters, and a body that is text alone and no mark-up."""
    line = "".join(character if character.isprintable() else " " for character in issue.title)
    title = " ".join(line.split())[:_MOST_TITLE]
    text = issue.body.replace("\0", "")
    text = text if len(text) <= _MOST_BODY else text[-_MOST_BODY:]
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return Issue(title, f"{fence}text\n{text}\n{fence}\n", issue.is_final)


def read_plain(path: Path) -> str:
    """Read a file that is no link: a link could lead to any file of this machine."""
    if path.is_symlink():
        raise ValueError(f"{path} is a link")
    return path.read_text("utf-8", "replace")


def read_issues(report: Path, log: Path) -> list[Issue]:
    """Read a report and list its issues; without a report there is one, with the end of the log."""
    try:
        return list_issues(json.loads(read_plain(report)))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        end = read_plain(log) if log.is_file() else ""
        reason = end.strip() or f"no report and no log: {type(error).__name__}: {error}"
        return [Issue(COULD_NOT_RUN, reason, is_final=False)]


def write_issues(issues: Sequence[Issue], folder: Path) -> None:
    """Write a title and a body for each issue, as `gh issue create` takes them."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, issue in enumerate(issues):
        (folder / f"{number:02d}.title").write_text(issue.title, "utf-8")
        (folder / f"{number:02d}.md").write_text(issue.body, "utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the new issues of reports, and print their titles."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "reports", nargs="+", type=Path, help="what `wire ledger check --json` printed"
    )
    parser.add_argument("--log", type=Path, required=True, help="what the check wrote beside that")
    parser.add_argument(
        "--existing",
        type=Path,
        required=True,
        help="`gh issue list --state all --json title,state`",
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for titles and bodies")
    options = parser.parse_args(arguments)
    issues = [issue for path in options.reports for issue in read_issues(path, options.log)]
    existing = json.loads(options.existing.read_text("utf-8"))
    chosen = choose_new(map(clean, issues), existing)
    for number, issue in enumerate(chosen):
        say(f"{'new' if number < MOST_ISSUES else 'left for next week'}: {issue.title}")
    write_issues(chosen[:MOST_ISSUES], options.out)


if __name__ == "__main__":
    main()

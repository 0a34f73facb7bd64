"""Look for known holes and for licences in what is locked.

What it finds ends it with exit code 1. An index that does not answer does not: that is printed.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TOOLS = ROOT / ".cache" / "audit" / "bin"
REPORT = ROOT / "_build" / "audit.json"

# What could not be passed on under the licence of this project.
COPYLEFT = re.compile(r"(?<![A-Za-z])A?GPL|GNU (?:Affero )?General Public")
# Packages under such a licence that stay, and why.
ACCEPTED = {
    "codespell": "a tool for those who write here; nothing imports it",
    "docutils": "public domain and BSD, but for a mode of Emacs that lies beside it",
}
# Holes that are known here and do no harm, and why.
HARMLESS: dict[str, str] = {}

_OFFLINE = re.compile(r"ConnectionError|NameResolution|Max retries|timed out|Timeout", re.I)


def find_holes() -> tuple[list[str], str]:
    """Ask an index for the known holes of every locked package; return the problems and a summary."""
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.unlink(missing_ok=True)
    options = ["--require-hashes", "--disable-pip", "--progress-spinner", "off"]
    options += ["--format", "json", "--output", str(REPORT)]
    completed = subprocess.run(
        [TOOLS / "pip-audit", "--requirement", "requirements.lock", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if not REPORT.exists():
        last_line = (completed.stderr.strip() or "no message").splitlines()[-1][:120]
        if not _OFFLINE.search(completed.stderr):
            return [f"pip-audit failed: {last_line}"], "not known, as pip-audit failed"
        return [], f"not known, as no index answered ({last_line})"
    packages = json.loads(REPORT.read_text())["dependencies"]
    holes = [
        f"{package['name']} {package.get('version')}: {hole['id']}, mended in {', '.join(hole['fix_versions']) or 'no version'}"
        for package in packages
        for hole in package.get("vulns", [])
        if hole["id"] not in HARMLESS
    ]
    n_unlisted = sum("skip_reason" in package for package in packages)
    summary = [f"{len(holes)} known"] if n_unlisted < len(packages) else []
    if n_unlisted:
        text = (
            f"not known for {n_unlisted} of {len(packages)} packages, which the index does not list"
        )
        summary.append(text)
    return holes, ", ".join(summary)


def find_licences() -> list[str]:
    """List installed packages that could not be passed on with this project."""
    command = [TOOLS / "pip-licenses", "--python", sys.executable, "--from", "mixed"]
    completed = subprocess.run(
        [*command, "--format", "json"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [
        f"{package['Name']} {package['Version']}: licence {package['License'][:80]!r}"
        for package in json.loads(completed.stdout)
        if COPYLEFT.search(package["License"]) and package["Name"].lower() not in ACCEPTED
    ]


def main() -> None:
    """Print each problem and what was not asked; exit with 1 if there is a problem."""
    if not (TOOLS / "pip-audit").exists():
        print("audit: left out, its tools are not there and could not be fetched")
        return
    holes, summary = find_holes()
    licences = find_licences()
    for problem in [*holes, *licences]:
        print(problem)
    print(f"holes: {summary}; licences that bind all: {len(licences)}")
    sys.exit(bool(holes or licences))


if __name__ == "__main__":
    main()

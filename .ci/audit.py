"""Look for known holes and for licences in what is locked.

What it finds ends it with exit code 1. A network that is not there does not: it is said.
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


def find_holes() -> list[str]:
    """Ask for the known holes of every locked package."""
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.unlink(missing_ok=True)
    options = ["--require-hashes", "--disable-pip", "--progress-spinner", "off"]
    options += ["--format", "json", "--output", str(REPORT)]
    asked = subprocess.run(
        [TOOLS / "pip-audit", "--requirement", "requirements.lock", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if not REPORT.exists():
        last = (asked.stderr.strip() or "no message").splitlines()[-1]
        if not _OFFLINE.search(asked.stderr):
            return [f"pip-audit failed: {last}"]
        print(f"holes: not asked for, without a network ({last[:120]})")
        return []
    found = json.loads(REPORT.read_text())["dependencies"]
    skipped = [one["name"] for one in found if "skip_reason" in one]
    if skipped:
        print(f"holes: the index here knows nothing of {len(skipped)} of {len(found)} packages")
    return [
        f"{one['name']} {one.get('version')}: {hole['id']}, mended in {', '.join(hole['fix_versions']) or 'no version'}"
        for one in found
        for hole in one.get("vulns", [])
        if hole["id"] not in HARMLESS
    ]


def find_licences() -> list[str]:
    """List installed packages that could not be passed on with this project."""
    command = [TOOLS / "pip-licenses", "--python", sys.executable, "--from", "mixed"]
    told = subprocess.run(
        [*command, "--format", "json"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    packages = json.loads(told.stdout)
    return [
        f"{one['Name']} {one['Version']}: licence {one['License'][:80]!r}"
        for one in packages
        if COPYLEFT.search(one["License"]) and one["Name"].lower() not in ACCEPTED
    ]


def main() -> None:
    """Print what was found, and end with it if it is anything."""
    if not (TOOLS / "pip-audit").exists():
        print("audit: left out, its tools are not there and could not be fetched")
        return
    found = [*find_holes(), *find_licences()]
    print("\n".join(found) or "audit: nothing found")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()

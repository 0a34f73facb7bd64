"""No password leaves the process, however it is written and wherever it goes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.benchmark.provenance import Provenance
from helpers.benchmark.record import Record, RecordError
from helpers.book import build, run
from helpers.book.cases import Case
from helpers.errors import UserError
from helpers.objectstore.locations import parse_location
from helpers.paths import ROOT
from helpers.redaction import copy_redacted, find_secrets, redact, redact_tree
from tests.helpers.book.test_build import make_project, make_results, stage_cases
from tests.rows import make_row

CANARY = "hunter-2-canary"
PLAIN = quote(CANARY, safe="")

# each form of an address that holds the canary
ADDRESSES = [
    f"redis://:{CANARY}@host:6379/0",
    f"redis://user:{CANARY}@host",
    f"redis://user:sla/sh/{CANARY}@host",
    f"redis://user:{CANARY}/sla@sh@host",
    f"redis://{CANARY}@host",
    f"redis://host:6379?password={CANARY}",
    f"redis://host/0?db=1&PASSWORD={CANARY}&x=1",
    f"redis://host/0?access_token={CANARY}",
    f"redis://user:%68%75{quote(CANARY[2:])}@host",
    f"https://host/key?X-Amz-Algorithm=A&X-Amz-Credential={CANARY}%2Fs3&X-Amz-Signature={CANARY}",
    f"https://host/key?X-Amz-Security-Token={CANARY}",
    f"https://host/key?sp=r&sig={CANARY}",
]
# the canary and the encoded forms under which it is searched for
SIGHTS = re.compile("hunter-2-canary|%68%75nter-2-canary", re.IGNORECASE)


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize(
    "shown",
    [
        "{}",
        "cannot reach '{}', try again",
        '{{"store": "{}"}}',
        "<a href='{}'>",
        "tried {} twice",
    ],
)
def test_addresses_lose_their_credentials(address: str, shown: str) -> None:
    """In whatever text an address stands, nothing of its credentials stays, and its host does."""
    clean = redact(shown.format(address))
    assert not SIGHTS.search(clean)
    assert "host" in clean and clean.startswith(shown[:1].replace("{", clean[:1]))
    assert redact(clean) == clean
    assert not SIGHTS.search(redact(shown.format(quote(address, safe=""))))


@pytest.mark.parametrize("address", [a for a in ADDRESSES if "sla" not in a])
def test_secrets_of_addresses_are_known_elsewhere(address: str) -> None:
    """A secret of a parameter is blacked out where no address is around it."""
    secrets = find_secrets({"redis_url": [address]})
    text = f"login of {CANARY} failed; %2568unter-2-canary; {json.dumps({'x': CANARY})}"
    assert redact(text, secrets).count("***") == 3


@pytest.mark.parametrize(
    "text",
    [
        "store: only one of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY is set",
        "http://127.0.0.1:8080/bucket/key",
        "https://cdn.example.org/npm/vega@5",
        "s3://bucket/prefix; allowed: s3://BUCKET/PREFIX",
        "someone@example.org, see https://example.org/?page=2&n=3#top",
        "tls://127.0.0.1:40123 has 2 workers",
    ],
)
def test_other_text_is_kept(text: str) -> None:
    """What is no credential stays: a page that is blacked out says nothing."""
    assert redact(text, ("", "1", "true", "none")) == text


@given(st.text(min_size=8, max_size=20), st.sampled_from(["raw", "quoted", "json", "lower"]))
def test_a_known_secret_is_found_in_any_writing(secret: str, writing: str) -> None:
    """Raw, percent-encoded in either case, or escaped for JSON."""
    secret = secret.encode("utf-8", "ignore").decode()
    if len(secret.strip()) < 8:
        return
    quoted = quote(secret, safe="")
    lower = re.sub(r"%[0-9A-F]{2}", lambda found: found[0].lower(), quoted)
    forms = {"raw": secret, "quoted": quoted, "json": json.dumps(secret)[1:-1], "lower": lower}
    assert redact(f"< {forms[writing]} >", (secret,)) == "< *** >"


def test_variables_of_the_environment_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Secrets are told by the names of variables, and by addresses in any; paths are none."""
    monkeypatch.setenv("MY_SERVICE_TOKEN", "abcd-efgh-1234")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://user:wo/rd-5678@127.0.0.1:9000")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "/var/run/token")
    assert redact("abcd-efgh-1234 wo%2Frd-5678 /var/run/token") == "*** *** /var/run/token"


def test_errors_and_locations_show_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """The line that a user reads is clean where it is made, and a location knows its endpoint's."""
    with pytest.raises(UserError) as caught:
        raise UserError(f"redis_url: {ADDRESSES[0]}; allowed: others")
    assert str(caught.value) == "redis_url: redis://***@host:6379/0; allowed: others"
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://user:{CANARY}@127.0.0.1:9")
    location = parse_location("s3://bucket/x")
    assert CANARY in location.secrets
    with pytest.raises(UserError) as caught:
        location.check()
    assert not SIGHTS.search(str(caught.value))
    assert not SIGHTS.search(repr(location))


@pytest.mark.parametrize("address", ADDRESSES)
def test_records_hold_redacted_parameters(tmp_path: Path, address: str) -> None:
    """Parameters are kept without their credentials; a row that shows one is refused."""
    origin = Provenance({}, {}, {"seed": 1, "redis_url": address})
    path = tmp_path / "case.csv"
    record = Record(path, study="study", case="case", provenance=origin)
    record.append(
        [
            make_row(
                machine={},
                versions={},
                parameters=origin.parameters,
                fingerprint=origin.fingerprint,
            )
        ]
    )
    assert not SIGHTS.search(path.read_text()) and "host" in path.read_text()
    with pytest.raises(RecordError, match="check: shows a credential"):
        record.append([make_row(block=1, versions={}, check=address)])


NOTEBOOK = """
import json, pathlib, sys
from helpers.benchmark.provenance import Provenance
from helpers.benchmark.record import Record
from tests.rows import make_row
origin = Provenance({}, {}, {"seed": seed, "redis_url": redis_url})
made = Record(pathlib.Path(record), study="study", case="one", provenance=origin)
made.append([make_row(machine={}, versions={}, parameters=origin.parameters, fingerprint=origin.fingerprint, block=b, is_dirty=False) for b in range(5)])
print("at", redis_url)
print("login", redis_url.replace(":", " "), file=sys.stderr)
assert seed != 13, "no login at " + redis_url
redis_url
"""


def make_case(root: Path, address: str, *, seed: int = 2) -> Case:
    """Make a project of one case whose parameter holds a secret, as plainly as a notebook can."""
    lines = 'seed: int = 1\nredis_url: str = ""\nrecord: str = "x.csv"'
    cells = [
        nbformat.v4.new_code_cell(lines, metadata={"tags": ["parameters"]}),
        nbformat.v4.new_code_cell(f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{NOTEBOOK}"),
    ]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    case = Case("laptop", "study", "one", root)
    for path in (case.source, case.parameter_file):
        path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), case.source)
    case.parameter_file.write_text(f"seed: {seed}\nredis_url: {json.dumps(address)}\n")
    return case


def search_all(folder: Path) -> list[str]:
    """Name the files below a folder in which the canary stands."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    return [path.name for path in files if SIGHTS.search(path.read_text("utf-8", "replace"))]


@pytest.mark.usefixtures("made_study")
@pytest.mark.parametrize("seed", [2, 13], ids=["done", "failed"])
@pytest.mark.parametrize("address", [ADDRESSES[0], ADDRESSES[2], ADDRESSES[8], ADDRESSES[6]])
def test_a_run_writes_no_password(tmp_path: Path, address: str, seed: int) -> None:
    """Record, notebook done or failed, fingerprint and the lines of the terminal: none shows it."""
    case, said = make_case(tmp_path, address, seed=seed), list[str]()
    outcomes = run.run_cases([case], said.append)
    assert outcomes[0].state == ("done" if seed == 2 else "failed"), outcomes[0].text
    said += [*run.summarise(outcomes), *run.explain_failures(outcomes), repr(outcomes)]
    assert not SIGHTS.search("\n".join(said))
    assert search_all(tmp_path / "results") == []
    suffix = ".ipynb" if seed == 2 else ".failed.ipynb"
    assert "***" in case.result(suffix).read_text() and "host" in case.result(".csv").read_text()


@pytest.mark.usefixtures("made_study")
def test_a_refused_case_shows_no_password(tmp_path: Path) -> None:
    """A parameter that is refused is named by its value, without what is secret in it."""
    case = make_case(tmp_path, ADDRESSES[0])
    case.parameter_file.write_text(f"n_blocks: '{ADDRESSES[2]}'\n")
    outcome = run.run_case(case, print)
    assert outcome.state == "refused" and not SIGHTS.search(outcome.text)


def plant(notebook: Path) -> None:
    """Put an address into a notebook and its record, as older versions of this project left it.

    Those kept no digest of the rows either.
    """
    found = nbformat.read(notebook, as_version=4)
    found.metadata.get("case", {}).pop("rows", None)
    output = nbformat.v4.new_output("stream", text=f"at {ADDRESSES[2]}\n")
    found.cells[-1].outputs = [*found.cells[-1].get("outputs", []), output]
    found.cells.insert(
        1, nbformat.v4.new_code_cell(f"redis_url = {ADDRESSES[0]!r}", execution_count=1)
    )
    nbformat.write(found, notebook)
    record = notebook.with_suffix(".csv")
    text = record.read_text()
    record.write_text(text.replace("cold", f"cold at {ADDRESSES[1]}"))
    assert SIGHTS.search(record.read_text()) and SIGHTS.search(notebook.read_text())


def test_older_results_are_staged_without_passwords(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results that hold credentials from before lose them on the way to the book."""
    monkeypatch.setattr(build, "_write_generated", Path.mkdir)  # its tables come from no results
    root = make_project(tmp_path)
    plant(make_results(root, "laptop", "wide-area"))
    assert any(page.site == "laptop" for page in stage_cases("laptop", root))
    assert search_all(root / "_build") == []


@pytest.mark.usefixtures("made_study")
def test_older_results_are_promoted_without_passwords(tmp_path: Path) -> None:
    """Results that hold credentials from before lose them on the way to the reference."""
    case = make_case(tmp_path, "redis://host")
    assert run.run_case(case, print).state == "done"
    plant(case.result(".ipynb"))
    headline = tmp_path / "results" / "reference" / "cluster-scaling" / "in-region.ipynb"
    headline.parent.mkdir(parents=True)
    nbformat.write(nbformat.v4.new_notebook(), headline)
    build.publish("laptop", tmp_path)
    assert case.result(".csv", "reference").exists()
    assert search_all(tmp_path / "results" / "reference") == []


def test_copies_without_credentials_are_the_same_bytes(tmp_path: Path) -> None:
    """Every reference result is copied as it is, and the copy of another holds no credential."""
    for path in [*(ROOT / "results" / "reference").rglob("*.[ci][sp]*")]:
        if path.suffix in (".csv", ".ipynb"):
            assert copy_redacted(path, tmp_path / path.name).read_bytes() == path.read_bytes()
    (tmp_path / "bad.csv").write_text(f'a,b\n"x,{ADDRESSES[0]}",y@z\n')
    copy_redacted(tmp_path / "bad.csv", tmp_path / "good.csv")
    assert (tmp_path / "good.csv").read_text() == 'a,b\n"x,redis://***@host:6379/0",y@z\n'


def test_trees_keep_their_form() -> None:
    """What is no text stays what it is."""
    tree = {"a": [1, None, ADDRESSES[0]], "b": {"c": True}}
    assert redact_tree(tree) == {"a": [1, None, "redis://***@host:6379/0"], "b": {"c": True}}


def test_a_traceback_on_the_terminal_shows_none() -> None:
    """What nobody foresaw ends with a traceback, also without the credentials of addresses."""
    code = (
        "import sys, helpers.cli, helpers.book.cases as cases\n"
        f"def fail(*_): raise RuntimeError('lost {ADDRESSES[2]}')\n"
        "cases.find_case = fail\n"
        "sys.argv = ['wire', 'run', 'a/b']\n"
        "helpers.cli.run()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "RuntimeError: lost redis://***@host" in done.stderr
    assert not SIGHTS.search(done.stderr + done.stdout)

"""``wire calibrate``: a profile of a reader's own store, measured within caps."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from helpers.errors import UserError, say


@click.command()
@click.argument("location")
@click.option("--max-requests", default=500, show_default=True, help="Requests at most, in all.")
@click.option("--max-mb", default=2000.0, show_default=True, help="MB that may be read, in all.")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), default=Path("my-store.yml"),
    show_default=True, help="File of the profile.",
)  # fmt: skip
@click.option("--write", "prefix", default="", metavar="PREFIX",
              help="Write 32 MB below PREFIX, measure them, remove them; else nothing is written.")  # fmt: skip
@click.option("--emulate", "emulated", default="loopback", show_default=True, metavar="PROFILE",
              help="Network before the embedded store, to try this out.")  # fmt: skip
@click.option("--plan", "is_plan", is_flag=True, help="Say what would be asked for, and stop.")
@click.option("--anew", is_flag=True, help="Replace a profile that is in the file.")
@click.option("--json", "is_json", is_flag=True, help="Print the profile as JSON.")
def calibrate(
    location: str, max_requests: int, max_mb: float, out: Path, prefix: str, emulated: str,
    is_plan: bool, anew: bool, is_json: bool,
) -> None:  # fmt: skip
    """Measure latency, bandwidth and request rate of a store, and write them as a profile.

    LOCATION is s3://BUCKET/PREFIX or gs://BUCKET/PREFIX, where the largest of the first objects is
    read, or embedded. The profile is taken wherever one is named: in a case as `profile:`, by the
    advisors as --profile.
    """
    from advisors.calibrate.plan import Caps
    from advisors.calibrate.target import check_address
    from helpers.paths import replace_file

    check_address(location, prefix=prefix, emulated=emulated)
    check_out(out, anew=anew)
    if not 0 < max_mb <= _MOST_MB:
        raise UserError(f"max-mb: {max_mb:g}; allowed: above 0, at most {_MOST_MB:g}")
    caps = Caps(max_requests, int(max_mb * 1e6))
    plan = f"at most {caps.max_requests} requests and {caps.max_nbytes / 1e6:g} MB of {location}"
    if is_plan:
        say(plan)
        return
    say(plan, err=True)
    told = measure_store(location, caps, prefix=prefix, emulated=emulated)
    text = as_yaml(told)
    replace_file(out, f"# A profile as measured by `wire calibrate`.\n{text}")
    say(json.dumps(told, indent=2) if is_json else f"{text}\nwritten: {out}; try: wire decide --profile {out} ...")  # fmt: skip


_MOST_MB = 1e9


def check_out(out: Path, *, anew: bool) -> None:
    """Refuse to write where no profile can lie, or over what is there."""
    from helpers.netem.profiles import read_profile_file

    if out.suffix not in (".yml", ".yaml"):
        raise UserError(f"out: {out}; allowed: a name that ends in .yml")
    if not out.exists():
        return
    if not read_profile_file(out).measurement:
        raise UserError(f"out: {out} holds no calibration; allowed: another file")
    if not anew:
        raise UserError(f"out: {out} is there; allowed: another file, or --anew")


def measure_store(location: str, caps: Any, *, prefix: str, emulated: str) -> dict[str, Any]:
    """Measure a store, and return its profile with what was measured; what is not whole is none."""
    from advisors.calibrate.measure import Client, Purse
    from advisors.calibrate.plan import Seen, make_figures, plan_steps, summarise
    from advisors.calibrate.target import open_target
    from helpers.benchmark.provenance import installed, machine
    from helpers.redaction import redact_tree

    purse, seen = Purse(caps), Seen()
    with open_target(location, purse.spend, prefix=prefix, emulated=emulated) as target:
        why = Client(target, purse, seen).run(plan_steps(caps))
    if why:
        raise UserError(f"store: {location}: {why}; allowed: a store that answers within the caps")
    where = location if emulated == "loopback" else f"{location} over {emulated}"
    date = datetime.now(UTC).isoformat(timespec="seconds")
    measurement = {
        "location": where,
        "object": target.key,
        "object_nbytes": target.nbytes,
        "date": date,
        "machine": machine(),
        "versions": installed(("obstore", "python")),
        "n_requests": purse.n_requests,
        "nbytes": purse.nbytes,
        **summarise(seen),
    }
    told = {**make_figures(seen, f"{where}, {date[:10]}"), "measurement": measurement}
    return dict(redact_tree(told))


def as_yaml(told: dict[str, Any]) -> str:
    """Write lists, which are of numbers, in lines, and all else one below the other."""
    import yaml

    class Dumper(yaml.SafeDumper):
        pass

    Dumper.add_representer(
        list,
        lambda dumper, values: dumper.represent_sequence("tag:yaml.org,2002:seq", values, True),
    )
    return str(yaml.dump(told, Dumper=Dumper, sort_keys=False, width=100))

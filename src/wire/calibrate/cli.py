"""``wire calibrate``: a profile of a reader's own store, measured within caps."""

from __future__ import annotations

import asyncio
import os
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wire.bed.networks import PROVIDERS, REGIONS
from wire.errors import UserError, say, show

if TYPE_CHECKING:
    from wire.calibrate.figures import MeasurementPlan
    from wire.calibrate.measure import Purse

_MOST_MB = 1e9


@click.command(
    epilog="\b\n"
    """Examples:
  wire calibrate s3://bucket/object --plan
  wire calibrate s3://bucket/folder --write test --provider aws --region same"""
)
@click.argument("location")
@click.option("--max-requests", default=500, show_default=True, help="Largest number of requests.")
@click.option(
    "--max-mb", default=2000.0, show_default=True, help="Largest number of MB that are read."
)
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), default=Path("my-store.yml"),
    show_default=True, help="New file of the profile.",
)  # fmt: skip
@click.option("--write", "prefix", default="", metavar="PREFIX",
              help="Prefix below which 32 MB are written, measured and removed.  [default: nothing is written]")  # fmt: skip
@click.option("--provider", type=click.Choice(PROVIDERS), metavar="NAME",
              help=f"Provider of the store, for its prices: {', '.join(PROVIDERS)}.")  # fmt: skip
@click.option("--region", type=click.Choice(REGIONS), default="unknown", metavar="WHERE",
              help=f"Place of the reader from the region of the store, for egress: {', '.join(REGIONS)}.")  # fmt: skip
@click.option("--plan", "is_plan", is_flag=True, help="Planned requests only; nothing is read.")
def calibrate(
    location: str, max_requests: int, max_mb: float, out: Path, prefix: str, *,
    provider: str | None, region: str, is_plan: bool,
) -> None:  # fmt: skip
    """Measure latency, bandwidth and request rate of a store, and write them as a profile.

    LOCATION is an object, s3://BUCKET/KEY or gs://BUCKET/KEY, or a place to write one.
    The profile is taken wherever one is named: in a case as `profile:`, by the advisors as
    --profile.
    """
    import yaml

    from wire.calibrate.figures import share_caps
    from wire.calibrate.measure import Purse
    from wire.files import replace_file

    check_address(location, prefix)
    check_out(out)
    if not 0 < max_mb <= _MOST_MB:
        raise UserError("max-mb", f"{max_mb:g}", f"above 0, at most {_MOST_MB:g}")
    caps = max_requests, int(max_mb * 1e6)
    plan, purse = share_caps(*caps), Purse(*caps)
    say(f"at most {max_requests} requests and {max_mb:g} MB of {location}", err=not is_plan)
    if is_plan:
        return
    measured = measure_store(location, plan, purse, prefix)
    billing = {"provider": provider or find_provider(location), "region": region}
    measured = {**billing, **measured}
    text = yaml.safe_dump(measured, sort_keys=False, width=100)
    replace_file(out, f"# A profile as measured by `wire calibrate`.\n{text}")
    say(f"{text}\nwritten: {out}; try: wire decide --profile {out} ...")
    if unknown := [name for name, value in billing.items() if value == "unknown"]:
        options = " and ".join(f"--{name}" for name in unknown)
        say(
            f"For dollars, {out} has to say {' and '.join(unknown)}: by {options} here, or in the file."
        )


def find_provider(address: str) -> str:
    """Find who bills a store: a provider that is reached as itself; of another server nobody knows."""
    from wire.bed.locations import parse_location

    place = parse_location(address)
    if place.scheme == "gs":
        return "google"
    return "aws" if place.scheme == "s3" and not place.endpoint_url else "unknown"


def check_out(out: Path) -> None:
    """Refuse a file that could not be written in the end, before anything is asked for."""
    if out.suffix not in (".yml", ".yaml"):
        raise UserError("out", show(str(out)), "a name that ends in .yml")
    try:
        with tempfile.TemporaryFile(dir=out.parent):  # in /proc even root may not
            is_there = os.path.lexists(out)
    except (OSError, ValueError) as error:  # ValueError: of a null character
        allowed = "a file in a folder that can be written"
        raise UserError("out", show(str(out)), allowed) from error
    if is_there:
        raise UserError("out", f"{show(str(out))} is there", "a file that is not")


_MOST_PREFIX = 500  # characters; a store takes keys of 1024 bytes


def check_address(address: str, prefix: str) -> None:
    """Refuse an address that is none, before a line shows it: it may hold a password."""
    from wire.bed.locations import parse_location, split_address

    scheme = split_address(address).scheme
    if scheme == "file" or address == "embedded":
        raise UserError("store", show(address), "a store that answers requests")
    if prefix and scheme != "s3":
        raise UserError("write", show(prefix), "with s3://BUCKET/PREFIX alone")
    parts = prefix.strip("/").split("/")
    is_sound = prefix.isprintable() and len(prefix) <= _MOST_PREFIX
    if prefix and not (is_sound and {"", ".", ".."}.isdisjoint(parts)):
        allowed = (
            f"a path in the bucket, such as scratch/mine, of at most {_MOST_PREFIX} characters"
        )
        raise UserError("write", show(prefix), allowed)
    parse_location(address)


def measure_store(
    location: str, plan: MeasurementPlan, purse: Purse, prefix: str
) -> dict[str, Any]:
    """Measure a store, and return its profile with what was measured; what is not whole is none."""
    from wire.calibrate.figures import list_more, make_figures
    from wire.calibrate.measure import MeasuringClient, open_target
    from wire.errors import redact_tree
    from wire.host import installed, machine

    with open_target(location, purse, prefix) as target:
        observed = asyncio.run(MeasuringClient(target, purse, plan).measure())
    date = datetime.now(UTC).isoformat(timespec="seconds")
    measurement = {
        "location": location,
        "object": target.key,
        "object_nbytes": target.nbytes,
        "date": date,
        "machine": machine(),
        "versions": installed(("obstore", "python")),
        "n_requests": purse.n_requests,
        "nbytes": purse.nbytes,
        **list_more(observed),
    }
    profile = {**make_figures(observed, f"{location}, {date[:10]}"), "measurement": measurement}
    return dict(redact_tree(profile))

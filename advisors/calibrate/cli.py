"""``wire calibrate``: a profile of a reader's own store, measured within caps and kept as it grows."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from helpers.cli import read_numbers
from helpers.errors import UserError
from helpers.redaction import redact_tree

if TYPE_CHECKING:
    from advisors.calibrate.plan import Caps, Seen, Spent, Step

_MOST_MB = 1e9
_ITEMS = ("store_gets_1e3", "store_lists_1e3", "data_out_gb")


@click.command()
@click.argument("location")
@click.option("--max-requests", default=500, show_default=True, help="Requests at most, in all.")
@click.option("--max-usd", default=0.10, show_default=True, help="What they may cost, in all.")
@click.option("--max-mb", default=2000.0, show_default=True, help="MB that may be read, in all.")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), default=Path("my-store.yml"),
    show_default=True, help="File of the profile; one that is not whole is continued.",
)  # fmt: skip
@click.option("--price", "own", multiple=True, metavar="ITEM=USD",
              help="A price of your own, such as data_out_gb=0 inside the region.")  # fmt: skip
@click.option("--write", "prefix", default="", metavar="PREFIX",
              help="Write 32 MB below PREFIX, measure them, remove them; else nothing is written.")  # fmt: skip
@click.option("--emulate", default="loopback", show_default=True, metavar="PROFILE",
              help="Network before the embedded store, to try this out.")  # fmt: skip
@click.option("--plan", "is_plan", is_flag=True, help="Show what would be asked for, and stop.")
@click.option("--anew", is_flag=True, help="Measure again what is in the file.")
@click.option("--json", "is_json", is_flag=True, help="Print the profile as JSON.")
def calibrate(location: str, out: Path, is_plan: bool, is_json: bool, **given: Any) -> None:
    """Measure latency, bandwidth and request rate of a store, and write them as a profile.

    LOCATION is s3://BUCKET/PREFIX or gs://BUCKET/PREFIX, where the largest of the first objects is
    read, the http(s) address of an object, or embedded. The profile is taken wherever one is
    named: in a case as `profile:`, by the advisors as --profile.
    """
    from advisors.calibrate.plan import Caps, plan_steps

    if out.suffix not in (".yml", ".yaml"):
        raise UserError(f"out: {out}; allowed: a name that ends in .yml")
    if not 0 < given["max_mb"] <= _MOST_MB:
        raise UserError(f"max-mb: {given['max_mb']:g}; allowed: above 0, at most {_MOST_MB:g}")
    prices = choose_prices(location, read_numbers("price", given["own"]))
    caps = Caps(given["max_requests"], given["max_usd"], int(given["max_mb"] * 1e6), prices)
    steps = plan_steps(caps)
    click.echo("\n".join(render_plan(steps, caps)), err=is_json)
    if is_plan:
        return
    draft = open_draft(out, location, given["emulate"], caps, anew=given["anew"])
    why = measure_store(draft, location, steps, prefix=given["prefix"], emulated=given["emulate"])
    click.echo(json.dumps(draft.told, indent=2) if is_json else render(draft))
    if why:
        raise UserError(
            f"store: {location}: {why}; what was measured is in {out}, marked partial,"
            " and wire calibrate goes on from there"
        )


def measure_store(
    draft: Draft, location: str, steps: Sequence[Step], *, prefix: str, emulated: str
) -> str:
    """Take the steps on a store; return why not all could be taken, or nothing."""
    from advisors.calibrate.measure import Client, Purse, Session
    from advisors.calibrate.plan import Spent
    from advisors.calibrate.target import open_target

    purse, is_continued = Purse(draft.caps, draft.spent), draft.spent.n_requests > 0
    if not draft.caps.allow(draft.spent + Spent(0, 2)):
        raise UserError(f"out: {draft.path} has used up the caps; allowed: higher ones, or --anew")

    def spend(more: Spent) -> None:
        purse.spend(more)
        if is_continued:  # else a file is begun only when there is something to measure
            draft.save(purse.spent)

    with open_target(location, spend, prefix=prefix, emulated=emulated) as target:
        draft.facts |= {"object": target.key, "object_nbytes": target.nbytes}
        why = Session(Client(target, purse, draft.seen), draft.save).run(steps)
    draft.save(purse.spent, state="partial" if why else "complete", why=why)
    return why


def choose_prices(location: str, own: Mapping[str, float]) -> dict[str, float]:
    """Choose what requests and bytes cost: nothing on this machine, else as the price table says."""
    from helpers.objectstore.locations import is_here
    from helpers.prices import get_prices

    for item in own:
        if item not in _ITEMS:
            raise UserError(f"price {item}: no such item; allowed: {', '.join(_ITEMS)}")
    endpoint = os.environ.get("AWS_ENDPOINT_URL") if location.startswith("s3:") else location
    if location == "embedded" or is_here(endpoint):
        return dict.fromkeys(_ITEMS, 0.0) | {**own}
    known = get_prices(overrides=own)
    return {item: known[item] for item in _ITEMS}


@dataclass(slots=True)
class Draft:
    """The file of a calibration: written anew, whole, whenever there is more to keep."""

    path: Path
    caps: Caps
    facts: dict[str, Any]  # where and with what it is measured
    seen: Seen
    spent: Spent
    told: dict[str, Any] = field(default_factory=dict)  # what the file holds

    def save(self, spent: Spent, *, state: str = "partial", why: str = "") -> None:
        """Write what was seen, and what may have been spent by now."""
        from advisors.calibrate.plan import make_figures, summarise
        from helpers.paths import replace_file

        date = datetime.now(UTC).isoformat(timespec="seconds")
        measurement = {
            "state": state,
            **({"why": why} if why else {}),
            **self.facts,
            "date": date,
            "spent": asdict(spent),
            "spent_usd": float(f"{spent.usd(self.caps.prices):.4g}"),
            **summarise(self.seen),
            "seen": asdict(self.seen),
        }
        figures = make_figures(self.seen, f"{self.facts['location']}, {date[:10]}")
        self.told = redact_tree({**figures, "measurement": measurement})
        text = f"# A profile as measured by `wire calibrate`.\n{_as_yaml(self.told)}"
        replace_file(self.path, text)


def _as_yaml(told: Mapping[str, Any]) -> str:
    """Write lists, which are of numbers, in lines, and all else one below the other."""
    import yaml

    class Dumper(yaml.SafeDumper):
        pass

    Dumper.add_representer(
        list,
        lambda dumper, values: dumper.represent_sequence("tag:yaml.org,2002:seq", values, True),
    )
    return str(yaml.dump(dict(told), Dumper=Dumper, sort_keys=False, width=100))


def open_draft(path: Path, location: str, emulated: str, caps: Caps, *, anew: bool) -> Draft:
    """Begin a file, or go on with one that is not whole and has the same origin."""
    from advisors.calibrate.plan import Seen, Spent
    from helpers.benchmark.provenance import differences, installed, machine
    from helpers.netem.profiles import read_profile_file

    where = location if emulated == "loopback" else f"{location} over {emulated}"
    versions = installed(("obstore", "python"))
    facts = redact_tree({"location": where, "machine": machine(), "versions": versions})
    told = dict(read_profile_file(path).measurement) if path.exists() else {}
    if path.exists() and "seen" not in told:
        raise UserError(f"out: {path} holds no calibration; allowed: another file")
    if not told or anew:
        return Draft(path, caps, facts, Seen(), Spent())
    others = [f"{told.get('location')} there"] * (told.get("location") != facts["location"])
    if others := [*others, *differences(facts["machine"], told.get("machine", {}))]:
        raise UserError(
            f"out: {path} is of another origin ({'; '.join(others)});"
            " allowed: another file, or --anew"
        )
    if told.get("state") == "complete":
        raise UserError(f"out: {path} is complete; allowed: another file, or --anew")
    try:
        return Draft(path, caps, facts, Seen(**told["seen"]), Spent(**told["spent"]))
    except (TypeError, KeyError) as error:
        raise UserError(
            f"out: {path} cannot be continued; allowed: another file, or --anew"
        ) from error


def render_plan(steps: Sequence[Step], caps: Caps) -> list[str]:
    """Write what is going to be asked for, at most, and what that costs."""
    from advisors.calibrate.plan import Spent

    most = {
        step.title: Spent(0, 2) if step.kind == "find" else Spent(step.n_requests, 0, step.nbytes)
        for step in steps
    }
    most["in all"] = sum(most.values(), Spent())
    lines = [(title, each, each.usd(caps.prices)) for title, each in most.items()]
    lines += [("allowed", Spent(caps.max_requests, 0, caps.max_nbytes), caps.max_usd)]
    prices = ", ".join(f"{item} {price:g}" for item, price in caps.prices.items())
    return [
        f"{'at most':24} {'requests':>9} {'MB':>9} {'USD':>9}",
        *(f"{t:24} {one.n_requests:9} {one.nbytes / 1e6:9.1f} {usd:9.5f}" for t, one, usd in lines),
        f"prices: {prices} USD; others by --price",
    ]


def render(draft: Draft) -> str:
    """Write the profile without what it was computed from, and where it is of use."""
    measured = draft.told["measurement"]
    shown = {k: v for k, v in measured.items() if k not in ("seen", "machine", "versions")}
    text = _as_yaml({**draft.told, "measurement": shown})
    return f"\n{text}\n{draft.path} is {measured['state']}; try: wire decide --profile {draft.path} ..."

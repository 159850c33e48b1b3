"""`lethe symmetricds backlog`: a plugin of Nagios; exit 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN."""

from typing import Annotated, Final

import typer
from lethe_client import Backlog, BacklogHolder, BacklogTrend

from app.cli.shell.arguments import StoreId, instant
from app.cli.shell.output import cell
from app.cli.shell.plugin import exit_code, line, tell, unknown
from app.cli.shell.session import Session, on_service

SHOWN_MAX: Final = 20

app = typer.Typer(
    name="symmetricds",
    no_args_is_help=True,
    add_completion=False,
    help="Databases of SymmetricDS: what waits to be delivered, and what holds a purge back.",
)


@app.callback()
def _group() -> None:
    """The one command keeps its name."""


def _backlog(
    session: Session,
    store: StoreId,
    *,
    node: Annotated[str | None, typer.Option(metavar="NODE", help="Only what waits for this node.")] = None,
    channel: Annotated[str | None, typer.Option(metavar="CHANNEL", help="Only of this channel.")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="With --json: looks from then on: RFC 3339, or a date.")
    ] = None,
) -> int:
    """Tell what waits to be delivered, whether it grows, and what holds a purge back.

    The last check has seen it. Exit 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN.

    Example: lethe symmetricds backlog shop --node store-17
    """
    found = session.client.stores.backlog(
        store, node=node, channel=channel, since=instant(since, option="--since")
    )
    tell(session.out, "BACKLOG", found, first=_summary(found), figures=_figures(found))
    for each in found.holders[:SHOWN_MAX]:
        if each.holds_purge or each.why != "UNDER_WAY":
            session.out.say(line(_holder(each)))
    rows = [
        [
            each.node,
            each.channel,
            each.batches,
            each.errors,
            each.rows,
            each.oldest_at,
            _trend(each.is_growing),
        ]
        for each in found.pairs[:SHOWN_MAX]
    ]
    if rows:
        columns = ["node", "channel", "batches", "in error", "rows", "oldest", "trend"]
        session.out.table(columns, rows)
    if found.pairs_total > len(rows):
        session.out.note(f"{found.pairs_total - len(rows)} more pairs: --json tells up to 100")
    return exit_code(found.status)


app.command("backlog")(on_service(_backlog, refused=unknown("BACKLOG")))


def _summary(found: Backlog) -> str:
    if found.checked_at is None:
        return "nobody has looked yet: `lethe store check STORE` does, where backlog.period is not zero"
    if found.problem is not None:
        return f"the last look could not read ({found.problem}): `lethe store check STORE` says more"
    if found.status == "UNKNOWN":
        return f"the last look is old: {cell(found.checked_at)}"
    at_least = "at least " if found.is_at_least else ""
    held = sum(1 for each in found.holders if each.holds_purge)
    holding = f", {held} node(s) hold the purge back" if held else ""
    return f"{at_least}{found.batches:,} batches wait, {_grows(found.trend)}{holding}"


def _grows(trend: BacklogTrend) -> str:
    if trend.is_growing is None:
        return "too few looks to say whether it grows"
    speed = "" if trend.batches_per_hour is None else f" ({trend.batches_per_hour:+,.0f} an hour)"
    return f"it grows{speed}" if trend.is_growing else "it does not grow"


def _trend(is_growing: bool | None) -> str:
    return "" if is_growing is None else "grows" if is_growing else "steady"


def _holder(each: BacklogHolder) -> str:
    holds = "holds the purge back" if each.holds_purge else "waits"
    age = "" if each.age is None else f" for {cell(each.age)}"
    return f"{each.why} node {each.node}: batch {each.batch} of {each.channel} {holds}{age}. {each.advice}"


def _figures(found: Backlog) -> list[str]:
    values = {
        "batches": found.batches,
        "errors": found.errors,
        "rows": found.rows,
        "pairs": found.pairs_total,
    }
    return [f"{name}={value};;;0" for name, value in values.items()]

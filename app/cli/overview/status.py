"""`lethe status`: all stores on one screen, what needs somebody first."""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Annotated, Final

import typer
from lethe_client.fleet_results import Attention, Overview, StoreOverview, Work
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from app.cli.overview.places import look as place
from app.cli.shell.arguments import pairs
from app.cli.shell.exits import ExitCode
from app.cli.shell.output import cell, on_stdout
from app.cli.shell.session import Session, on_service
from app.cli.shell.store_filter import note_unknown_stores

app = typer.Typer(name="status", add_completion=False, help="All stores at one look.")
STORES_MAX: Final = 100
MEANINGS_MAX: Final = 10
CODE: Final = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*")
INTERVAL_S: Final = 2.0
COLOURS: Final = {
    "OK": "green",
    "WARNING": "yellow",
    "ERROR": "red",
    "STALE": "yellow",
    "UNKNOWN": "dim",
    "RUNNING": "green",
    "WAITING": "yellow",
    "PAUSED": "yellow",
    "FAILED": "red",
}


@app.command("status")
@on_service
def status(
    session: Session,
    *,
    store: Annotated[list[str] | None, typer.Option(help="Only this store. Repeatable.")] = None,
    label: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Only stores with it. Repeatable.")
    ] = None,
    waits_longer_than: Annotated[
        str | None, typer.Option(metavar="DURATION", help="From when on a wait needs somebody (PT1H).")
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Show it again and again, until Ctrl-C.")] = False,
    interval: Annotated[
        float, typer.Option(min=0.5, max=3600, metavar="SECONDS", help="Between two looks of --watch.")
    ] = INTERVAL_S,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Exit 1 where an ERROR needs somebody, warnings do not count; with --watch once one does.",
        ),
    ] = False,
) -> int:
    """What needs somebody, the stores with what they do, and when they come next. No target is asked.

    Example: lethe status
    Example: lethe status --label region=eu --check
    """
    labels = pairs(label, option="--label")

    def look() -> Overview:
        return session.client.fleet.overview(
            stores=store or (),
            labels=labels,
            waits_longer_than=waits_longer_than,
            page_size=STORES_MAX,
        )

    seen = look()
    if watch:
        return _watch(session, seen, look, interval_s=interval, check=check)
    session.out.document(seen.raw)
    if not session.out.json:
        on_stdout().print(screen(seen))
    if not seen.stores:
        note_unknown_stores(session, store or ())
    return ExitCode.FAILED if check and _is_needed(seen) else ExitCode.OK


def _is_needed(seen: Overview) -> bool:
    return any(each.severity == "ERROR" for each in seen.attention)


def _watch(
    session: Session, seen: Overview, look: Callable[[], Overview], *, interval_s: float, check: bool
) -> int:
    """Show each look in place of the last, or below it where that is no terminal; under --json a line each.

    With check it ends at an error.
    """

    def looks() -> Iterator[Overview]:
        yield seen
        while True:
            time.sleep(interval_s)
            yield look()

    console = on_stdout(endless=True)
    in_place = console.is_terminal and not session.out.json
    with Live(console=console, auto_refresh=False) if in_place else nullcontext() as shown:
        for each in looks():
            session.out.line(each.raw)
            if shown is not None:
                shown.update(screen(each), refresh=True)
            elif not session.out.json:
                console.print(screen(each))
            if check and _is_needed(each):
                return ExitCode.FAILED
    raise AssertionError("it ends by an error or by Ctrl-C")


def screen(seen: Overview) -> RenderableType:
    """All of it: what needs somebody, the counters, the stores."""
    parts: list[RenderableType] = []
    if seen.attention:
        parts += [_heading("Needs somebody", "red"), _attention(seen.attention)]
        left = seen.attention_total - len(seen.attention)
        parts += [Text(f"and {left} more", style="dim")] if left > 0 else []
        parts.append(_meanings(seen.attention))
    else:
        parts.append(_heading("Nothing needs anybody.", "green"))
    parts += [Text(_counters(seen)), _stores(seen.stores)]
    if seen.batches:
        parts.append(Text("Batches: " + ", ".join(_work(each) for each in seen.batches)))
    if seen.next_page_token:
        parts.append(Text(f"Only the first {len(seen.stores)} stores; narrow with --label.", style="dim"))
    return Group(*parts)


def _heading(text: str, colour: str) -> Text:
    return Text(text, style=f"bold {colour}")


def _attention(found: tuple[Attention, ...]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("", "store", "since", "what", "where to look"):
        table.add_column(name, overflow="fold")
    for each in found:
        colour = "red" if each.severity == "ERROR" else "yellow"
        row = (each.store, each.since, each.detail, place(each.subject))
        table.add_row(Text(each.code, style=colour), *(Text(cell(value)) for value in row))
    return table


def _meanings(found: tuple[Attention, ...]) -> Text:
    """How to learn what to do, once for each code; `detail` is a code of its own where it is one."""
    codes = [code for each in found for code in (each.code, each.detail) if CODE.fullmatch(code)]
    lines = [f"What it means: lethe explain {code}" for code in dict.fromkeys(codes)]
    left = len(lines) - MEANINGS_MAX
    more = [f"and {left} codes more"] if left > 0 else []
    return Text("\n".join(lines[:MEANINGS_MAX] + more), style="dim")


def _counters(seen: Overview) -> str:
    known = seen.counters
    parts = [f"{known.stores:,} stores"]
    parts += [f"{number:,} {state}" for state, number in sorted(known.jobs.items())]
    parts += [f"{known.backups:,} backups under way"] if known.backups else []
    ended = [f"{number:,} {state}" for state, number in sorted(known.ended_last_day.items())]
    last_day = f"; in the last day {', '.join(ended)}" if ended else ""
    return f"{', '.join(parts)}{last_day}."


def _stores(found: tuple[StoreOverview, ...]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("store", "kind", "health", "work", "lag", "last success", "next", "backups"):
        table.add_column(name, overflow="fold")
    for each in found:
        health = Text(each.health.state, style=COLOURS.get(each.health.state, ""))
        health.append(f" {cell(each.health.age)}" if each.health.age is not None else "", style="dim")
        table.add_row(
            Text(each.id),
            Text(each.kind),
            health,
            _working(each),
            Text(_lag(each)),
            Text(_newest(each)),
            Text(_next(each)),
            Text(cell([f"{backup.state} {backup.label or ''}".strip() for backup in each.backups])),
        )
    return table


def _working(store: StoreOverview) -> Text:
    text = Text("suspended " if store.suspended else "", style="yellow")
    for number, each in enumerate(store.work):
        text.append(", " if number else "")
        text.append(_work(each), style=COLOURS.get(each.state, ""))
    more = sum(store.jobs.values()) - len(store.work)
    text.append(f" +{more:,}" if more > 0 else "", style="dim")
    return text if text.plain else Text("-", style="dim")


def _work(work: Work) -> str:
    done = "" if work.fraction is None else f" {100 * work.fraction:.0f} %"
    waits = "" if work.waits_for is None else f" for {work.waits_for} since {cell(work.since)}"
    return f"{work.kind} {work.state}{done}{waits}"


def _lag(store: StoreOverview) -> str:
    if store.lag is None:
        return "-"
    return "never confirmed" if store.lag.seconds is None else f"{store.lag.seconds:,.0f} s"


def _newest(store: StoreOverview) -> str:
    done = [(each.last_success_at, each.verb) for each in store.verbs if each.last_success_at is not None]
    return f"{max(done)[1]} {cell(max(done)[0])}" if done else "-"


def _next(store: StoreOverview) -> str:
    due = [(each.next_due_at, each.verb) for each in store.verbs if each.next_due_at is not None]
    return f"{min(due)[1]} {cell(min(due)[0])}" if due else "-"

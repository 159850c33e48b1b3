"""`lethe schedule`: verbs that come by a cron, and all that recurs besides."""

import json
from typing import Annotated, Any, Final

import typer
from lethe_client.schedules import Schedule

from app.cli.shell.arguments import pairs
from app.cli.shell.exits import ExitCode
from app.cli.shell.output import cell
from app.cli.shell.session import Session, on_service
from app.cli.shell.store_filter import note_unknown_stores
from app.kit.json_bodies import sendable

app = typer.Typer(
    name="schedule", no_args_is_help=True, add_completion=False, help="Jobs that come by themselves."
)
ScheduleId = Annotated[str, typer.Argument(metavar="SCHEDULE", help="Id of the schedule.")]
BODY: Final = "The body of the verb's POST, as JSON."


@app.command("add")
@on_service
def add(
    session: Session,
    verb: Annotated[str, typer.Argument(metavar="VERB", help="PURGE, EVENT_SYNC, EVENT_CLEANUP, ERASURE...")],
    *,
    cron: Annotated[str, typer.Option(metavar="'M H DAY MONTH WEEKDAY'", help="When: five fields.")],
    body: Annotated[str, typer.Option(metavar="JSON", help=BODY)] = "{}",
    store: Annotated[str | None, typer.Option(help="The store; else --label.")] = None,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="NAME=VALUE", help="All stores with all of these. Repeatable."),
    ] = None,
    time_zone: Annotated[str | None, typer.Option(metavar="ZONE", help="IANA zone; without it UTC.")] = None,
    jitter: Annotated[
        str | None, typer.Option(metavar="DURATION", help="So much later at most, such as PT10M.")
    ] = None,
    overlap: Annotated[str | None, typer.Option(metavar="FORBID|QUEUE", help="While its job runs.")] = None,
    missed: Annotated[
        str | None, typer.Option(metavar="SKIP|RUN_ONCE", help="What nobody was there for.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="What it is called.")] = None,
) -> int:
    """Write a schedule. It acts with the rights of this token whenever it comes.

    Example: lethe schedule add PURGE --store shop --cron "0 3 * * *" --body '{"kind": "OUTGOING"}'
    """
    made = session.client.schedules.create(
        verb.upper(),
        _object(body),
        cron=cron,
        store=store,
        labels=pairs(label, option="--label"),
        time_zone=time_zone,
        jitter=jitter,
        overlap=overlap,
        missed=missed,
        name=name,
    )
    session.out.document(made.raw)
    session.out.say(f"Schedule {made.id} is written; it comes next at {cell(made.next_at)}.")
    return ExitCode.OK


@app.command("list")
@on_service
def list_schedules(
    session: Session, *, store: Annotated[str | None, typer.Option(help="Only of this store.")] = None
) -> int:
    """List all that recurs: schedules, and what a parameter or an agreement asks for.

    Example: lethe schedule list
    """
    found = list(session.client.schedules.list(store=store))
    session.out.document({"items": [each.raw for each in found]})
    session.out.table(
        ["schedule", "verb", "where", "when", "next", "last", "source"],
        [
            [each.id, each.verb, _where(each), _when(each), each.next_at, _last(each), each.source]
            for each in found
        ],
    )
    if store and not found:
        note_unknown_stores(session, [store])
    return ExitCode.OK


@app.command("show")
@on_service
def show(session: Session, schedule: ScheduleId) -> int:
    """Show a schedule, and what became of its last due time.

    Example: lethe schedule show sch_01jdb5q6w3r8m2k4n7p9s0t1v2
    """
    found = session.client.schedules.get(schedule)
    session.out.document(found.raw)
    last = found.last
    session.out.facts(
        {
            "schedule": found.id,
            "name": found.name,
            "verb": found.verb,
            "body": json.dumps(dict(found.body)),
            "where": _where(found),
            "when": _when(found),
            "jitter": found.jitter,
            "overlap": found.overlap,
            "missed": found.missed,
            "written by": found.created_by,
            "paused": found.is_paused,
            "next": found.next_at,
            "last": _last(found),
            "detail": None if last is None else last.detail,
            "job": None if last is None else last.job_id,
        }
    )
    return ExitCode.OK


@app.command("next-runs")
@on_service
def next_runs(
    session: Session,
    schedule: ScheduleId,
    *,
    count: Annotated[int, typer.Option(min=1, max=100, help="So many.")] = 10,
) -> int:
    """Tell when a schedule comes.

    Example: lethe schedule next-runs sch_01jdb5q6w3r8m2k4n7p9s0t1v2
    """
    found = session.client.schedules.next_runs(schedule, count=count)
    session.out.document({"items": [each.raw for each in found]})
    session.out.table(["at", "by its cron"], [[each.at, each.local] for each in found])
    return ExitCode.OK


@app.command("pause")
@on_service
def pause(session: Session, schedule: ScheduleId) -> int:
    """Let a schedule rest. What comes meanwhile is left out.

    Example: lethe schedule pause sch_01jdb5q6w3r8m2k4n7p9s0t1v2
    """
    found = session.client.schedules.pause(schedule)
    session.out.document(found.raw)
    session.out.say(f"Schedule {found.id} rests: lethe schedule resume {found.id}")
    return ExitCode.OK


@app.command("resume")
@on_service
def resume(session: Session, schedule: ScheduleId) -> int:
    """Let a schedule come again, from its next time on.

    Example: lethe schedule resume sch_01jdb5q6w3r8m2k4n7p9s0t1v2
    """
    found = session.client.schedules.resume(schedule)
    session.out.document(found.raw)
    session.out.say(f"Schedule {found.id} comes next at {cell(found.next_at)}.")
    return ExitCode.OK


@app.command("remove")
@on_service
def remove(session: Session, schedule: ScheduleId) -> int:
    """Remove a schedule. Its jobs stay, and go on where they run.

    Example: lethe schedule remove sch_01jdb5q6w3r8m2k4n7p9s0t1v2
    """
    session.client.schedules.remove(schedule)
    session.out.document({"id": schedule, "removed": True})
    session.out.say(f"Schedule {schedule} is removed.")
    return ExitCode.OK


def _object(text: str) -> dict[str, Any]:
    try:
        value = sendable(text)
    except ValueError as error:
        raise typer.BadParameter(f"no JSON: {error}", param_hint="--body") from None
    if not isinstance(value, dict):
        raise typer.BadParameter('a JSON object, such as \'{"kind": "OUTGOING"}\'', param_hint="--body")
    return value


def _where(schedule: Schedule) -> str:
    if schedule.store is not None:
        return schedule.store
    return ", ".join(f"{name}={value}" for name, value in (schedule.labels or {}).items())


def _when(schedule: Schedule) -> str:
    if schedule.cron is None:
        return f"every {schedule.interval}"
    return f"{schedule.cron} {schedule.time_zone}"


def _last(schedule: Schedule) -> str:
    if schedule.last is None:
        return ""
    return f"{schedule.last.outcome} {schedule.last.job_state or ''}".strip()

"""`lethe erasure`: erase obsolete data from the log of a JE environment, in cycles."""

from enum import StrEnum
from typing import Annotated

import typer
from lethe_client import CycleRequest, ErasureCycle, ErasurePlan

from app.cli.shell.after_plan import end_of_plan, looks_of_erasure
from app.cli.shell.arguments import StoreId, Timeout
from app.cli.shell.exits import ExitCode
from app.cli.shell.hints import command
from app.cli.shell.job_options import REASON, EngineChoice, MaxDrift, PlanId, Reason, Wait, drift
from app.cli.shell.session import Session, on_service
from app.cli.shell.watching import finish

app = typer.Typer(
    name="erasure",
    no_args_is_help=True,
    add_completion=False,
    help="Erase obsolete data from the logs of JE environments.",
)


class Kind(StrEnum):
    """The four je.erase.* switches by name."""

    DELETED_DATABASES = "DELETED_DATABASES"
    EXTINCT_RECORDS = "EXTINCT_RECORDS"
    KNOWN_OBSOLETE_ENTRIES = "KNOWN_OBSOLETE_ENTRIES"
    ALL_OBSOLETE_ENTRIES = "ALL_OBSOLETE_ENTRIES"


Period = Annotated[
    str | None,
    typer.Option("--period", metavar="DURATION", help="Age of the files and length of the cycle, as P25D."),
]
MinAge = Annotated[
    str | None, typer.Option("--min-file-age", metavar="DURATION", help="With --duration, not --period.")
]
Duration = Annotated[
    str | None, typer.Option("--duration", metavar="DURATION", help="PT0S: no throttle and no end.")
]
Kinds = Annotated[
    list[Kind] | None,
    typer.Option("--kind", case_sensitive=False, help="Repeatable. Default: what the store says."),
]
CycleId = Annotated[str, typer.Argument(metavar="[CYCLE]", help="Id of the cycle; default: the newest.")]


def _request(
    *,
    period: str | None,
    min_file_age: str | None,
    duration: str | None,
    kind: list[Kind] | None,
    engine: EngineChoice | None = None,
    throttle_bytes: float | None = None,
    plan_id: str | None = None,
    max_drift: float | None = None,
    reason: str | None = None,
) -> CycleRequest:
    if plan_id is not None and (period is not None or min_file_age is not None):
        raise typer.BadParameter("the plan's age of files is used", param_hint="--period / --min-file-age")
    if period is not None and (min_file_age is not None or duration is not None):
        raise typer.BadParameter("give one of them", param_hint="--period / --min-file-age, --duration")
    if plan_id is None and (min_file_age is None) != (duration is None):
        raise typer.BadParameter("give both", param_hint="--min-file-age, --duration")
    return CycleRequest(
        period=period,
        min_file_age=min_file_age,
        duration=duration,
        kinds=[each.value for each in kind] if kind else None,
        engine=engine.value if engine else None,
        bytes_per_s=throttle_bytes,
        plan_id=plan_id,
        max_drift=drift(max_drift),
        reason=reason,
    )


@app.command("start")
@on_service
def start(
    session: Session,
    store: StoreId,
    *,
    period: Period = None,
    min_file_age: MinAge = None,
    duration: Duration = None,
    kind: Kinds = None,
    engine: Annotated[
        EngineChoice | None, typer.Option("--engine", case_sensitive=False, help="What works at the files.")
    ] = None,
    throttle_bytes: Annotated[
        float | None,
        typer.Option("--throttle-bytes", min=0, metavar="BYTES_PER_S", help="At most this fast, besides."),
    ] = None,
    plan_id: PlanId = None,
    max_drift: MaxDrift = None,
    reason: Reason = REASON,
    wait: Wait = False,
    timeout: Timeout = None,
) -> int:
    """Begin a cycle. It goes on by itself; --wait follows it.

    Example: lethe erasure start ledger --min-file-age P1D --duration PT1H
    """
    request = _request(
        period=period,
        min_file_age=min_file_age,
        duration=duration,
        kind=kind,
        engine=engine,
        throttle_bytes=throttle_bytes,
        plan_id=plan_id,
        max_drift=max_drift,
        reason=reason,
    )
    return finish(session, session.client.erasure.begin(store, request), wait=wait, timeout_s=timeout)


@app.command("plan")
@on_service
def plan(
    session: Session,
    store: StoreId,
    *,
    period: Period = None,
    min_file_age: MinAge = None,
    duration: Duration = None,
    kind: Kinds = None,
    timeout: Timeout = None,
) -> int:
    """Say what a cycle would erase, and what not and why. Nothing is written.

    Example: lethe erasure plan ledger --min-file-age P1D --duration PT1H
    """
    request = _request(period=period, min_file_age=min_file_age, duration=duration, kind=kind)
    made = session.client.erasure.plan(store, request, timeout_s=timeout)
    session.out.document(made.raw)
    show_plan(session, made)
    options = {"--duration": duration, "--plan-id": made.plan_id}
    run_it = f"Run exactly this: {command('erasure', 'start', store, options=options)}"
    end_of_plan(session.out, run_it, looks=looks_of_erasure(made))
    return ExitCode.OK


def show_plan(session: Session, made: ErasurePlan) -> None:
    """Print a plan: each file, what is erased and why, what is kept and why."""
    session.out.facts({"store": made.store, "mode": made.mode, "cut-off": made.cutoff})
    session.out.table(
        ["file", "bytes", "created", "erase: entries", "bytes ", "not erased because"],
        [
            [
                each.file,
                each.size_bytes,
                each.created_at,
                sum(amount.entries for amount in each.erase),
                sum(amount.bytes for amount in each.erase),
                ", ".join(cause.cause for cause in each.causes) or None,
            ]
            for each in made.files
        ],
    )
    session.out.table(
        ["erased because", "entries", "bytes"],
        [[amount.code, amount.entries, amount.bytes] for amount in made.erase],
    )
    if made.keep:
        session.out.table(
            ["kept because", "entries", "bytes"],
            [[amount.code, amount.entries, amount.bytes] for amount in made.keep],
        )
    if made.facts.get("vetoed_count"):
        session.out.note(f"warning: {made.facts['vetoed_count']} entries are vetoed; the plan wants a look")
    freed = made.facts.get("after_checkpoint") or {}
    if freed.get("entries"):
        how = "see docs/how-to/je-helper.md"
        session.out.note(
            f"A checkpoint by JE would free at least {freed['entries']} more entries at the end of the log "
            f"({freed['bytes']} bytes): {how}"
        )


@app.command("abort")
@on_service
def abort(
    session: Session,
    store: StoreId,
    *,
    protection: Annotated[
        str | None, typer.Option(help="Only stop writing to the files of this protection; the cycle goes on.")
    ] = None,
    file: Annotated[
        list[str] | None, typer.Option(help="With --protection: only these of its files. Repeatable.")
    ] = None,
    within: Annotated[
        str | None, typer.Option(metavar="DURATION", help="With --protection: how long to wait: PT10S.")
    ] = None,
    reason: Annotated[str | None, typer.Option(help="Why; it is kept with the job of the cycle.")] = None,
) -> int:
    """End the newest cycle; its job is ABORTED once nothing is written any more.

    Example: lethe erasure abort ledger --reason "disk is slow"
    """
    if protection is None:
        if file or within:
            raise typer.BadParameter("they need --protection", param_hint="--file / --within")
        cycle = session.client.erasure.get(store)
        job = session.client.jobs.abort(cycle.job_id, reason=reason)
        session.out.document(job.raw)
        session.out.say(f"Cycle {cycle.id}: job {job.id} is {job.state}.")
        session.out.note(f"Watch it: lethe job watch {job.id}")
        return ExitCode.OK
    ended = session.client.protections.abort_erasure(store, protection, files=file or None, timeout=within)
    session.out.document(ended.raw)
    said = "is stopped" if ended.erasure_aborted else "was not writing"
    session.out.say(f"The eraser {said}: {ended.files} file(s) of {ended.protection_id} stay as they are.")
    return ExitCode.OK


@app.command("list")
@on_service
def list_(session: Session, store: StoreId) -> int:
    """Cycles of a store, newest first.

    Example: lethe erasure list ledger
    """
    cycles = list(session.client.erasure.list(store))
    session.out.document({"items": [each.raw for each in cycles]})
    session.out.table(
        ["cycle", "state", "started", "ends", "erased", "remaining"],
        [
            [
                each.id,
                each.state,
                each.started_at,
                each.ends_at,
                each.stats.get("eraserFilesErased"),
                each.stats.get("eraserFilesRemaining"),
            ]
            for each in cycles
        ],
    )
    return ExitCode.OK


@app.command("show")
@on_service
def show(session: Session, store: StoreId, cycle: CycleId = "current") -> int:
    """Look at a cycle.

    Example: lethe erasure show ledger
    """
    found = session.client.erasure.get(store, cycle)
    session.out.document(found.raw)
    _show_cycle(session, found)
    return ExitCode.OK


def _show_cycle(session: Session, found: ErasureCycle) -> None:
    done, total = (found.throttle.get(name, 0) for name in ("done_units", "total_units"))
    session.out.facts(
        {
            "cycle": found.id,
            "state": found.state,
            "job": f"{found.job_id} ({found.job_state})",
            "begun by": found.origin,
            "mode": found.mode,
            "engine": found.engine,
            "started": found.started_at,
            "ends": found.ends_at,
            "ended": found.ended_at,
            "cut-off": found.cutoff,
            "work units": f"{done:,} of {total:,}",
            "next work": found.throttle.get("next_at"),
        }
    )
    session.out.table(["files", "how many"], list(found.files.items()))
    for item in found.raw.get("waiting_on") or ():
        session.out.note(f"waits for {item.get('kind')}: {item.get('ref')}")


@app.command("files")
@on_service
def files(session: Session, store: StoreId, cycle: CycleId = "current") -> int:
    """The files of a cycle: state, what is erased, what is not and why.

    Example: lethe erasure files ledger
    """
    found = list(session.client.erasure.files(store, cycle))
    session.out.document({"items": [each.raw for each in found]})
    session.out.table(
        ["file", "state", "bytes", "entries", "erased", "proved", "because"],
        [
            [
                each.file,
                each.state,
                each.size_bytes,
                each.entries_planned,
                each.entries_erased,
                each.proved,
                ", ".join(cause.cause for cause in each.causes) or each.protected_by,
            ]
            for each in found
        ],
    )
    return ExitCode.OK


@app.command("stats")
@on_service
def stats(session: Session, store: StoreId) -> int:
    """The eleven statistics of the eraser, of the newest cycle and of all.

    Example: lethe erasure stats ledger
    """
    found = session.client.erasure.stats(store)
    session.out.document(found.raw)
    session.out.table(
        ["statistic", "cycle", "all cycles"],
        [[name, value, found.cumulative.get(name)] for name, value in found.cycle.items()],
    )
    return ExitCode.OK


@app.command("entry")
@on_service
def entry(
    session: Session,
    store: StoreId,
    file: Annotated[str, typer.Argument(metavar="FILE", help="Such as 00000003.jdb.")],
    offset: Annotated[int, typer.Argument(metavar="OFFSET", min=0, help="Where the entry begins.")],
) -> int:
    """Look at one entry of the log: is it erased?

    Example: lethe erasure entry ledger 00000003.jdb 4711
    """
    found = session.client.erasure.log_entry(store, file, offset)
    session.out.document(found.raw)
    session.out.facts(
        {
            "entry": f"{found.file}, offset {found.offset}",
            "type": found.type,
            "erased": found.erased,
            "all zero": found.all_zero,
            "bytes": found.item_bytes,
        }
    )
    return ExitCode.OK

"""`lethe slony wait | cleanup | switch-log`: jobs on a node of a Slony-I cluster."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Annotated, Any, Final

import typer
from lethe_client import CleanupRequest, EventWait, Job

from app.cli.shell.after_plan import end_of_plan, looks_of_cleanup
from app.cli.shell.arguments import StoreId, Timeout, instant
from app.cli.shell.exits import ExitCode
from app.cli.shell.hints import of_plan
from app.cli.shell.job_options import REASON, EngineChoice, MaxDrift, PlanId, Reason, Wait, drift
from app.cli.shell.session import Session, on_service
from app.cli.shell.watching import finish, follow, note_failure
from app.cli.slony.results import show_plan, show_result

ALL: Final = "ALL"
WAIT_DEFAULT_S: Final = 600.0
"""Slonik's own."""
TIMEOUTS: Final = frozenset({"WAIT_TIMEOUT", "LOG_SWITCH_TIMEOUT"})
"""Nothing is broken, it has only not come so far: exit 75."""


class Via(StrEnum):
    """Who removes the rows."""

    NATIVE = "NATIVE"
    BUILTIN = "BUILTIN"


class Rule(StrEnum):
    """Which events go."""

    PROGRAM = "PROGRAM"
    MANUAL = "MANUAL"


class LogSwitch(StrEnum):
    """What a cleanup does with the log tables at its end."""

    AS_PROGRAM = "AS_PROGRAM"
    NONE = "NONE"


class Action(StrEnum):
    """What to do with the log tables."""

    START = "START"
    FINISH = "FINISH"
    FULL = "FULL"


class Overlap(StrEnum):
    """What to do where another job writes to the same cluster."""

    REFUSE = "REFUSE"
    QUEUE = "QUEUE"


OverlapOption = Annotated[
    Overlap | None, typer.Option("--overlap", case_sensitive=False, help="Where another job is there.")
]
Nodes = Annotated[str, typer.Option(metavar="NODE|ALL", help="A node id, or ALL.")]
Interval = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION", help="Only what was confirmed so long ago: PT10M. Default: the store's."
    ),
]
Before = Annotated[
    str | None, typer.Option(metavar="TIME", help="The same as an instant: RFC 3339, or a date.")
]
ViaOption = Annotated[
    Via | None, typer.Option("--via", case_sensitive=False, help="The cluster's own function, or Lethe.")
]
RuleOption = Annotated[
    Rule | None, typer.Option("--rule", case_sensitive=False, help="MANUAL: only SYNC events go.")
]
SwitchOption = Annotated[
    LogSwitch | None,
    typer.Option("--log-switch", case_sensitive=False, help="What becomes of the log tables."),
]
Archive = Annotated[bool, typer.Option("--archive", help="Keep the removed events as Parquet.")]
MaxRows = Annotated[int | None, typer.Option("--max-rows-in-tx", min=1, help="Rows of one transaction.")]
Engine = Annotated[
    EngineChoice | None,
    typer.Option("--engine", case_sensitive=False, help="What runs it; AUTO: by the rows."),
]
Throttle = Annotated[
    float | None, typer.Option("--throttle", min=0, metavar="ROWS_PER_S", help="At most this fast.")
]
Plan = Annotated[bool, typer.Option("--plan", help="Only tell what would go; nothing is written.")]


def _node(value: str, *, option: str) -> int | str:
    """Read a node id or ALL.

    Raises: typer.BadParameter.
    """
    if value.upper() == ALL:
        return ALL
    if not (value.isascii() and value.isdigit() and int(value) > 0):
        raise typer.BadParameter(f"{value!r} is neither a node id nor ALL", param_hint=option)
    return int(value)


def _duration(seconds: float) -> str:
    """Seconds as ISO 8601, to the millisecond; less than one is one, for nothing at all means for ever."""
    shown = max(seconds, 0.001) if seconds else seconds
    return f"PT{round(shown, 3):.3f}".rstrip("0").rstrip(".") + "S"


@on_service
def wait(
    session: Session,
    store: StoreId,
    *,
    origin: Nodes = ALL,
    confirmed: Nodes = ALL,
    wait_on: Annotated[
        int | None, typer.Option(min=1, help="Node whose knowledge counts; default: this store's.")
    ] = None,
    seqno: Annotated[
        int | None, typer.Option(min=1, help="With one --origin: this event, not its newest.")
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0, metavar="SECONDS", help="Exit 75 after it; 0: for ever.")
    ] = WAIT_DEFAULT_S,
    reason: Reason = REASON,
    wait: Wait = True,
) -> int:
    """Wait until events are confirmed, as slonik's WAIT FOR EVENT. Exit 75 where that takes too long.

    Example: lethe slony wait node1 --origin 1 --confirmed ALL --timeout 600
    """
    chosen = _node(origin, option="--origin")
    if seqno is not None and chosen == ALL:
        raise typer.BadParameter("it needs one --origin", param_hint="--seqno")
    request = EventWait(
        origin=chosen,
        confirmed=_node(confirmed, option="--confirmed"),
        wait_on=wait_on,
        timeout=_duration(timeout),
        seqno=seqno,
        reason=reason,
    )
    return run_job(session, session.client.slony.wait(store, request), wait=wait, timeout_s=None)


@on_service
def cleanup(
    session: Session,
    store: StoreId,
    *,
    interval: Interval = None,
    confirmed_before: Before = None,
    via: ViaOption = None,
    rule: RuleOption = None,
    log_switch: SwitchOption = None,
    archive: Archive = False,
    max_rows_in_tx: MaxRows = None,
    engine: Engine = None,
    throttle: Throttle = None,
    overlap: OverlapOption = None,
    plan: Plan = False,
    plan_id: PlanId = None,
    max_drift: MaxDrift = None,
    reason: Reason = REASON,
    wait: Wait = True,
    timeout: Timeout = None,
) -> int:
    """Remove the events that every node has confirmed; Ctrl-C stops the watching, not the cleanup.

    Example: lethe slony cleanup node1 --interval PT10M --plan
    """
    if interval is not None and confirmed_before is not None:
        raise typer.BadParameter("give one of them", param_hint="--interval / --confirmed-before")
    request = CleanupRequest(
        interval=interval,
        confirmed_before=instant(confirmed_before, option="--confirmed-before"),
        via=_chosen(via),
        rule=_chosen(rule),
        log_switch=_chosen(log_switch),
        archive=archive,
        max_rows_in_tx=max_rows_in_tx,
        engine=_chosen(engine),
        rows_per_s=throttle,
        overlap=_chosen(overlap),
        plan_id=plan_id,
        max_drift=drift(max_drift),
        reason=reason,
    )
    if plan:
        said: dict[str, Any] = {"--via": _chosen(via), "--rule": _chosen(rule), "--archive": archive}
        said |= {"--log-switch": _chosen(log_switch), "--max-rows-in-tx": max_rows_in_tx}
        said |= {"--engine": _chosen(engine), "--throttle": throttle, "--overlap": _chosen(overlap)}
        return _plan_cleanup(session, store, request, said, timeout)
    return run_job(session, session.client.slony.cleanup(store, request), wait=wait, timeout_s=timeout)


def _plan_cleanup(
    session: Session, store: str, request: CleanupRequest, said: Mapping[str, Any], timeout_s: float | None
) -> int:
    made = session.client.slony.plan_cleanup(store, request, timeout_s=timeout_s)
    session.out.document(made.raw)
    show_plan(session, made)
    words, reason = ("slony", "cleanup", store), request.reason or REASON
    run_it = of_plan(*words, plan_id=made.plan_id, reason=reason, options=said)
    end_of_plan(session.out, run_it, looks=looks_of_cleanup(made))
    return ExitCode.OK


@on_service
def switch_log(
    session: Session,
    store: StoreId,
    *,
    action: Annotated[
        Action,
        typer.Option(case_sensitive=False, help="FULL: start, wait until drained, empty the other table."),
    ] = Action.FULL,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout", min=0, metavar="SECONDS", help="For drain and lock (default 600); 0: one try."
        ),
    ] = None,
    overlap: OverlapOption = None,
    reason: Reason = REASON,
    wait: Wait = True,
) -> int:
    """Switch the log tables. Exit 75 where the other one cannot be emptied in time; nothing is harmed.

    Example: lethe slony switch-log node1
    """
    job = session.client.slony.switch_log(
        store,
        action=action.value,
        timeout=None if timeout is None else _duration(timeout),
        overlap=_chosen(overlap),
        reason=reason,
    )
    return run_job(session, job, wait=wait, timeout_s=None)


def _chosen(choice: StrEnum | None) -> str | None:
    return None if choice is None else choice.value


def run_job(
    session: Session,
    job: Job,
    *,
    wait: bool,
    timeout_s: float | None,
    show: Callable[[Session, Mapping[str, Any]], None] = show_result,
) -> int:
    """Follow a job to its end, or leave it alone; exit 75 where it ran out of its own time."""
    if not wait:
        return finish(session, job, wait=False, timeout_s=timeout_s)
    session.out.note(f"Job {job.id} (Ctrl-C leaves it running)")
    ended = follow(session, job, timeout_s=timeout_s)
    session.out.document(ended.raw)
    if ended.result:
        show(session, ended.result)
    if ended.state == "SUCCEEDED":
        return ExitCode.OK
    note_failure(session, ended)
    is_late = ended.error is not None and ended.error.code in TIMEOUTS
    return ExitCode.TRY_AGAIN if is_late else ExitCode.FAILED

"""`lethe replication session` and `lethe replication compare`: bring a consumer up to date."""

from collections.abc import Mapping
from enum import StrEnum
from itertools import islice
from typing import Annotated, Any, Final

import typer
from lethe_client import SessionRequest

from app.cli.shell.arguments import LIMIT_DEFAULT, Limit, StoreId, Timeout
from app.cli.shell.exits import ExitCode
from app.cli.shell.job_options import REASON, EngineChoice, Reason, Wait
from app.cli.shell.session import Session, on_service
from app.cli.shell.watching import finish, follow, note_failure

COUNTERS: Final = (
    "read",
    "sent",
    "covered",
    "beyond_snapshot",
    "new_rid",
    "duplicates",
    "rejected",
    "extinct",
    "acknowledged",
)

app = typer.Typer(
    name="session",
    no_args_is_help=True,
    add_completion=False,
    help="Bring a consumer up to date.",
)


class Strategy(StrEnum):
    """As the service names them."""

    WINDOW = "WINDOW"
    CLASSIC = "CLASSIC"


AgreementId = Annotated[str, typer.Argument(metavar="AGREEMENT", help="Id of the agreement.")]
StrategyOption = Annotated[
    Strategy | None,
    typer.Option("--strategy", case_sensitive=False, help="How the starting point is found."),
]


Total = Annotated[bool, typer.Option("--total", help="Make the consumer a copy: entries and vectors.")]
MaxChanges = Annotated[int | None, typer.Option("--max-changes", min=1, help="A session yields after them.")]
MaxDuration = Annotated[
    str | None, typer.Option("--max-duration", metavar="DURATION", help="A session yields after it: PT15M.")
]
Discard = Annotated[
    bool,
    typer.Option(
        "--discard-consumer-changes",
        help="With --total: what only the consumer has is lost, once an admin there has granted it.",
    ),
]
Engine = Annotated[
    EngineChoice | None, typer.Option("--engine", case_sensitive=False, help="What reads large windows.")
]
Throttle = Annotated[
    float | None, typer.Option("--throttle", min=0, metavar="ROWS_PER_S", help="At most this fast.")
]
ThrottleBytes = Annotated[
    float | None, typer.Option("--throttle-bytes", min=0, metavar="BYTES_PER_S", help="At most this fast.")
]


@app.command("start")
@on_service
def start(
    session: Session,
    store: StoreId,
    agreement: AgreementId,
    *,
    total: Total = False,
    strategy: StrategyOption = None,
    max_changes: MaxChanges = None,
    max_duration: MaxDuration = None,
    discard_consumer_changes: Discard = False,
    engine: Engine = None,
    throttle: Throttle = None,
    throttle_bytes: ThrottleBytes = None,
    reason: Reason = REASON,
    wait: Wait = True,
    timeout: Timeout = None,
) -> int:
    """Begin a session; Ctrl-C stops the watching, not the session. Exit 1 where it needs --total.

    Example: lethe replication session start orders-east agr_01jdb5q6w3r8m2k4n7p9s0t1v2
    """
    request = SessionRequest(
        mode="TOTAL" if total else "INCREMENTAL",
        strategy=None if strategy is None else strategy.value,
        max_changes=max_changes,
        max_duration=max_duration,
        discard_consumer_changes=discard_consumer_changes,
        engine=None if engine is None else engine.value,
        rows_per_s=throttle,
        bytes_per_s=throttle_bytes,
        reason=reason,
    )
    job = session.client.replication_sessions.create(store, agreement, request)
    if not wait:
        return finish(session, job, wait=False, timeout_s=timeout)
    session.out.note(f"Job {job.id} (Ctrl-C leaves it running)")
    ended = follow(session, job, timeout_s=timeout)
    session.out.document(ended.raw)
    if ended.result:
        _show_result(session, ended.result)
    if ended.state == "SUCCEEDED":
        return ExitCode.OK
    note_failure(session, ended)
    return ExitCode.FAILED


@app.command("list")
@on_service
def list_(
    session: Session,
    store: StoreId,
    *,
    agreement: Annotated[str | None, typer.Option("--agreement", help="Only of this one.")] = None,
    limit: Limit = LIMIT_DEFAULT,
) -> int:
    """List the sessions of a store as supplier, newest first.

    Example: lethe replication session list orders-east
    """
    found = list(islice(session.client.replication_sessions.list(store, agreement_id=agreement), limit))
    session.out.document([each.raw for each in found])
    columns = ["id", "agreement", "mode", "state", "outcome", "acknowledged", "began"]
    rows = [
        [
            each.id,
            each.agreement_id,
            each.mode,
            each.state,
            each.outcome,
            sum(counted["acknowledged"] for counted in each.counters.values()),
            each.started_at,
        ]
        for each in found
    ]
    session.out.table(columns, rows)
    return ExitCode.OK


@app.command("show")
@on_service
def show(
    session: Session,
    store: StoreId,
    replication_session: Annotated[str, typer.Argument(metavar="SESSION", help="Id of the session.")],
) -> int:
    """Show a session: its vectors, its windows, and what became of the changes of each RID.

    Example: lethe replication session show orders-east rps_01jdb5q6w3r8m2k4n7p9s0t1v2
    """
    found = session.client.replication_sessions.get(store, replication_session)
    session.out.document(found.raw)
    problem = found.problem
    session.out.facts(
        {
            "mode": found.mode,
            "strategy": found.strategy,
            "state": found.state,
            "outcome": found.outcome,
            "epoch": found.epoch,
            "windows done": found.windows_done,
            "rows read": found.rows_read,
            "batches": found.batches_sent,
            "bytes": found.bytes_sent,
            "problem": None if problem is None else f"{problem.code}: {problem.detail}",
        }
    )
    _show_counters(session, found.counters)
    if found.windows:
        rows = [(rid, after or "(the first)", upto) for rid, (after, upto) in found.windows.items()]
        session.out.table(["rid", "above", "up to"], rows)
    return ExitCode.OK


@on_service
def compare(
    session: Session, store: StoreId, agreement: AgreementId, *, strategy: StrategyOption = None
) -> int:
    """Ask what a session would decide now; the consumer is asked, nothing is sent.

    Example: lethe replication compare orders-east agr_01jdb5q6w3r8m2k4n7p9s0t1v2
    """
    chosen = None if strategy is None else strategy.value
    found = session.client.replication_sessions.compare(store, agreement, strategy=chosen)
    session.out.document(found.raw)
    session.out.facts(
        {
            "outcome": found.outcome,
            "reason": found.reason,
            "purged RIDs": ", ".join(map(str, found.blocked_rids)),
            # What has left the changelog cannot be counted any more.
            "missing changes": "unknown" if found.outcome == "NEEDS_TOTAL" else found.missing_total,
        }
    )
    ours, theirs = found.supplier["ruv"] or {}, found.consumer["ruv"] or {}
    rows = [
        (rid, ours.get(rid), theirs.get(rid), found.missing.get(rid), rid in found.consumer_ahead)
        for rid in sorted({*ours, *theirs}, key=int)
    ]
    session.out.table(["rid", "supplier", "consumer", "missing", "consumer ahead"], rows)
    return ExitCode.OK


def _show_result(session: Session, result: Mapping[str, Any]) -> None:
    problem = result.get("problem") or {}
    session.out.facts(
        {
            "session": result["replication_session_id"],
            "outcome": result["outcome"],
            "acknowledged": result["acknowledged"],
            "windows": result["windows"],
            "rows read": result["rows_read"],
            "batches": result["batches"],
            "bytes": result["bytes"],
            "problem": f"{problem['code']}: {problem['detail']}" if problem else None,
        }
    )
    _show_counters(session, result["counters"])


def _show_counters(session: Session, counters: Mapping[str, Any]) -> None:
    if counters:
        rows = [[rid, *(counted[name] for name in COUNTERS)] for rid, counted in counters.items()]
        session.out.table(["rid", *COUNTERS], rows)

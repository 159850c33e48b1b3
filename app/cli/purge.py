"""`lethe purge`: plan and run purges."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer
from lethe_client import Plan, PurgeRequest, RidPlan

from app.cli.kinds.table import KINDS
from app.cli.shell.after_plan import end_of_plan, looks_of_purge
from app.cli.shell.arguments import StoreId, Timeout, instant
from app.cli.shell.exits import ExitCode
from app.cli.shell.hints import of_plan
from app.cli.shell.job_options import REASON, EngineChoice, MaxDrift, PlanId, Reason, Wait, drift
from app.cli.shell.session import Session, on_service
from app.cli.shell.watching import finish, warning_text

app = typer.Typer(name="purge", no_args_is_help=True, add_completion=False, help="Plan and run purges.")
for _of_kind in KINDS.values():
    for _name, _command in _of_kind.purges.items():
        app.command(_name)(_command)


class Kind(StrEnum):
    """What api.md purges."""

    OUTGOING = "OUTGOING"
    INCOMING = "INCOMING"
    DATA_GAP = "DATA_GAP"
    EXTRACT_REQUEST = "EXTRACT_REQUEST"
    REGISTRATION_REQUEST = "REGISTRATION_REQUEST"
    INCOMING_ERROR = "INCOMING_ERROR"
    STATISTICS = "STATISTICS"
    TRIGGER_HIST = "TRIGGER_HIST"
    STRANDED = "STRANDED"
    CHANNELS = "CHANNELS"
    CHANGELOG = "CHANGELOG"
    TOMBSTONES = "TOMBSTONES"


class StrandedMode(StrEnum):
    """What becomes of what is stranded."""

    MARK = "MARK"
    SKIP = "SKIP"
    REMOVE = "REMOVE"
    RECAPTURE = "RECAPTURE"


class Overlap(StrEnum):
    """What to do where another job writes to the same target."""

    REFUSE = "REFUSE"
    QUEUE = "QUEUE"


KindOption = Annotated[Kind, typer.Option("--kind", case_sensitive=False, help="What to purge.")]
Retention = Annotated[
    int | None, typer.Option("--retention-minutes", min=0, help="Keep what is younger; not with --cutoff.")
]
Cutoff = Annotated[
    str | None,
    typer.Option(
        "--cutoff", metavar="TIME", help="Keep what is younger: RFC 3339, or a date (midnight UTC)."
    ),
]
ChannelRetention = Annotated[
    list[str],
    typer.Option(
        "--channel-retention",
        metavar="CHANNEL=MINUTES",
        help="OUTGOING: keep what is younger of this channel; again for another.",
    ),
]
StrandedOption = Annotated[
    StrandedMode | None,
    typer.Option(
        "--stranded",
        case_sensitive=False,
        help="Batches of absent or disabled nodes, or of gone channels: SKIP (unless said) keeps them;"
        " MARK gives them up as OK, and nobody ever gets them. STRANDED: REMOVE, or RECAPTURE, which removes"
        " only rows that were captured again; one of them has to be said.",
    ),
]
Strict = Annotated[
    bool | None, typer.Option("--strict/--no-strict", help="Let batches without a status protect their rows.")
]
MaxRows = Annotated[int | None, typer.Option("--max-rows-in-tx", min=1, help="Rows of one transaction.")]
MaxEntries = Annotated[
    int | None,
    typer.Option("--max-entries", min=0, help="CHANGELOG: keep so many records at most, the newest."),
]
GoneRids = Annotated[
    list[int],
    typer.Option(
        "--gone-rid",
        min=1,
        max=65_534,
        metavar="RID",
        help="TOMBSTONES: a replica id that is gone for good, and waited for no more; again for another.",
    ),
]
Force = Annotated[
    bool, typer.Option("--force", help="Allow a retention below 10 minutes; tombstones: below a day.")
]
Archive = Annotated[bool, typer.Option("--archive", help="Keep the removed rows as Parquet.")]
Throttle = Annotated[
    float | None, typer.Option("--throttle", min=0, metavar="ROWS_PER_S", help="At most this fast.")
]
ThrottleBytes = Annotated[
    float | None, typer.Option("--throttle-bytes", min=0, metavar="BYTES_PER_S", help="At most this fast.")
]
OverlapOption = Annotated[
    Overlap | None, typer.Option("--overlap", case_sensitive=False, help="Where another job is there.")
]
Engine = Annotated[
    EngineChoice | None,
    typer.Option("--engine", case_sensitive=False, help="What runs it; AUTO: by the rows."),
]


def purge_request(
    *,
    kind: Kind,
    retention_minutes: int | None,
    cutoff: str | None,
    stranded: StrandedMode | None,
    strict: bool | None,
    max_rows_in_tx: int | None,
    force: bool,
    reason: str,
    max_entries: int | None = None,
    gone_rids: Sequence[int] = (),
    archive: bool = False,
    engine: EngineChoice | None = None,
    throttle: float | None = None,
    throttle_bytes: float | None = None,
    overlap: Overlap | None = None,
    plan_id: str | None = None,
    max_drift: float | None = None,
    channel_retention: Sequence[str] = (),
) -> PurgeRequest:
    """The request that these options make.

    Raises: BadParameter.
    """
    if retention_minutes is not None and cutoff is not None:
        raise typer.BadParameter("give one of them", param_hint="--retention-minutes / --cutoff")
    return PurgeRequest(
        kind=kind.value,
        retention_minutes=retention_minutes,
        cutoff=instant(cutoff, option="--cutoff"),
        channel_retention_minutes=_of_channels(channel_retention),
        stranded=stranded.value if stranded else None,
        strict=strict,
        max_rows_in_tx=max_rows_in_tx,
        max_entries=max_entries,
        gone_rids=list(gone_rids) or None,
        archive=archive,
        engine=engine.value if engine else None,
        rows_per_s=throttle,
        bytes_per_s=throttle_bytes,
        force=force or None,
        overlap=overlap.value if overlap else None,
        plan_id=plan_id,
        max_drift=max_drift,
        reason=reason,
    )


def _of_channels(said: Sequence[str]) -> dict[str, int] | None:
    """Channel to minutes; None: no channel was named.

    Raises: BadParameter.
    """
    found: dict[str, int] = {}
    for each in said:
        channel, sign, minutes = each.rpartition("=")
        if not (channel and sign and minutes.isascii() and minutes.isdigit()):
            raise typer.BadParameter(
                f"{each!r}: write CHANNEL=MINUTES, such as sales=43200", param_hint="--channel-retention"
            )
        found[channel] = int(minutes)
    return found or None


@app.command("run")
@on_service
def run(
    session: Session,
    store: StoreId,
    *,
    kind: KindOption = Kind.OUTGOING,
    retention_minutes: Retention = None,
    cutoff: Cutoff = None,
    channel_retention: ChannelRetention = [],  # noqa: B006
    stranded: StrandedOption = None,
    strict: Strict = None,
    max_rows_in_tx: MaxRows = None,
    max_entries: MaxEntries = None,
    gone_rid: GoneRids = [],  # noqa: B006
    archive: Archive = False,
    engine: Engine = None,
    throttle: Throttle = None,
    throttle_bytes: ThrottleBytes = None,
    force: Force = False,
    overlap: OverlapOption = None,
    plan_id: PlanId = None,
    max_drift: MaxDrift = None,
    reason: Reason = REASON,
    wait: Wait = True,
    timeout: Timeout = None,
) -> int:
    """Purge a store; Ctrl-C stops the watching, not the purge.

    Example: lethe purge run shop --retention-minutes 7200 --archive
    """
    request = purge_request(
        kind=kind,
        retention_minutes=retention_minutes,
        cutoff=cutoff,
        channel_retention=channel_retention,
        stranded=stranded,
        strict=strict,
        max_rows_in_tx=max_rows_in_tx,
        max_entries=max_entries,
        gone_rids=gone_rid,
        archive=archive,
        engine=engine,
        throttle=throttle,
        throttle_bytes=throttle_bytes,
        force=force,
        overlap=overlap,
        plan_id=plan_id,
        max_drift=drift(max_drift),
        reason=reason,
    )
    return finish(session, session.client.purges.create(store, request), wait=wait, timeout_s=timeout)


@app.command("plan")
@on_service
def plan(
    session: Session,
    store: StoreId,
    *,
    kind: KindOption = Kind.OUTGOING,
    retention_minutes: Retention = None,
    cutoff: Cutoff = None,
    channel_retention: ChannelRetention = [],  # noqa: B006
    stranded: StrandedOption = None,
    strict: Strict = None,
    max_rows_in_tx: MaxRows = None,
    max_entries: MaxEntries = None,
    gone_rid: GoneRids = [],  # noqa: B006
    force: Force = False,
    reason: Reason = REASON,
    timeout: Timeout = None,
) -> int:
    """Count what a purge would remove. Nothing is written to the target.

    Example: lethe purge plan shop --retention-minutes 7200
    """
    request = purge_request(
        kind=kind,
        retention_minutes=retention_minutes,
        cutoff=cutoff,
        channel_retention=channel_retention,
        stranded=stranded,
        strict=strict,
        max_rows_in_tx=max_rows_in_tx,
        max_entries=max_entries,
        gone_rids=gone_rid,
        force=force,
        reason=reason,
    )
    made = session.client.purges.plan(store, request, timeout_s=timeout)
    session.out.document(made.raw)
    show_plan(session, made)
    said: dict[str, Any] = {"--kind": None if kind is Kind.OUTGOING else kind.value, "--force": force}
    said |= {"--stranded": stranded.value if stranded else None, "--strict": strict or None}
    said |= {"--max-rows-in-tx": max_rows_in_tx, "--max-entries": max_entries}
    words = ("purge", "run", store)
    run_it = of_plan(*words, plan_id=made.plan_id, reason=reason, options=said)
    end_of_plan(session.out, run_it, looks=looks_of_purge(made))
    return ExitCode.OK


@app.command("stats")
@on_service
def stats(session: Session, store: StoreId) -> int:
    """Measure what lies beyond the retention, per table.

    Example: lethe purge stats shop
    """
    measured = session.client.purges.stats(store)
    session.out.document(measured.raw)
    session.out.table(
        ["table", "purge", "removed", "rows (estimate)", "oldest row left", "behind retention"],
        [
            [
                each.table,
                each.kind,
                each.removed,
                each.rows_estimate,
                each.oldest_row_left,
                each.lag_behind_retention,
            ]
            for each in measured.tables
        ],
    )
    if measured.ticks:
        session.out.table(
            ["recurring purge", "cron", "time zone", "next", "last", "outcome", "its job"],
            [
                [
                    *[each.kind, each.cron, each.time_zone, each.next_at, each.last_at, each.last_outcome],
                    each.last_job_error.code if each.last_job_error else each.last_job_state,
                ]
                for each in measured.ticks
            ],
        )
    return ExitCode.OK


def _id(value: int | None) -> str | None:
    """Ids are names: their digits are not grouped."""
    return None if value is None else str(value)


def _rid_row(item: RidPlan) -> list[Any]:
    old = item.rows_eligible_by_age
    held = [item.rows_held, item.held_by]
    return [_id(item.rid), item.rows, old, item.rows_to_remove, item.upto, *held]


def _tombstones_row(item: RidPlan) -> list[Any]:
    old = item.rows_eligible_by_age
    return [_id(item.rid), item.rows, old, item.rows_to_remove, item.rows_held]


def show_plan(session: Session, made: Plan) -> None:
    """Print a plan: what it is about, tables, stranded nodes, limits, warnings."""
    out = session.out
    out.facts(
        {
            "plan": made.plan_id,
            "kind": made.kind,
            "cut-off": made.cutoff,
            "cut-off in the columns": made.cutoff_local,
            "retention (minutes)": made.retention_minutes,
            "retention from": made.retention_source,
            "records that may stay": made.max_entries,
            "entries": made.entries,
            "none above": made.ceiling,
            "held by": ", ".join(made.held_by) or None,
            "layout": made.layout,
            **{f"cut-off of {channel}": at for channel, at in made.channel_cutoffs.items()},
            "expires": made.expires_at,
        }
    )
    if made.kind == Kind.CHANGELOG:
        columns = ["rid", "records", "old enough", "to remove", "up to", "held", "held by"]
        out.table(columns, [_rid_row(each) for each in made.rids])
    elif made.kind == Kind.TOMBSTONES:
        columns = ["rid of the delete", "tombstones", "old enough", "to remove", "held"]
        out.table(columns, [_tombstones_row(each) for each in made.rids])
    else:
        out.table(
            ["table", "rows", "to remove", "from id", "to id"],
            [
                [each.table, each.rows, each.rows_to_remove, _id(each.lo), _id(each.hi)]
                for each in made.tables
            ],
        )
    if made.nodes is not None:
        out.note(f"{made.nodes} node(s) have a range of batches")
    if made.stranded.nodes:
        will = "will be given up" if made.stranded.mode == "MARK" else "stay as they are"
        nodes = [[node.node_id, node.batches, node.rows] for node in made.stranded.nodes]
        out.table(["stranded node", "batches", "rows"], nodes, title=f"Batches of these nodes {will}")
    if made.stranded.cost:
        out.note(made.stranded.cost)
    for limit in made.limits.get("exceeded") or ():
        out.note(f"over the limit, would be refused: {limit}")
    for warning in made.warnings:
        out.note(f"warning: {warning_text(warning.raw)}")

"""`lethe purge rows`: rows of any table, by age and by an expression."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import typer
from lethe_client import Plan, RowsPurge

from app.cli.shell.after_plan import Look, end_of_plan, is_beyond_plans, look_at_cutoff, looks_of_purge
from app.cli.shell.arguments import StoreId, Timeout, instant
from app.cli.shell.exits import ExitCode
from app.cli.shell.hints import of_plan
from app.cli.shell.job_options import REASON, MaxDrift, PlanId, Reason, Wait, drift
from app.cli.shell.output import cell
from app.cli.shell.session import Session, on_service
from app.cli.shell.watching import finish, warning_text

Table = Annotated[str, typer.Option("--table", help="Its exact name.")]
TimeColumn = Annotated[str | None, typer.Option("--time-column", help="Column that says how old a row is.")]
OlderThan = Annotated[str | None, typer.Option("--older-than", metavar="DURATION", help="P90D, PT12H.")]
Where = Annotated[
    str | None, typer.Option("--where", metavar="EXPRESSION", help="\"status = 'done' and not kept\"")
]
Children = Annotated[
    list[str] | None, typer.Option("--child", help="Table whose rows go first with them. Repeatable.")
]

Cutoff = Annotated[
    str | None, typer.Option("--cutoff", metavar="TIME", help="Instead of an age: RFC 3339, or a date.")
]
TimeUnit = Annotated[
    str | None, typer.Option("--time-unit", help="S or MS: the column counts these since 1970.")
]
Archive = Annotated[bool, typer.Option("--archive", help="Keep the removed rows as Parquet.")]
MaxRows = Annotated[int | None, typer.Option("--max-rows-in-tx", min=1, help="Rows of one transaction.")]
Throttle = Annotated[
    float | None, typer.Option("--throttle", min=0, metavar="ROWS_PER_S", help="At most this fast.")
]
MaxLag = Annotated[
    str | None, typer.Option("--max-replica-lag", metavar="DURATION", help="Rest while one is behind.")
]
Replicas = Annotated[
    list[str] | None, typer.Option("--replica", help="Store that is a replica of this one. Repeatable.")
]
CountOnly = Annotated[bool, typer.Option("--plan", help="Count only; nothing is written.")]


@on_service
def rows(
    session: Session,
    store: StoreId,
    *,
    table: Table,
    time_column: TimeColumn = None,
    older_than: OlderThan = None,
    cutoff: Cutoff = None,
    time_unit: TimeUnit = None,
    where: Where = None,
    child: Children = None,
    archive: Archive = False,
    max_rows_in_tx: MaxRows = None,
    throttle: Throttle = None,
    max_replica_lag: MaxLag = None,
    replica: Replicas = None,
    plan: CountOnly = False,
    plan_id: PlanId = None,
    max_drift: MaxDrift = None,
    reason: Reason = REASON,
    wait: Wait = True,
    timeout: Timeout = None,
) -> int:
    """Remove rows of a table of a store of kind SQL; with --plan count them.

    Example: lethe purge rows tickets --table ticket --time-column closed_at --older-than P90D --plan
    """
    request = RowsPurge(
        table=table,
        time_column=time_column,
        older_than=older_than,
        cutoff=instant(cutoff, option="--cutoff"),
        time_unit=time_unit,
        where=where,
        children=child or (),
        archive=archive,
        max_rows_in_tx=max_rows_in_tx,
        rows_per_s=throttle,
        max_replica_lag=max_replica_lag,
        replicas=replica or (),
        plan_id=plan_id,
        max_drift=drift(max_drift),
        reason=reason,
    )
    if not plan:
        return finish(session, session.client.purges.create(store, request), wait=wait, timeout_s=timeout)
    said: dict[str, Any] = {"--table": table, "--archive": archive, "--max-rows-in-tx": max_rows_in_tx}
    said |= {"--throttle": throttle, "--max-replica-lag": max_replica_lag, "--replica": replica}
    return _plan(session, store, request, said, timeout)


def _plan(
    session: Session, store: str, request: RowsPurge, said: Mapping[str, Any], timeout_s: float | None
) -> int:
    made = session.client.purges.plan(store, request, timeout_s=timeout_s)
    session.out.document(made.raw)
    _show(session, made)
    words, reason = ("purge", "rows", store), request.reason or REASON
    run_it = of_plan(*words, plan_id=made.plan_id, reason=reason, options=said)
    if is_beyond_plans(made):
        run_it = "More rows would go than a plan can name: repeat the command without --plan to remove them."
    end_of_plan(session.out, run_it, looks=looks_of_purge(made, _looks))
    return ExitCode.OK


def _show(session: Session, made: Plan) -> None:
    out = session.out
    out.facts({"plan": made.plan_id, "cut-off": made.cutoff, "expires": made.expires_at})
    out.table(
        ["table", "rows", "to remove"], [[each.table, each.rows, each.rows_to_remove] for each in made.tables]
    )
    for limit in made.limits.get("exceeded") or ():
        out.note(f"over the limit, would be refused: {limit}")
    for warning in made.warnings:
        out.note(f"warning: {warning_text(warning.raw)}")


def _looks(made: Plan) -> Iterable[Look]:
    where = made.raw.get("where")
    yield look_at_cutoff(made, "a later --cutoff or a shorter --older-than")
    yield f"the rows that --where {where} chooses" if where else None
    yield _held(made)
    yield f"what stays: {cell({each.table: each.rows for each in made.tables})}"


def _held(made: Plan) -> Look:
    """Rows that were chosen, and stay since others refer to them: no cut-off moves these."""
    held = sum(each.count or 0 for each in made.warnings if each.code == "HELD_BY_FOREIGN_KEY")
    if not held:
        return None
    return f"{held:,} chosen rows that rows of other tables need: --child TABLE removes both"

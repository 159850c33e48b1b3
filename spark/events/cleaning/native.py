"""NATIVE: the cleanup by the cluster's own function, planned first under the same lock.

Invariants:
- Where the function would lose what an active receiver never confirmed, it is not called.
- The call and its COMMIT are one message: the function changes the log status by setval, which no rollback
  takes back, so a client that dies must not leave the transaction open. There is no dry run.
- Afterwards what is left is held against the plan, not against what the function answers: that is always 0.

Source: facts/slony, sections 2 and 3.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from spark.events.cleaning.blockers import read_older_sessions
from spark.events.cleaning.cluster_lock import lock_cluster
from spark.events.cleaning.errors import BeyondReviewed, LogStillWritten, UnconfirmedWouldGo
from spark.events.cleaning.log_switch import heal_status
from spark.events.cleaning.log_tables import read_status
from spark.events.cleaning.native_outcome import classify
from spark.events.cleaning.plan import plan_inside
from spark.events.cleaning.records import CleanupPlan, NativeResult, Reviewed, Step, within
from spark.events.errors import FunctionsMissing
from spark.events.records import Catalog
from spark.targets.connection import Connection
from spark.targets.errors import TargetError
from spark.targets.fence import check_fence
from spark.targets.ledger import LedgerRow, find_unit, record_unit
from spark.targets.silence import application_name

FUNCTION: Final = "cleanupevent"
STEP: Final = "NATIVE"
UNIT_ID: Final = "native"


class _Committed(Exception):
    """The message has ended the transaction; leaving its block so sends nothing more."""


class _Repeated(Exception):
    """An earlier attempt of the job was committed."""

    def __init__(self, removed: dict[Step, int]) -> None:
        super().__init__()
        self.removed = removed


@dataclass(frozen=True, slots=True)
class NativeUnit:
    """One call; see UnitJob for the first four.

    Args:
        statement_timeout_ms: for the function, which has no units.
        reviewed: what may go at most, looked at under the lock; None: no plan is executed.
    """

    job_id: str
    token: int
    resource: str
    has_ledger: bool
    confirmed_before: datetime
    statement_timeout_ms: int
    reviewed: Reviewed | None = None


def run_native(conn: Connection, catalog: Catalog, unit: NativeUnit) -> NativeResult:
    """Call the function once for a job, and classify what it left.

    Raises: FunctionsMissing. UnconfirmedWouldGo, BeyondReviewed: nothing was called; LogStillWritten: it can
        be once some sessions have ended. FenceRaised, ClusterLocked. Any other
        TargetError out of the call: it was rolled back and the status is healed as far as the connection
        lasts; after a TargetUnreachable the next attempt tells by the ledger what happened.
    """
    if FUNCTION not in catalog.functions:
        raise FunctionsMissing(f"the functions of cluster {catalog.cluster!r} are not installed")
    conn.execute(
        "select set_config('application_name', :name, false)",
        {"name": application_name(unit.job_id, UNIT_ID, unit.token)},
    )
    try:
        plan = _call(conn, catalog, unit)
    except _Repeated as repeated:
        status = read_status(conn, catalog.schema)
        return NativeResult(None, "AS_PLANNED", repeated.removed, status, repeated=True)
    return classify(conn, catalog, plan)


def _call(conn: Connection, catalog: Catalog, unit: NativeUnit) -> CleanupPlan:
    was_called = False
    plan: CleanupPlan | None = None
    try:
        with conn.transaction():
            plan = _planned(conn, catalog, unit)
            was_called = True
            conn.execute(_message(conn, catalog, unit.confirmed_before))
            raise _Committed
    except _Committed:
        assert plan is not None, "it was made before the call"
        return plan
    except TargetError:
        if was_called and not conn.closed and not conn.cancelled:
            heal_status(conn, catalog)
        raise


def _planned(conn: Connection, catalog: Catalog, unit: NativeUnit) -> CleanupPlan:
    """Everything before the call: fence, lock, plan, the ledger's row.

    Raises: UnconfirmedWouldGo, BeyondReviewed, _Repeated.
    """
    if unit.has_ledger:
        check_fence(conn, unit.resource, token=unit.token)
        row = find_unit(conn, unit.job_id, UNIT_ID)
        if row is not None:
            raise _Repeated(row.detail["removed"])
    lock_cluster(conn, catalog.schema)
    conn.allow(unit.statement_timeout_ms)
    plan = plan_inside(conn, catalog, confirmed_before=unit.confirmed_before)
    if unit.reviewed is not None and within(plan, unit.reviewed) != plan:
        raise BeyondReviewed("more has been confirmed since the plan, and NATIVE would remove that too")
    if plan.hazards:
        raise _refused(conn, catalog, plan)
    if unit.has_ledger:
        detail = {"removed": plan.to_remove}
        rows = plan.rows_to_remove
        record_unit(conn, LedgerRow(unit.job_id, UNIT_ID, STEP, unit.token, unit.token, rows, detail))
    return plan


def _refused(conn: Connection, catalog: Catalog, plan: CleanupPlan) -> UnconfirmedWouldGo:
    words = "; ".join(item.detail for item in plan.hazards)
    if all(item.kind == "LOG_STILL_WRITTEN" for item in plan.hazards):
        return LogStillWritten(words, read_older_sessions(conn, catalog.schema, plan.log_switch.table))
    return UnconfirmedWouldGo(words)


def _message(conn: Connection, catalog: Catalog, confirmed_before: datetime) -> str:
    """The interval is measured from the transaction's own instant, as the function measures it back."""
    function = conn.dialect.qualify(catalog.schema, FUNCTION)
    instant = confirmed_before.astimezone(UTC).isoformat()
    return f"select {function}(current_timestamp - timestamp with time zone '{instant}'); commit"

"""The task of a plan: how many records an extinction would reach now. Nothing is written."""

from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import BaseModel

from app.extinction.counting import Counted, HandsTaker, count_in_environment
from app.extinction.models import ExtinctionPlanRead
from app.extinction.sizing import hint_of
from app.jobs.running.context import JobContext
from app.jobs.running.sql_target import read_store_of
from app.jobs.running.suspension import suspended_wait
from app.replication.supplier.signals import supplying_replica
from app.stores.limits import Reach, judge
from app.stores.rows import Store, StoreKind, is_suspended
from spark.extinction.counting import count_entries, count_matching
from spark.formats.extinction import Extinction

PLAN_EXTINCTION: Final = "EXTINCTION"


class PlanParams(BaseModel):
    """The snapshot of a plan: the extinction as its record would be."""

    plan: Literal["EXTINCTION"] = "EXTINCTION"
    extinction: str


def run_extinction_plan(context: JobContext, *, take_hands: HandsTaker) -> Mapping[str, Any]:
    """Count, and return the plan that clients see.

    Raises: JobSignal.
    """
    store = read_store_of(context)
    now = context.clock.now()
    if is_suspended(store, now=now):
        raise suspended_wait(store.id, now=now, until=store.suspended_until)
    extinction = Extinction.parse(PlanParams.model_validate(context.job.params).extinction.encode())
    if store.kind == StoreKind.JE:
        found = count_in_environment(context, store, extinction, take_hands=take_hands)
    else:
        found = _count_in_replica(context, store, extinction)
    shown = ExtinctionPlanRead(
        plan_id=context.job.id,
        store=store.id,
        records=found.records,
        bytes=found.bytes,
        hint=hint_of(found.records),
        limits=judge(store, found.reach),
    )
    return shown.model_dump(mode="json")


def _count_in_replica(context: JobContext, store: Store, extinction: Extinction) -> Counted:
    with supplying_replica(context, store) as conn, conn.transaction(read_only=True):
        records, size = count_matching(conn, extinction)
        entries = count_entries(conn)
    return Counted(records, size, Reach(rows=records, part=records, whole=entries))

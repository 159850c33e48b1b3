"""The task of a plan: how many records an extinction would reach now. Nothing is written."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from app.extinction.counting import Counted, HandsTaker, count_in_environment
from app.extinction.models import ExtinctionPlanRead, PlanParams
from app.extinction.reviewed import keep_keys, keep_ruv
from app.extinction.sizing import hint_of
from app.jobs.running.context import JobContext
from app.jobs.running.suspension import awake_store
from app.replication.supplier.signals import supplying_replica
from app.stores.limits import judge
from app.stores.models import Reach, StoreKind
from app.stores.rows import Store
from spark.extinction.counting import count_entries, count_matching
from spark.formats.extinction import Extinction
from spark.replication.replica.replica import read_vectors

PLAN_EXTINCTION: Final = "EXTINCTION"


def run_extinction_plan(context: JobContext, *, take_hands: HandsTaker) -> Mapping[str, Any]:
    """Count, and return the plan that clients see.

    Raises: JobSignal.
    """
    store = awake_store(context)
    now = context.clock.now()
    extinction = Extinction.parse(PlanParams.model_validate(context.job.params).extinction.encode())
    if store.kind == StoreKind.JE:
        found = count_in_environment(context, store, extinction, take_hands=take_hands, keys=True)
        keep_keys(context, found.keys)
    else:
        found = _count_in_replica(context, store, extinction)
    shown = ExtinctionPlanRead(
        plan_id=context.job.id,
        store=store.id,
        records=found.records,
        bytes=found.bytes,
        hint=hint_of(found.records),
        limits=judge(store, found.reach),
        expires_at=now + timedelta(seconds=context.settings.plan_valid_s),
    )
    return shown.model_dump(mode="json")


def _count_in_replica(context: JobContext, store: Store, extinction: Extinction) -> Counted:
    with supplying_replica(context, store) as conn, conn.transaction(read_only=True):
        records, size = count_matching(conn, extinction)
        entries, ruv = count_entries(conn), read_vectors(conn).ruv
    keep_ruv(context, ruv)
    return Counted(records, size, Reach(rows=records, part=records, whole=entries))

"""The task of a SYNC that may be due: look, claim, look again under the cluster's lock, make it.

Rules:
- where a look without any lock finds that none is due, nothing is claimed and nothing is written;
- an attempt after one that had claimed asks the ledger first: its own SYNC is young, and would look like
  somebody else's.
"""

from collections.abc import Mapping
from typing import Any

import structlog

from app.events.cleanup.service import target_fields
from app.events.nodes import refuse_copy
from app.events.syncs.models import SyncMaking, SyncParams, SyncResult
from app.events.syncs.service import sync_resource
from app.jobs.running.abandonment import CHECKPOINT_TARGET
from app.jobs.running.context import JobContext
from app.kit.durations import duration_of
from app.stores.rows import Store
from app.sweeps.frame import asked, claim_and_trim
from spark.events.catalog import read_catalog
from spark.events.health.reading import read_own_slon
from spark.events.records import Catalog
from spark.events.syncing import SyncOutcome, SyncUnit, is_due, make_due_sync, read_last_sync
from spark.targets.connection import Connection

logger = structlog.get_logger("lethe.events")


def run_sync(context: JobContext) -> Mapping[str, Any]:
    """Make a SYNC of the node where one is due, and return the result that clients see.

    Raises: JobSignal.
    """
    with asked(context, SyncParams, target_fields=target_fields) as (conn, store, params):
        assert store.cluster is not None, "a store of kind SLONY names its cluster"
        catalog = read_catalog(conn, store.cluster)
        last = read_last_sync(conn, catalog)
        if context.checkpoint(CHECKPOINT_TARGET) is None and not is_due(last, params.interval):
            done = SyncOutcome(None, last)
        else:
            done = _make(context, conn, store, params, catalog)
        return _result(conn, catalog, params, done)


def _make(
    context: JobContext, conn: Connection, store: Store, params: SyncParams, catalog: Catalog
) -> SyncOutcome:
    refuse_copy(context.database, context.settings, store, conn, catalog)
    claimed = claim_and_trim(context, conn, resource=sync_resource(store))
    context.check()
    unit = SyncUnit(
        job_id=context.job.id,
        token=context.job.token,
        resource=claimed.resource,
        interval=params.interval,
        has_ledger=claimed.has_ledger,
    )
    done = make_due_sync(conn, catalog, unit)
    if done.made is not None:
        logger.info("SYNC made", store=store.id, node=catalog.local_node, seqno=done.made)
    return done


def _result(conn: Connection, catalog: Catalog, params: SyncParams, done: SyncOutcome) -> dict[str, Any]:
    age = None if done.last is None else duration_of(max(0.0, done.last.age.total_seconds()))
    result = SyncResult(
        outcome=SyncMaking.NOT_DUE if done.made is None else SyncMaking.MADE,
        origin=catalog.local_node,
        seqno=done.made,
        last_seqno=None if done.last is None else done.last.seqno,
        last_age=age,
        interval=params.interval,
        has_own_slon=read_own_slon(conn, catalog),
    )
    return result.model_dump(mode="json")

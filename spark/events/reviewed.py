"""A cleanup within a reviewed plan, counted: what of it is there now and would go now."""

from dataclasses import replace

from spark.events.cleaning.records import CleanupPlan, OriginPlan, PairPlan, Reviewed, Rule, within
from spark.events.records import Catalog
from spark.formats.slony import SYNC
from spark.targets.connection import Connection


def count_within(conn: Connection, catalog: Catalog, plan: CleanupPlan, reviewed: Reviewed) -> CleanupPlan:
    """The part of a plan that was reviewed, its rows counted up to where they were reviewed.

    Args:
        plan: what would go now, counted.
    """
    assert plan.is_counted, "what is given by seqnos is not counted"
    bounded = within(plan, reviewed)
    origins = (
        item if item == now else _recounted(conn, catalog, item, rule=plan.rule)
        for item, now in zip(bounded.origins, plan.origins, strict=True)
    )
    pairs = (
        item if item == now else _recounted_pair(conn, catalog, item)
        for item, now in zip(bounded.pairs, plan.pairs, strict=True)
    )
    return replace(bounded, origins=tuple(origins), pairs=tuple(pairs))


def _recounted(conn: Connection, catalog: Catalog, item: OriginPlan, *, rule: Rule) -> OriginPlan:
    if item.bound is None:
        return item
    [(rows, syncs, seqlog, script)] = conn.execute(
        "select (select count(*) from {event} where ev_origin = :origin and ev_seqno < :bound),"
        " (select count(*) from {event} where ev_origin = :origin and ev_seqno < :bound and ev_type = :sync),"
        " (select count(*) from {seqlog} where seql_origin = :origin and seql_ev_seqno < :bound),"
        " (select count(*) from {script} where log_origin = :origin and log_txid <"
        " (select pg_catalog.txid_snapshot_xmin(ev_snapshot) from {event}"
        " where ev_origin = :origin and ev_seqno = :bound))".format(
            event=conn.dialect.qualify(catalog.schema, "sl_event"),
            seqlog=conn.dialect.qualify(catalog.schema, "sl_seqlog"),
            script=conn.dialect.qualify(catalog.schema, "sl_log_script"),
        ),
        {"origin": item.origin, "bound": item.bound, "sync": SYNC},
    )
    return replace(
        item,
        rows_to_remove=int(syncs if rule == "MANUAL" else rows),
        syncs_to_remove=int(syncs),
        seqlog_rows=min(item.seqlog_rows, int(seqlog)),
        log_script_rows=min(item.log_script_rows, int(script)),
    )


def _recounted_pair(conn: Connection, catalog: Catalog, item: PairPlan) -> PairPlan:
    if not item.rows_to_remove or item.keep is None:
        return item
    [(rows,)] = conn.execute(
        f"select count(*) from {conn.dialect.qualify(catalog.schema, 'sl_confirm')}"
        " where con_origin = :origin and con_received = :receiver and con_seqno < :keep",
        {"origin": item.origin, "receiver": item.receiver, "keep": item.keep},
    )
    return replace(item, rows_to_remove=int(rows))

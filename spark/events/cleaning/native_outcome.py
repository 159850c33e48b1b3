"""What the program's cleanup left, held against the plan that was made under its lock.

More may be gone than was planned: a confirmation that is old enough arrived meanwhile, or another cleaner
came next. The model run over what is left tells whether that explains it.
"""

from dataclasses import dataclass, field

from spark.events.cleaning.plan import plan_cleanup
from spark.events.cleaning.records import Classification, CleanupPlan, NativeResult, OriginPlan, PairPlan
from spark.events.records import Catalog
from spark.targets.connection import Connection


@dataclass(slots=True)
class _Found:
    alarms: list[str] = field(default_factory=list)
    more: list[str] = field(default_factory=list)


def classify(conn: Connection, catalog: Catalog, plan: CleanupPlan) -> NativeResult:
    """Compare the catalog as it is now with what the plan says should be left."""
    now = plan_cleanup(conn, catalog, confirmed_before=plan.confirmed_before)
    lowest = _lowest_confirmations(conn, catalog.schema)
    nodes = {
        node
        for (node,) in conn.execute(f"select no_id from {conn.dialect.qualify(catalog.schema, 'sl_node')}")
    }
    found = _Found()
    for origin in plan.origins:
        if origin.origin in nodes:
            _compare_events(found, origin, now.origin(origin.origin))
    for pair in plan.pairs:
        if {pair.origin, pair.receiver} <= nodes:
            _compare_pair(found, pair, lowest.get((pair.origin, pair.receiver)))
    _compare_status(found, plan, now)
    classification: Classification = "AS_PLANNED"
    if found.alarms:
        classification = "ALARM"
    elif found.more:
        classification = "MORE_BY_NEWER_CONFIRMATIONS"
    return NativeResult(
        plan, classification, plan.to_remove, now.log_switch.status, (*found.alarms, *found.more)
    )


def _compare_events(found: _Found, planned: OriginPlan, now: OriginPlan | None) -> None:
    name = f"origin {planned.origin}"
    first = planned.first_seqno if planned.bound is None else max(planned.bound, planned.first_seqno)
    if now is None:
        found.alarms.append(f"{name}: no event is left, {first} should be")
    elif now.first_seqno < first:
        found.alarms.append(f"{name}: event {now.first_seqno} is left, the first should be {first}")
    elif now.first_seqno > first:
        text = f"{name}: the first event left is {now.first_seqno}, planned was {first}"
        is_explained = now.bound is not None and now.bound >= now.first_seqno
        (found.more if is_explained else found.alarms).append(text)
    elif now.oldest_sync == planned.oldest_sync and now.seqlog_rows + now.log_script_rows:
        rows = now.seqlog_rows + now.log_script_rows
        found.alarms.append(f"{name}: {rows} rows that follow the events are left")


def _compare_pair(found: _Found, planned: PairPlan, lowest: int | None) -> None:
    name = f"confirmations of origin {planned.origin} by node {planned.receiver}"
    assert planned.keep is not None, "both nodes were there"
    if lowest is None:
        found.alarms.append(f"{name}: none is left, {planned.keep} should be")
    elif lowest < planned.keep:
        found.alarms.append(f"{name}: {lowest} is left, the lowest should be {planned.keep}")
    elif lowest > planned.keep:
        found.more.append(f"{name}: the lowest left is {lowest}, planned was {planned.keep}")


def _compare_status(found: _Found, plan: CleanupPlan, now: CleanupPlan) -> None:
    """A switch that was to end may have met a lock, and another cleaner may have gone on."""
    before, after = plan.log_switch.status, now.log_switch.status
    if plan.log_switch.step == "BLOCKED" and after != before and not found.more:
        found.alarms.append(f"the log status is {int(after)}, though {plan.log_switch.table} was not drained")
    if plan.log_switch.step == "START" and after == before:
        found.alarms.append(f"the log status is still {int(after)}: no switch was started")


def _lowest_confirmations(conn: Connection, schema: str) -> dict[tuple[int, int], int]:
    rows = conn.execute(
        "select con_origin, con_received, min(con_seqno)"
        f" from {conn.dialect.qualify(schema, 'sl_confirm')} group by con_origin, con_received"
    )
    return {(origin, receiver): lowest for origin, receiver, lowest in rows}

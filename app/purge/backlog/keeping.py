"""The look at a store's backlog: made by its checks, once in `backlog.period`, kept, judged and told.

Rules:
- a look that is not due asks the target nothing; its findings are those of the last one;
- who looks moves `at` on in the transaction that keeps the look, under the row of the store: two that look at
  once leave one sample, and tell a growth once;
- a look that cannot read is kept as a problem: the next one is not earlier than usual, and figures that are
  old are not taken for new ones;
- a growth that pauses for less than a window is the same growth: it is told once.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from sqlmodel import Session

from app.db import Database
from app.errors import MetadataBusy, MetadataUnavailable
from app.kit.durations import format_duration
from app.outbox.facts import Fact
from app.outbox.writing import tell
from app.parameters.service import GlobalValues, effective, global_values, known_parameter
from app.purge.backlog.models import BacklogRead, HolderWhy, LookKept, PairKept
from app.purge.backlog.rows import BacklogLook
from app.purge.backlog.samples import drop_samples, fine_samples, keep_sample
from app.purge.backlog.service import Limits, backlog_of, is_capped, judged, limits_of, look_of
from app.purge.backlog.trend import LOOKED_BACK
from app.purge.cutoff import TARGET_PARAMETER, target_parameters
from app.settings import Settings
from app.stores.checks.models import Finding, FindingSeverity
from app.stores.rows import Store
from app.stores.service import target_of_row
from app.stores.targets import session_limits, target_of
from spark.purge.reading.backlog import BacklogReading, read_backlog
from spark.purge.reading.inspect import Inspection
from spark.targets.connection import connect
from spark.targets.errors import TargetError

STATEMENT_TIMEOUT_MS: Final = 10_000
EARLY: Final = timedelta(seconds=30)
"""A check that comes so much before its time is not left out: clocks of ticks differ."""
NAMED_MAX: Final = 3


def backlog_findings(
    database: Database, store: Store, settings: Settings, inspection: Inspection, *, now: datetime
) -> list[Finding]:
    """Look where it is due, keep it, and tell what is wrong by what is kept.

    Args:
        inspection: of the same check; a target that may not be read has none of its own.
        now: by our clock.
    """
    if any(right == "SELECT" for _table, right in inspection.permissions_missing):
        return []
    try:
        with database.reading() as db:
            values = global_values(db)
            limits = limits_of(db, store, values, settings)
            look = look_of(db, store)
        if not limits.period:
            return []
        if look is None or now >= look.at + limits.period - min(limits.period / 10, EARLY):
            found = _read(database, store, settings, inspection)
            _keep(database, store, found, inspection, limits, values, now=now)
        with database.reading() as db:
            told = backlog_of(db, store, limits, now=now)
    except (MetadataUnavailable, MetadataBusy):
        return []
    return list(_findings(told))


def _read(
    database: Database, store: Store, settings: Settings, inspection: Inspection
) -> BacklogReading | TargetError:
    usual = session_limits(settings)
    limits = replace(usual, statement_timeout_ms=min(usual.statement_timeout_ms, STATEMENT_TIMEOUT_MS))
    try:
        with connect(
            target_of(store, settings, database),
            application_name="lethe:backlog",
            limits=limits,
            read_only=True,
        ) as conn:
            return read_backlog(
                conn, inspection.layout, time_zone=store.time_zone, encoding=inspection.time_encoding
            )
    except TargetError as error:
        return error


def _keep(
    database: Database,
    store: Store,
    found: BacklogReading | TargetError,
    inspection: Inspection,
    limits: Limits,
    values: GlobalValues,
    *,
    now: datetime,
) -> None:
    target = target_of_row(store)
    with database.transaction(is_news=False) as db:
        kept = db.get(Store, store.id, with_for_update=True)
        if kept is None or target_of_row(kept) != target:
            return  # removed, or led to another database, while this one was asked
        row = db.get(BacklogLook, store.id)
        if row is None or row.target != target:
            if row is not None:
                db.delete(row)
                drop_samples(db, store.id)
                db.flush()
            row = BacklogLook(store=store.id, at=now, target=target, interval_s=0)
        row.at, row.interval_s = now, int(limits.interval.total_seconds())
        row.problem = found.code if isinstance(found, TargetError) else None
        if isinstance(found, BacklogReading):
            retention = effective(
                db,
                known_parameter(TARGET_PARAMETER),
                store.parameters,
                target_values=target_parameters(inspection),
                values=values,
            )
            look = _kept(found, retention_minutes=int(retention.value))
            row.found, row.read_at, row.as_of = look.model_dump(mode="json"), now, inspection.now
            keep_sample(db, store.id, _sample(look), at=now)
            _note_growth(db, row, look, limits, now=now)
        db.add(row)


def _kept(found: BacklogReading, *, retention_minutes: int) -> LookKept:
    pairs = []
    for each in found.pairs:
        seen = found.nodes.get(each.node)
        pairs.append(
            PairKept(
                node=each.node,
                channel=each.channel,
                batches=each.batches,
                errors=each.errors,
                rows=each.rows,
                oldest_batch=each.oldest_batch,
                oldest_at=each.oldest_at,
                status=each.status,
                is_in_error=each.is_in_error,
                is_enabled=None if seen is None else seen.is_enabled,
                heartbeat_at=None if seen is None else seen.heartbeat_at,
            )
        )
    known = found.known
    return LookKept(
        batches=found.batches,
        errors=found.errors,
        rows=found.rows,
        is_at_least=found.is_at_least,
        pairs=pairs,
        pairs_total=found.pairs_total,
        retention_minutes=retention_minutes,
        nodes=None if known is None or known.nodes is None else list(known.nodes),
        channels=None if known is None or known.channels is None else list(known.channels),
    )


def _sample(look: LookKept) -> dict[str, Any]:
    names = {"node", "channel", "batches", "errors", "rows", "oldest_batch"}
    return {
        "batches": look.batches,
        "errors": look.errors,
        "rows": look.rows,
        "is_at_least": look.is_at_least,
        "pairs": [each.model_dump(include=names) for each in look.pairs],
        "pairs_total": look.pairs_total,
    }


def _note_growth(db: Session, row: BacklogLook, look: LookKept, limits: Limits, *, now: datetime) -> None:
    """Begin, go on with or end a growth; what begins is told."""
    samples = fine_samples(db, row.store, since=now - LOOKED_BACK - limits.window)
    whole, by_pair = judged(samples, limits, [(each.node, each.channel) for each in look.pairs])
    growing = [trend for trend in by_pair.values() if trend.is_growing]
    goes_on = is_capped(samples) and row.grows_since is not None
    if whole.is_growing or growing or goes_on:
        begins = row.grows_since is None
        row.grew_at = now
        row.grows_since = row.grows_since or now
        if begins:
            _tell(db, row, look, limits, whole.per_hour, pairs=len(growing), now=now)
    elif row.grew_at is not None and now - row.grew_at > limits.window:
        row.grows_since = row.grew_at = None


def _tell(
    db: Session,
    row: BacklogLook,
    look: LookKept,
    limits: Limits,
    per_hour: float | None,
    *,
    pairs: int,
    now: datetime,
) -> None:
    data = {
        "store": row.store,
        "batches": look.batches,
        "errors": look.errors,
        "rows": look.rows,
        "batches_per_hour": None if per_hour is None else round(per_hour, 1),
        "window": format_duration(limits.window),
        "pairs_growing": pairs,
    }
    tell(db, Fact.BACKLOG_GROWS, store=row.store, subject=f"stores/{row.store}/backlog", data=data, now=now)


def _findings(told: BacklogRead) -> Iterator[Finding]:
    if told.problem is not None:
        detail = f"what waits to be delivered could not be read ({told.problem}); figures of it are old"
        yield Finding(code="BACKLOG_UNREAD", severity=FindingSeverity.INFO, detail=detail)
        return
    if told.trend.is_growing:
        yield Finding(code="BACKLOG_GROWS", severity=FindingSeverity.WARNING, detail=_growth(told))
    held = [each for each in told.holders if each.holds_purge]
    if held:
        named = ", ".join(
            f"node {each.node} on channel {each.channel} (batch {each.batch}, {each.why})"
            for each in held[:NAMED_MAX]
        )
        more = f" and {len(held) - NAMED_MAX} more nodes" if len(held) > NAMED_MAX else ""
        detail = f"batches older than the retention wait: {named}{more}; a purge keeps their rows"
        known = next((each for each in held if each.why is not HolderWhy.UNDER_WAY), held[0])
        detail += f". Node {known.node}: {known.advice}"
        yield Finding(code="BACKLOG_HOLDS_PURGE", severity=FindingSeverity.WARNING, detail=detail)


def _growth(told: BacklogRead) -> str:
    at_least = "at least " if told.is_at_least else ""
    growing = sorted(
        (each for each in told.pairs if each.is_growing), key=lambda each: -(each.batches_per_hour or 0.0)
    )
    named = "".join(
        f"; node {each.node} on channel {each.channel}: {each.batches:,}" for each in growing[:NAMED_MAX]
    )
    more = f" and {len(growing) - NAMED_MAX} more" if len(growing) > NAMED_MAX else ""
    speed = told.trend.batches_per_hour
    rate = "" if speed is None else f", {speed:+,.0f} an hour over {format_duration(told.trend.window)}"
    return f"{at_least}{told.batches:,} batches wait{rate}{named}{more}"

"""One unit of a cleanup: one short transaction under the cluster's lock; picklable, repeatable.

Invariants:
- What allows a range to go is proved again under the lock, from the rows that are there then; where it does
  not hold any more, nothing of the range goes (`is_held`).
- Of each origin the lowest events go first, so whatever prefix of the units was done leaves a catalog that
  the program works with.
- Rows, ledger row and manifest row are committed together.
- Log rows are never deleted: see `log_switch`.

Source: facts/slony, section 2.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from spark.events.cleaning.cluster_lock import lock_cluster
from spark.events.cleaning.nodelock import remove_stale
from spark.events.cleaning.records import Rule, Step
from spark.events.floors import (
    OldestSync,
    confirmed_by_all,
    is_node,
    is_single_node,
    late_receiver,
    newest_event,
    newest_sync,
    oldest_sync,
    read_receivers,
)
from spark.formats.slony import SYNC
from spark.targets.archive.archive import archive_delete
from spark.targets.connection import Connection
from spark.targets.fence import check_fence
from spark.targets.key_order import read_by_index
from spark.targets.ledger import LedgerRow, find_unit, record_manifest, record_unit
from spark.targets.manifest import ManifestEntry
from spark.targets.silence import application_name

SHARED_STEPS: Final[frozenset[Step]] = frozenset({"CONFIRM", "EVENT"})
"""Units of these go beside each other; events of an origin go after its confirmations, as by the program."""
_EVENTS = "sl_event"


@dataclass(frozen=True, slots=True)
class UnitJob:
    """What all units of an attempt share; see `spark.purge.unit` for the words.

    Args:
        token: of the fence and of the attempt.
        resource: names the fence's row.
        has_ledger: without it the caller holds the advisory lock.
        archive_dir: where removed events go; None: they are not kept.
    """

    job_id: str
    token: int
    resource: str
    has_ledger: bool = True
    archive_dir: str | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """Rows of one origin, `lo` and `hi` included: seqnos, of LOG_SCRIPT transactions.

    Args:
        receiver: CONFIRM: whose; None: the table has none.
        below: CONFIRM: the row that stays; None: a node of the pair is gone. EVENT: the bound. SEQLOG and
            LOG_SCRIPT: the SYNC that is the oldest left.
    """

    origin: int
    lo: int
    hi: int
    below: int | None = None
    receiver: int | None = None


@dataclass(frozen=True, slots=True)
class CleanupUnit:
    """One transaction; NODELOCK has no spans, EVENT one."""

    job: UnitJob
    schema: str
    local_node: int
    step: Step
    spans: tuple[Span, ...]
    rule: Rule

    @property
    def unit_id(self) -> str:
        """Safe in a file name; the same when the unit is tried again."""
        if self.step == "EVENT":
            [span] = self.spans
            return f"event-{span.origin}-{span.lo}-{span.hi}"
        # With the token: rows of the same range may have come back since an earlier attempt.
        digest = hashlib.sha256(repr((self.spans, self.job.token)).encode()).hexdigest()
        return f"{self.step.lower()}-{digest[:16]}"


@dataclass(frozen=True, slots=True)
class UnitResult:
    """What one unit did.

    Args:
        repeated: an earlier try had done it; `rows` are that one's.
        is_held: what allowed the range to go does not hold any more; nothing went.
    """

    rows: int
    repeated: bool = False
    archive: ManifestEntry | None = None
    is_held: bool = False


def run_unit(conn: Connection, unit: CleanupUnit) -> UnitResult:
    """Do one unit, or nothing of it.

    Raises: FenceRaised: somebody claimed the resource. ClusterLocked, TargetLockTimeout: try again; any other
        TargetError. After a TargetUnreachable out of the COMMIT the same unit finds its ledger row.
    """
    job = unit.job
    conn.execute(
        "select set_config('application_name', :name, false)",
        {"name": application_name(job.job_id, unit.unit_id, job.token)},
    )
    with conn.transaction():
        if job.has_ledger:
            check_fence(conn, job.resource, token=job.token)
            row = find_unit(conn, job.job_id, unit.unit_id)
            if row is not None:
                return UnitResult(row.rows_affected, repeated=True)
            # What is lost with the server is not done, by its ledger row too, until `make_durable`.
            # A manifest is waited for, with its file.
            if job.archive_dir is None:
                conn.execute("select set_config('synchronous_commit', 'off', true)")
        # Ranges of two origins do not meet, nor do two ranges of one.
        lock_cluster(conn, unit.schema, is_shared=unit.step in SHARED_STEPS)
        # Dead rows leave the statistics behind, and one pass over the whole table would hold the lock.
        read_by_index(conn)
        done = _remove(conn, unit)
        if job.has_ledger and not done.is_held:
            _record(conn, unit, done)
    return done


def make_durable(conn: Connection, job: UnitJob) -> None:
    """Wait until the units of an attempt are on disk: a commit that waits for its log waits for earlier ones.

    Raises: FenceRaised; any other TargetError.
    """
    assert job.has_ledger, "without a ledger each unit waits for its own commit"
    with conn.transaction():
        check_fence(conn, job.resource, token=job.token)
        record_unit(conn, LedgerRow(job.job_id, f"durable-{job.token}", "DURABLE", job.token, job.token, 0))


def _record(conn: Connection, unit: CleanupUnit, done: UnitResult) -> None:
    job = unit.job
    detail = {"spans": [[span.origin, span.receiver, span.lo, span.hi] for span in unit.spans]}
    row = LedgerRow(job.job_id, unit.unit_id, unit.step, job.token, job.token, done.rows, detail)
    record_unit(conn, row)
    if done.archive is not None:
        record_manifest(conn, done.archive)


def _remove(conn: Connection, unit: CleanupUnit) -> UnitResult:
    if unit.step == "EVENT":
        return _remove_events(conn, unit)
    if unit.step == "NODELOCK":
        return UnitResult(remove_stale(conn, unit.schema))
    if unit.step == "CONFIRM":
        return UnitResult(sum(_remove_confirmations(conn, unit.schema, span) for span in unit.spans))
    return UnitResult(sum(_remove_following(conn, unit, span) for span in unit.spans))


def _remove_events(conn: Connection, unit: CleanupUnit) -> UnitResult:
    [span] = unit.spans
    assert span.below is not None, "events go below a SYNC that stays"
    if not _may_go(conn, unit, span.origin, span.below):
        return UnitResult(0, is_held=True)
    events = conn.dialect.qualify(unit.schema, _EVENTS)
    delete = f"delete from {events} where ev_origin = :origin and ev_seqno between :lo and :hi"
    asked: dict[str, int | str] = {
        "origin": span.origin,
        "lo": span.lo,
        "hi": min(span.hi, span.below - 1),
    }
    if unit.rule == "MANUAL":
        delete += " and ev_type = :sync"
        asked["sync"] = SYNC
    job = unit.job
    if job.archive_dir is None:
        return UnitResult(conn.execute_count(delete, asked))
    entry = archive_delete(
        conn,
        delete,
        asked,
        table=_EVENTS,
        directory=Path(job.archive_dir),
        job_id=job.job_id,
        unit_id=unit.unit_id,
        token=job.token,
    )
    return UnitResult(0 if entry is None else entry.rows, archive=entry)


def _may_go(conn: Connection, unit: CleanupUnit, origin: int, bound: int) -> bool:
    """Whether events below the bound may go by what is confirmed now; the bound itself must be there."""
    if origin == unit.local_node and is_single_node(conn, unit.schema, unit.local_node):
        newest = newest_event(conn, unit.schema, origin)
        if newest is None:
            return False
        last_sync = newest_sync(conn, unit.schema, origin, upto=newest)
        return bound <= (newest if last_sync is None else last_sync)
    upto = confirmed_by_all(read_receivers(conn, unit.schema, origin))
    return upto is not None and bound <= upto and newest_sync(conn, unit.schema, origin, upto=bound) == bound


def _remove_confirmations(conn: Connection, schema: str, span: Span) -> int:
    confirm, node = conn.dialect.qualify(schema, "sl_confirm"), conn.dialect.qualify(schema, "sl_node")
    if span.below is None:
        allowed = (
            f"(not exists (select from {node} where no_id = :origin)"
            f" or not exists (select from {node} where no_id = :receiver))"
        )
    else:
        allowed = (
            f"c.con_seqno < :below and exists (select from {confirm} k where k.con_origin = :origin"
            " and k.con_received = :receiver and k.con_seqno = :below)"
        )
    return conn.execute_count(
        f"delete from {confirm} c where c.con_origin = :origin and c.con_received = :receiver"
        f" and c.con_seqno between :lo and :hi and {allowed}",
        {
            "origin": span.origin,
            "receiver": span.receiver,
            "lo": span.lo,
            "hi": span.hi,
            "below": span.below,
        },
    )


def _remove_following(conn: Connection, unit: CleanupUnit, span: Span) -> int:
    """Rows of sl_seqlog below the oldest SYNC that is left, of sl_log_script below its snapshot."""
    oldest = _oldest_left(conn, unit, span)
    if oldest is None or oldest.xmin is None:
        return 0
    if _is_awaited(conn, unit.schema, span.origin, oldest.seqno):
        return 0
    table, origin, key, end = (
        ("sl_seqlog", "seql_origin", "seql_ev_seqno", oldest.seqno)
        if unit.step == "SEQLOG"
        else ("sl_log_script", "log_origin", "log_txid", oldest.xmin)
    )
    return conn.execute_count(
        f"delete from {conn.dialect.qualify(unit.schema, table)}"
        f" where {origin} = :origin and {key} between :lo and :hi",
        {"origin": span.origin, "lo": span.lo, "hi": min(span.hi, end - 1)},
    )


def _is_awaited(conn: Connection, schema: str, origin: int, seqno: int) -> bool:
    """Whether an active receiver has still to process a SYNC, and what came before it."""
    return is_node(conn, schema, origin) and late_receiver(conn, schema, origin, seqno) is not None


def _oldest_left(conn: Connection, unit: CleanupUnit, span: Span) -> OldestSync | None:
    """The oldest SYNC: the planned one where all have confirmed it, else whichever is found.

    To find it means to pass by every dead row below it, and the events below the planned one went just now.
    """
    assert span.below is not None, "what follows the events goes below a SYNC"
    is_proved = _may_go(conn, unit, span.origin, span.below)
    return oldest_sync(conn, unit.schema, span.origin, from_seqno=span.below if is_proved else 0)

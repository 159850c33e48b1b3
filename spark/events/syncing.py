"""A SYNC of a node that has made none for a while, as generate_syncs of Slony-I makes it.

Without a slon a node makes no SYNC, and all that is written meanwhile comes to its subscribers as one piece.

Rules:
- whether one is due is decided under the lock that Slony-I's own programs take before they make an event: of
  two at once one makes it, and none is made beside that of a slon;
- only SYNCs of the node itself count, by the node's own clock;
- the SYNC and its ledger row are committed together, so a repetition finds what it did;
- where none is due nothing is written; where the first look says so, nothing is locked either.

The program's function generate_sync_event takes no lock, and a SYNC that is dated in the future keeps it
silent until then. Here one of the future counts no longer than an interval: after a clock was set to an
earlier time work is cut into pieces again.
Source: slony1-engine, tools/generate_syncs.sh and generate_sync_event; facts/slony, sections 4, 5 and 8.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from spark.events.events import insert_sync, lock_events, require_create_event
from spark.events.records import Catalog
from spark.formats.slony import SYNC
from spark.targets.connection import Connection
from spark.targets.fence import check_fence
from spark.targets.ledger import LedgerRow, find_unit, record_unit
from spark.targets.silence import application_name

STEP: Final = "SYNC"
UNIT_ID: Final = "sync"
# The clock of the moment: a transaction that has waited for the lock began before the SYNC that it finds.
_NEWEST: Final = """
    select ev_seqno, extract(epoch from clock_timestamp() - ev_timestamp) from {event}
    where ev_origin = cast(:origin as integer) and ev_type = :type and isfinite(ev_timestamp)
    order by ev_seqno desc limit 1
"""


@dataclass(frozen=True, slots=True)
class LastSync:
    """The newest SYNC of a node; its age is below nothing where it is dated in the future."""

    seqno: int
    age: timedelta


@dataclass(frozen=True, slots=True)
class SyncUnit:
    """One transaction for a job; see UnitJob for the words."""

    job_id: str
    token: int
    resource: str
    interval: timedelta
    has_ledger: bool = True


@dataclass(frozen=True, slots=True)
class SyncOutcome:
    """What became of it.

    Args:
        made: the SYNC; None: none was due.
        last: the newest of the node before; None: it had none.
        repeated: an earlier attempt of the job had made it.
    """

    made: int | None
    last: LastSync | None
    repeated: bool = False


def read_last_sync(conn: Connection, catalog: Catalog) -> LastSync | None:
    """The newest SYNC that the node itself has made; None: none is here."""
    rows = conn.execute(
        _NEWEST.format(event=conn.dialect.qualify(catalog.schema, "sl_event")),
        {"origin": catalog.local_node, "type": SYNC},
    )
    return None if not rows else LastSync(int(rows[0][0]), timedelta(seconds=float(rows[0][1])))


def is_due(last: LastSync | None, interval: timedelta) -> bool:
    """Whether a node is to make a SYNC: it has none, or none within the interval."""
    return last is None or abs(last.age) >= interval


def make_due_sync(conn: Connection, catalog: Catalog, unit: SyncUnit) -> SyncOutcome:
    """Make a SYNC of the node where one is due; one transaction.

    Raises: FunctionsMissing, NodeUninitialised; FenceRaised: somebody claimed the resource;
        TargetLockTimeout: an event is being made just now. After a TargetUnreachable out of the COMMIT the
        same unit finds its ledger row.
    """
    require_create_event(catalog)
    conn.execute(
        "select set_config('application_name', :name, false)",
        {"name": application_name(unit.job_id, UNIT_ID, unit.token)},
    )
    with conn.transaction():
        if unit.has_ledger:
            check_fence(conn, unit.resource, token=unit.token)
        lock_events(conn, catalog)
        row = find_unit(conn, unit.job_id, UNIT_ID) if unit.has_ledger else None
        if row is not None:
            return _repeated(row)
        last = read_last_sync(conn, catalog)
        if not is_due(last, unit.interval):
            return SyncOutcome(None, last)
        made = insert_sync(conn, catalog).seqno
        if unit.has_ledger:
            detail = {"seqno": made} | ({} if last is None else _noted(last))
            record_unit(conn, LedgerRow(unit.job_id, UNIT_ID, STEP, unit.token, unit.token, 1, detail))
    return SyncOutcome(made, last)


def _noted(last: LastSync) -> dict[str, Any]:
    return {"last": last.seqno, "last_age_s": last.age.total_seconds()}


def _repeated(row: LedgerRow) -> SyncOutcome:
    last = row.detail.get("last")
    before = None if last is None else LastSync(last, timedelta(seconds=row.detail["last_age_s"]))
    return SyncOutcome(row.detail["seqno"], before, repeated=True)

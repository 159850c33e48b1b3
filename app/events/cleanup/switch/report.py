"""From the lower floor's values of a log switch to what clients see, and to the words of a job that waits."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from app.events.cleanup.report import log_origin_read
from app.events.cleanup.switch.models import LogSessionRead, LogStatusRead, LogTableRead
from app.jobs.models import WaitingOn
from app.kit.durations import duration_of
from spark.events.cleaning.records import (
    Blocked,
    Healed,
    LogOrigin,
    LogTable,
    Session,
)
from spark.events.cleaning.records import LogStatusRead as LogLook
from spark.events.lock_holders import read_holders
from spark.events.records import Catalog
from spark.targets.connection import Connection

SHOWN_MAX: Final = 5
"""Sessions or origins that a waiting job names; the status shows all."""
REF_MAX_CHARS: Final = 200
WAITING_KINDS: Final = {
    "LOCKED": "LOG_TABLE_LOCKED",
    "OLD_TRANSACTION": "OLD_TRANSACTION",
    "NOT_DRAINED": "LOG_NOT_DRAINED",
}


def status_read(store: str, catalog: Catalog, look: LogLook, *, as_of: datetime) -> LogStatusRead:
    """Show the state of the log tables."""
    return LogStatusRead(
        store=store,
        local_node=catalog.local_node,
        as_of=as_of,
        status=int(look.status),
        active=look.active.name,
        other=look.other.name,
        is_switching=look.status.is_switching,
        started_at=look.started_at,
        needs_healing=look.needs_healing,
        tables=[_table_read(look.active, "ACTIVE"), _table_read(look.other, "OTHER")],
        origins=[log_origin_read(item) for item in look.origins],
        blockers=[session_read(item) for item in look.sessions],
    )


def _table_read(table: LogTable, role: str) -> LogTableRead:
    return LogTableRead.model_validate(
        {
            "name": table.name,
            "role": role,
            "rows_estimate": table.rows_estimate,
            "bytes": table.bytes,
            "is_empty": table.is_empty,
        }
    )


def session_read(item: Session) -> LogSessionRead:
    """Show a session."""
    return LogSessionRead(
        pid=item.pid,
        application=item.application_name,
        user=item.user,
        state=item.state,
        transaction_age=duration_of(item.age_s),
        backend_xid=item.backend_xid,
        backend_xmin=item.backend_xmin,
        has_lock=item.has_lock,
        is_older=item.is_older,
    )


def waiting_on(blocked: Blocked) -> list[WaitingOn]:
    """What a switch waits for, one entry for each origin or session."""
    kind = WAITING_KINDS[blocked.why]
    if blocked.why == "NOT_DRAINED":
        return undrained(blocked.table, blocked.origins)
    if not blocked.sessions:
        return [WaitingOn(kind=kind, ref=f"{blocked.table}: somebody's lock, gone by now")]
    return [
        WaitingOn(kind=kind, ref=session_text(item)[:REF_MAX_CHARS]) for item in blocked.sessions[:SHOWN_MAX]
    ]


def undrained(table: str, origins: Sequence[LogOrigin]) -> list[WaitingOn]:
    """The origins whose rows keep a log table from being emptied."""
    held = [item for item in origins if not item.is_drained]
    return [
        WaitingOn(kind="LOG_NOT_DRAINED", ref=origin_text(table, item)[:REF_MAX_CHARS])
        for item in held[:SHOWN_MAX]
    ]


def locked_by(conn: Connection, catalog: Catalog) -> list[WaitingOn]:
    """Who holds the cluster's lock."""
    holders = read_holders(conn, catalog.schema) or ["somebody who has let it go by now"]
    return [WaitingOn(kind="CLUSTER_LOCKED", ref=f"sl_config_lock: {who}"[:REF_MAX_CHARS]) for who in holders]


def origin_text(table: str, item: LogOrigin) -> str:
    """Why an origin's rows keep a log table."""
    if item.reason == "NO_SYNC":
        return f"{table} has rows of node {item.origin}, of which there is no SYNC: nobody knows who has them"
    if item.reason == "NOT_CONFIRMED":
        return f"node {item.receiver} has not confirmed SYNC {item.oldest_sync} of node {item.origin}"
    return (
        f"{table} has rows of node {item.origin} from transaction {item.undrained_txid} on, which"
        f" SYNC {item.oldest_sync} (xmin {item.xmin}) does not cover: every receiver has yet to confirm a"
        " later one"
    )


def session_text(item: Session) -> str:
    """A session in one line."""
    who = (
        "a prepared transaction"
        if item.pid is None
        else f"pid {item.pid} ({item.application_name or 'unnamed'})"
    )
    age = "" if item.age_s is None else f", for {item.age_s:.0f} s"
    return f"{who} of {item.user}, {item.state or 'state hidden'}{age}"


def blocked_result(blocked: Blocked) -> dict[str, Any]:
    """What stood in the way, in a job's result."""
    return {
        "why": blocked.why,
        "table": blocked.table,
        "origins": [log_origin_read(item).model_dump() for item in blocked.origins if not item.is_drained],
        "sessions": [session_read(item).model_dump(mode="json") for item in blocked.sessions],
    }


def healed_warning(healed: Healed) -> dict[str, str]:
    """That the status was repaired."""
    return {
        "code": "LOG_STATUS_HEALED",
        "detail": f"sl_log_status was {int(healed.before)}, which calls {healed.table} empty, but it had rows"
        f" that slons would not read: somebody rolled a cleanup back. It is {int(healed.after)} now, so that"
        " both tables are read again.",
    }

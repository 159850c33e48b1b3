"""Log switches as clients ask for them, the snapshot of a job, and the state of the two log tables."""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field

from app.events.cleanup.models import EventOverlap, LogOriginRead, written
from app.kit.durations import Duration
from app.kit.model import Model
from app.kit.values import Text

JOB_SWITCH: Final = "LOG_SWITCH"
LOG_STATUS: Final[dict[str, Any]] = {
    "store": "lab-1",
    "local_node": 1,
    "as_of": "2026-11-20T08:12:05Z",
    "status": 3,
    "active": "sl_log_2",
    "other": "sl_log_1",
    "is_switching": True,
    "started_at": "2026-11-20T08:02:05Z",
    "needs_healing": False,
    "tables": [
        {"name": "sl_log_2", "role": "ACTIVE", "rows_estimate": 1361, "bytes": 262144, "is_empty": False},
        {"name": "sl_log_1", "role": "OTHER", "rows_estimate": 1484, "bytes": 270336, "is_empty": False},
    ],
    "origins": [
        {
            "origin": 1,
            "oldest_sync": 5_000_000_103,
            "xmin": 3238,
            "undrained_txid": 3240,
            "is_drained": False,
            "reason": "NOT_DRAINED",
            "receiver": None,
        }
    ],
    "blockers": [
        {
            "pid": 4711,
            "application": "psql",
            "user": "shop",
            "state": "idle in transaction",
            "transaction_age": "PT12M3.5S",
            "backend_xid": 3240,
            "backend_xmin": 3240,
            "has_lock": True,
            "is_older": True,
        }
    ],
}
TIMEOUT_DEFAULT: Final = timedelta(minutes=10)
TIMEOUT_MAX: Final = timedelta(days=1)


class SwitchAction(StrEnum):
    """What to do with the two log tables."""

    START = "START"
    FINISH = "FINISH"
    FULL = "FULL"


def _bounded(value: timedelta) -> timedelta:
    if not timedelta(0) <= value <= TIMEOUT_MAX:
        raise ValueError("from PT0S to P1D")
    return value


SwitchTimeout = Annotated[Duration, BeforeValidator(written), AfterValidator(_bounded)]


class SwitchRequest(Model):
    """Switch the log tables of a node."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"action": "FULL", "timeout": "PT30M", "reason": "sl_log_1 is large"}]
        },
    )

    action: SwitchAction = Field(
        description="START: let writers write the other table. FINISH: empty the former one once every row of"
        " it is confirmed. FULL: both, or only FINISH where a switch is under way."
    )
    timeout: SwitchTimeout = Field(
        default=TIMEOUT_DEFAULT,
        description="How long to wait for confirmations and for locks, at most P1D; PT0S: one try.",
    )
    overlap: EventOverlap = EventOverlap.REFUSE
    reason: Text | None = Field(default=None, max_length=500)


class SwitchParams(Model):
    """The snapshot of a switch at its submission; every attempt uses it."""

    action: SwitchAction
    timeout: Duration
    overlap: EventOverlap
    target: dict[str, Any] = Field(description="The store's target as it was.")


class LogTableRead(Model):
    """One of the two log tables."""

    name: str
    role: Literal["ACTIVE", "OTHER"] = Field(description="ACTIVE: writers write it.")
    rows_estimate: int | None = Field(description="By the target's statistics; null: never counted.")
    bytes: int
    is_empty: bool


class LogSessionRead(Model):
    """A session of the target that stands in the way of emptying the other table."""

    pid: int | None = Field(description="Null: a prepared transaction.")
    application: str
    user: str
    state: str | None
    transaction_age: Duration | None = Field(description="Null: Lethe's role may not see it.")
    backend_xid: int | None
    backend_xmin: int | None
    has_lock: bool = Field(description="It holds a lock on the table.")
    is_older: bool = Field(description="Its transaction began before the switch: it may still write there.")


class LogStatusRead(Model):
    """Where the log switch of a node stands."""

    model_config = ConfigDict(json_schema_extra={"examples": [LOG_STATUS]})

    store: str
    local_node: int
    as_of: datetime = Field(description="By the node's own clock.")
    status: int = Field(
        description="sl_log_status. 0: sl_log_1 is written, sl_log_2 empty; 1: the other way round; 2:"
        " sl_log_1 is written, sl_log_2 is to be emptied; 3: the other way round."
    )
    active: str
    other: str
    is_switching: bool
    started_at: datetime | None = Field(description="When the last switch began, by sl_registry.")
    needs_healing: bool = Field(
        description="The status calls the other table empty, and it has rows that slons do not read: somebody"
        " rolled a cleanup back. The next cleanup or switch by Lethe repairs it."
    )
    tables: list[LogTableRead]
    origins: list[LogOriginRead] = Field(description="That have rows in the other table.")
    blockers: list[LogSessionRead]

"""A backlog as it is kept of a look, and as clients see it."""

from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from pydantic import ConfigDict, Field

from app.kit.durations import Duration
from app.kit.model import Model


class BacklogStatus(StrEnum):
    """How it stands, as plugins of Nagios say it."""

    OK = "OK"
    WARNING = "WARNING"
    CRITICAL = "CRITICAL"
    UNKNOWN = "UNKNOWN"


class HolderWhy(StrEnum):
    """Why the oldest batch of a node and channel still waits."""

    NODE_UNKNOWN = "NODE_UNKNOWN"
    NODE_DISABLED = "NODE_DISABLED"
    BATCH_IN_ERROR = "BATCH_IN_ERROR"
    NODE_SILENT = "NODE_SILENT"
    STUCK = "STUCK"
    UNDER_WAY = "UNDER_WAY"


class PairKept(Model):
    """What of a channel waited for a node."""

    node: str
    channel: str
    batches: int
    errors: int
    rows: int
    oldest_batch: int
    oldest_at: datetime | None
    status: str | None
    is_in_error: bool
    is_enabled: bool | None
    heartbeat_at: datetime | None


class LookKept(Model):
    """What a look found, as it is kept.

    Attributes:
        nodes, channels: all that the target knows; None: nobody can say.
    """

    batches: int
    errors: int
    rows: int
    is_at_least: bool
    pairs: list[PairKept]
    pairs_total: int
    retention_minutes: int
    nodes: list[str] | None = None
    channels: list[str] | None = None


_HOLDER: Final[dict[str, Any]] = {
    "node": "store-17",
    "channel": "sales",
    "batch": 4711,
    "status": "ER",
    "at": "2026-11-12T08:41:05Z",
    "age": "P8DT2H13M36S",
    "holds_purge": True,
    "why": "BATCH_IN_ERROR",
    "heartbeat_at": "2026-11-20T10:50:00Z",
    "advice": "Look at the error of this batch in SymmetricDS (sym_outgoing_batch, sym_incoming_error at the"
    " node), and mend or ignore it: nothing behind it goes on this channel.",
}
_PAIR: Final[dict[str, Any]] = {
    "node": "store-17",
    "channel": "sales",
    "batches": 7400,
    "errors": 1,
    "rows": 81400,
    "oldest_batch": 4711,
    "oldest_at": "2026-11-12T08:41:05Z",
    "batches_per_hour": 41.5,
    "is_growing": True,
}
_SAMPLE: Final[dict[str, Any]] = {
    "at": "2026-11-20T10:54:41.1Z",
    "batches": 7415,
    "errors": 1,
    "rows": 81560,
    "is_at_least": False,
}
_TREND: Final[dict[str, Any]] = {
    "window": "PT2H",
    "looks": 24,
    "batches_per_hour": 41.5,
    "rows_per_hour": 456.0,
    "is_growing": True,
    "rise": 55,
    "since": "2026-11-20T09:14:41.1Z",
}


class BacklogHolderRead(Model):
    """The oldest batch that waits for a node."""

    model_config = ConfigDict(json_schema_extra={"examples": [_HOLDER]})

    node: str = Field(description="Its id in SymmetricDS; -1: rows that were routed to nobody.")
    channel: str = Field(description="The channel of that batch.")
    batch: int = Field(description="Its id.")
    status: str | None = Field(description="Of the batch, as SymmetricDS has it: NE, SE, ER and others.")
    at: datetime | None = Field(description="When it was made; null: its time is NULL.")
    age: Duration | None = Field(description="By the target's clock, at the look.")
    holds_purge: bool = Field(
        description="It is older than the retention: its rows of sym_data, and those of later batches of its"
        " range, stay because of it."
    )
    why: HolderWhy = Field(description="Why it still waits, as far as can be seen.")
    heartbeat_at: datetime | None = Field(
        description="The node's last heartbeat (sym_node_host); null: not known."
    )
    advice: str = Field(description="What to do next.")


class BacklogPairRead(Model):
    """What of a channel waits for a node."""

    model_config = ConfigDict(json_schema_extra={"examples": [_PAIR]})

    node: str = Field(description="Its id in SymmetricDS.")
    channel: str = Field(description="The channel.")
    batches: int = Field(description="How many batches wait.")
    errors: int = Field(description="How many of them are in error.")
    rows: int = Field(description="Rows of data in these batches.")
    oldest_batch: int = Field(description="The least id of them.")
    oldest_at: datetime | None = Field(description="The least time of them; null: it is NULL.")
    batches_per_hour: float | None = Field(
        description="Slope in the window; null: too few looks have this pair."
    )
    is_growing: bool | None = Field(description="As of the trend of all; null: too few looks.")


class BacklogTrendRead(Model):
    """How a backlog has changed in the window that ends with the last look."""

    model_config = ConfigDict(json_schema_extra={"examples": [_TREND]})

    window: Duration = Field(description="`backlog.window`, and at least the time of six looks.")
    looks: int = Field(description="How many lie in it.")
    batches_per_hour: float | None = Field(description="Slope, by least squares; null: fewer than two looks.")
    rows_per_hour: float | None = Field(description="The same of the rows.")
    is_growing: bool | None = Field(
        description="Even the least of the window's last third is more than all before its middle third, the"
        " day before the window too. Null: too few looks, or they do not reach back that far."
    )
    rise: int | None = Field(
        description="By how many batches it is more; below zero: it is not. Null: as `is_growing`."
    )
    since: datetime | None = Field(description="When this growth was noticed first; null: none is under way.")


class BacklogSampleRead(Model):
    """What waited at a look: the last of five minutes, or of six hours where it is older than two days."""

    model_config = ConfigDict(json_schema_extra={"examples": [_SAMPLE]})

    at: datetime = Field(description="When the look was made.")
    batches: int | None = Field(description="Null: the look did not tell what was asked for.")
    errors: int | None = Field(description="Those in error; null as `batches`.")
    rows: int | None = Field(description="Rows of data in these batches; null as `batches`.")
    is_at_least: bool = Field(description="There was more than was read.")


class BacklogRead(Model):
    """What waits to be delivered by SymmetricDS: now, over time, and what holds the purge back."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "store": "shop",
                    "status": "CRITICAL",
                    "checked_at": "2026-11-20T10:54:41.1Z",
                    "as_of": "2026-11-20T10:54:41Z",
                    "problem": None,
                    "interval": "PT5M",
                    "retention": "P5D",
                    "batches": 7415,
                    "errors": 1,
                    "rows": 81560,
                    "is_at_least": False,
                    "trend": _TREND,
                    "holders": [_HOLDER],
                    "pairs": [_PAIR],
                    "pairs_total": 3,
                    "samples": [_SAMPLE],
                }
            ]
        }
    )

    store: str = Field(description="Its id.")
    status: BacklogStatus = Field(
        description="WARNING: it grows, or a batch that waits holds the purge back; CRITICAL: both; UNKNOWN:"
        " no look could read it lately."
    )
    checked_at: datetime | None = Field(description="When it was looked at last; null: never.")
    as_of: datetime | None = Field(
        description="By the target's clock, of the look that is shown; null: none could read."
    )
    problem: str | None = Field(description="Code of what kept the last look from reading; null: nothing.")
    interval: Duration = Field(description="From look to look.")
    retention: Duration | None = Field(
        description="`purge.retention.minutes` in effect at the look: what is older holds the purge back."
    )
    batches: int = Field(description="How many batches wait, of those that were asked for.")
    errors: int = Field(description="How many of them are in error.")
    rows: int = Field(description="Rows of data in them, once for each node that they go to.")
    is_at_least: bool = Field(description="There is more than was read, or than is shown by pairs.")
    trend: BacklogTrendRead = Field(description="How it has changed.")
    holders: list[BacklogHolderRead] = Field(description="One for each node, the oldest batch first.")
    pairs: list[BacklogPairRead] = Field(
        description="By node and channel, the oldest batch first; 100 at most."
    )
    pairs_total: int = Field(description="How many pairs of node and channel there are.")
    samples: list[BacklogSampleRead] = Field(description="Looks since `since`, the oldest first.")

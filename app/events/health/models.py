"""The health of a node, and of a cluster, as clients see it."""

from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Literal

from pydantic import ConfigDict, Field

from app.kit.durations import Duration
from app.kit.model import Model


class HealthStatus(StrEnum):
    """How well it is, as plugins of Nagios say it."""

    OK = "OK"
    WARNING = "WARNING"
    CRITICAL = "CRITICAL"
    UNKNOWN = "UNKNOWN"


_FINDING: Final[dict[str, Any]] = {
    "code": "RECEIVER_LAGS",
    "severity": "CRITICAL",
    "node": 3,
    "seen_by": ["lab-1", "lab-2"],
    "detail": "node 3 has not confirmed events of node 1, 2 for 41 min: it holds back their cleanup and that"
    " the log tables are emptied",
    "advice": "Start or restart the slon of node 3 and look at its log; a node that is gone for good is"
    " removed by slonik (DROP NODE).",
    "measured": 2477.3,
    "limit": 1800.0,
    "unit": "SECONDS",
}
_NODE: Final[dict[str, Any]] = {
    "store": "lab-1",
    "node": 1,
    "status": "CRITICAL",
    "as_of": "2026-11-20T08:41:05Z",
    "lag": "PT41M17.3S",
    "sync_age": "PT4.2S",
    "transaction_age": None,
    "table_rows": {"sl_log_1": 1484, "sl_log_2": 1361, "sl_seqlog": 119, "sl_event": 183, "sl_confirm": 154},
}


class HealthFindingRead(Model):
    """One thing that is wrong."""

    model_config = ConfigDict(json_schema_extra={"examples": [_FINDING]})

    code: str = Field(description="Stable, UPPER_SNAKE; the runbook has an entry for each.")
    severity: Literal[HealthStatus.WARNING, HealthStatus.CRITICAL, HealthStatus.UNKNOWN] = Field(
        description="UNKNOWN: it could not be looked at."
    )
    node: int | None = Field(description="The node that it is about; null: its id is not known.")
    seen_by: list[str] = Field(description="The stores whose nodes see it, in the order of their nodes.")
    detail: str = Field(description="What is wrong, with numbers.")
    advice: str = Field(description="What to do next.")
    measured: float | None = Field(
        description="What was measured, in `unit`; null: it is not a matter of more or less."
    )
    limit: float | None = Field(description="What it may be, in `unit`.")
    unit: Literal["SECONDS", "ROWS"] | None = Field(description="Of `measured` and `limit`.")


class NodeHealthRead(Model):
    """One node of the cluster as it was looked at."""

    model_config = ConfigDict(json_schema_extra={"examples": [_NODE]})

    store: str = Field(description="The store that is the node.")
    node: int | None = Field(description="Its id in the cluster; null: it did not tell, now or before.")
    status: HealthStatus = Field(description="The worst of what this node sees.")
    as_of: datetime | None = Field(description="By the node's own clock; null: it could not be asked.")
    lag: Duration | None = Field(
        description="Age of the oldest event here that an active receiver has not confirmed; PT0S: none is."
    )
    sync_age: Duration | None = Field(description="Age of the newest SYNC that this node has made.")
    transaction_age: Duration | None = Field(
        description="Of the oldest open transaction at the node's server; null: there is none."
    )
    table_rows: dict[str, int] = Field(
        description="Rows of the cluster's own tables, as the server estimates them."
    )


class SlonyHealthRead(Model):
    """What is wrong, the worst first, and how each node was found."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"cluster": "lab", "status": "CRITICAL", "nodes": [_NODE], "findings": [_FINDING]}]
        }
    )

    cluster: str = Field(description="Its name.")
    status: HealthStatus = Field(
        description="The worst of all findings: CRITICAL, then WARNING, then UNKNOWN; OK: there is none."
    )
    nodes: list[NodeHealthRead] = Field(
        description="The nodes that were to be asked, by number; last those of which none is known."
    )
    findings: list[HealthFindingRead] = Field(description="Each fault once, the worst first.")

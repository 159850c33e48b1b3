"""Rows of a SymmetricDS database from short notes, and from the recorded reference data."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tests.oracles.symmetricds_database import Row, Rows
from tests.oracles.symmetricds_incoming import noted_purge
from tests.oracles.symmetricds_random import CUTOFF
from tests.oracles.symmetricds_schema import Version, reference_database

# Above all gaps of the notes: the program has purged there.
PURGED_UP_TO = 1_000_000
OLD = CUTOFF - timedelta(hours=1)
YOUNG = CUTOFF + timedelta(hours=1)

# n1 and n2 are enabled, off is not, unset is NULL; every other node is absent.
NODES = (("n1", 1), ("n2", 1), ("off", 0), ("unset", None))


def noted_rows(
    version: Version,
    *,
    data: Mapping[int, datetime | None],
    events: Iterable[tuple[int, int]],
    batches: Iterable[Sequence[Any]],
) -> Rows:
    """All tables from notes.

    Args:
        version: the layout.
        data: create_time by data_id.
        events: (data_id, batch_id).
        batches: (batch_id, status, create_time) of node n1, or (batch_id, status, create_time, node_id).
    """
    router = {"router_id": "r"} if version == "2.x" else {}
    captured: Row = {"table_name": "item", "event_type": "I", "trigger_hist_id": 1, "row_data": '"1",'}
    return {
        "data": [{"data_id": key, "create_time": time, **captured} for key, time in data.items()],
        "data_event": [{"data_id": d, "batch_id": b, "create_time": OLD, **router} for d, b in events],
        "outgoing_batch": [
            {"batch_id": b[0], "status": b[1], "create_time": b[2], "node_id": b[3] if len(b) == 4 else "n1"}
            for b in batches
        ],
        "node": [
            {"node_id": node, "node_group_id": "g", "external_id": node, "sync_enabled": enabled}
            for node, enabled in NODES
        ],
    }


def noted_incoming(batches: Iterable[tuple[int, str, str | None, datetime | None]]) -> Rows:
    """Rows of sym_incoming_batch from (batch_id, node_id, status, create_time)."""
    names = ("batch_id", "node_id", "status", "create_time")
    return {"incoming_batch": [dict(zip(names, batch, strict=True)) for batch in batches]}


def noted_gaps(version: Version, gaps: Mapping[int, tuple[bool, datetime]]) -> Rows:
    """Rows of sym_data_gap from {start_id: (whether the gap is over, time that counts)}.

    What 2.x does not look at, create_time, is as misleading as can be.
    """
    if version == "3.x":
        return {
            "context": noted_purge(PURGED_UP_TO),
            "data_gap": [
                {"start_id": start, "end_id": start + 4, "is_expired": int(over), "create_time": time}
                for start, (over, time) in gaps.items()
            ],
        }
    return {
        "data_gap": [
            {
                "start_id": start,
                "end_id": start + 4,
                "status": ("SK", "OK", "FL")[start % 3] if over else "GP",
                "create_time": YOUNG if time < CUTOFF else OLD,
                "last_update_time": time,
            }
            for start, (over, time) in gaps.items()
        ]
    }


@dataclass(frozen=True)
class Reference:
    """The recorded rows, and the keys which the document's statements remove from them."""

    rows: Rows
    cutoff: datetime
    stranded: list[tuple[int, str]]
    data: list[int]
    data_event: list[tuple[int, int]]
    outgoing_batch: list[tuple[int, str]]


def read_reference(version: Version) -> Reference:
    """Read the JSON that lies beside the reference database; times become naive datetimes."""
    path = reference_database(version).with_suffix(".json.gz")
    recorded = json.loads(gzip.decompress(path.read_bytes()))
    expected = recorded["expected"]
    rows = {
        name.removeprefix("sym_"): [
            dict(zip(table["columns"], map(_time_or_value, row), strict=True)) for row in table["rows"]
        ]
        for name, table in recorded["tables"].items()
    }
    return Reference(
        rows=rows,
        cutoff=datetime.fromisoformat(expected["cutoff"]),
        stranded=[tuple(key) for key in expected["updated_stranded"]],
        data=expected["data"],
        data_event=[tuple(key) for key in expected["data_event"]],
        outgoing_batch=[tuple(key) for key in expected["outgoing_batch"]],
    )


def _time_or_value(value: Any) -> Any:
    is_time = isinstance(value, str) and len(value) == 26 and value[4] == "-" and value[10] == " "
    return datetime.fromisoformat(value) if is_time else value

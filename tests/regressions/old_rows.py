"""Old rows of the tables of SymmetricDS 3.x, as many of a kind of purge as a test wants."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from tests.oracles.symmetricds import CUTOFF, Place, session
from tests.oracles.symmetricds_upkeep import TABLES

OLD = CUTOFF - timedelta(days=9)


def data_event(number: int) -> dict[str, Any]:
    return {"data_id": number, "batch_id": number, "create_time": OLD}


def data(number: int) -> dict[str, Any]:
    row = {"data_id": number, "table_name": "t", "event_type": "I", "trigger_hist_id": 1}
    return {**row, "channel_id": "gone", "create_time": OLD}


def batch(number: int) -> dict[str, Any]:
    return {"batch_id": number, "node_id": "n", "status": "OK", "create_time": OLD}


def updated(number: int) -> dict[str, Any]:
    return {"create_time": OLD, "last_update_time": OLD} | {"status": "OK", "host_name": str(number)}


OLD_ROWS: dict[str, dict[str, Callable[[int], dict[str, Any]]]] = {
    "OUTGOING": {"data": data, "data_event": data_event, "outgoing_batch": batch},
    "INCOMING": {"incoming_batch": batch},
    "DATA_GAP": {
        "data_gap": lambda number: {
            "start_id": 5 * number,
            "end_id": 5 * number + 1,
            "is_expired": 1,
            "create_time": OLD,
        }
    },
    "EXTRACT_REQUEST": {
        "table_reload_status": lambda number: {
            "load_id": number,
            "source_node_id": "n",
            "target_node_id": "m",
            "completed": 1,
            "last_update_time": OLD,
        }
    },
    "REGISTRATION_REQUEST": {
        "registration_request": lambda number: {
            "node_group_id": "g",
            "external_id": f"{number:04d}",
            "ip_address": "::1",
            **updated(number),
        }
    },
    "INCOMING_ERROR": {
        "incoming_error": lambda number: {
            "batch_id": number,
            "node_id": "n",
            "failed_row_number": 1,
            "target_table_name": "t",
            "event_type": "I",
            "column_names": "a",
            "pk_column_names": "a",
            "last_update_time": OLD,
        }
    },
    "STATISTICS": {
        "node_host_stats": lambda number: {
            "node_id": "n",
            "host_name": f"{number:04d}",
            "start_time": OLD,
            "end_time": OLD,
        }
    },
    "TRIGGER_HIST": {
        "trigger_hist": lambda number: {
            "trigger_hist_id": number,
            "trigger_id": "t",
            "source_table_name": "t",
            "column_names": "a",
            "pk_column_names": "a",
            "last_trigger_build_reason": "S",
            "create_time": OLD,
            "inactive_time": OLD,
        }
    },
    "STRANDED": {"data": data},
    "CHANNELS": {"data": data},
}
MUST_BE_THERE: dict[str, dict[str, list[dict[str, Any]]]] = {
    "OUTGOING": {"data": [data(900)], "outgoing_batch": [batch(900)]},
    "DATA_GAP": {"context": [{"name": "purge.last.data.id", "context_value": "100000"}]},
    "STRANDED": {
        "data": [data(900)],
        "data_event": [data_event(900)],
        "outgoing_batch": [batch(900)],
        "data_gap": [{"start_id": 901, "end_id": 999, "is_expired": 0, "create_time": OLD}],
    },
    "CHANNELS": {"data": [data(900)], "channel": [{"channel_id": "default"}]},
}
"""What has to be there, and stays."""
UPKEEP = tuple(TABLES)


def insert(place: Place, kind: str, numbers: range) -> None:
    """Rows with these numbers that a purge of a kind removes."""
    with session(place) as target:
        for table, make in OLD_ROWS[kind].items():
            rows = [make(number) for number in numbers]
            names = list(rows[0])
            values = ", ".join(f":{name}" for name in names)
            encoded = [{name: place.encode(row[name]) for name in names} for row in rows]
            target.write(f"insert into {place.name(table)} ({', '.join(names)}) values ({values})", encoded)

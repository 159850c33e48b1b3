"""The oracle of the purge OUTGOING where channels have a retention of their own, by sets.

A row, a batch and the events of a batch go by the cut-off of their own channel: what is younger stays, also
between others that go. Everything else is as in the purge without: what is not delivered keeps its rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.oracles.symmetricds import DELIVERED, Row, Rows


def expected_by_channel(rows: Rows, cutoff: Any, of_channels: Mapping[str, Any]) -> Rows:
    """Every row that the purge must leave; no batch is marked. `rows` is not changed."""

    def is_old(row: Row) -> bool:
        bound = of_channels.get(row["channel_id"], cutoff)
        return row["create_time"] is not None and row["create_time"] < bound

    batches, events, data = rows["outgoing_batch"], rows["data_event"], rows["data"]
    open_ids = {
        row["batch_id"] for row in batches if row["status"] is not None and row["status"] not in DELIVERED
    }
    greatest_batch = max((row["batch_id"] for row in batches), default=0)
    ripe = [
        row["batch_id"]
        for row in batches
        if row["status"] in DELIVERED and is_old(row) and row["batch_id"] != greatest_batch
    ]
    low, high = (min(ripe), max(ripe)) if ripe else (1, 0)
    young_ids = {row["batch_id"] for row in batches if not is_old(row)}
    left_events = [
        event
        for event in events
        if not low <= event["batch_id"] <= high or event["batch_id"] in open_ids | young_ids
    ]
    used = {event["batch_id"] for event in left_events}
    left_batches = [
        row
        for row in batches
        if not (low <= row["batch_id"] <= high and row["status"] in DELIVERED and is_old(row))
        or row["batch_id"] in used
    ]
    routed = {event["data_id"] for event in events}
    needed = {event["data_id"] for event in events if event["batch_id"] in open_ids}
    greatest = max((row["data_id"] for row in data), default=0)
    left_data = [
        row
        for row in data
        if not is_old(row)
        or row["data_id"] not in routed
        or row["data_id"] in needed
        or row["data_id"] == greatest
    ]
    return {**rows, "data": left_data, "data_event": left_events, "outgoing_batch": left_batches}

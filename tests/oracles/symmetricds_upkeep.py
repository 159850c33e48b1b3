"""The oracles of the smaller purges of SymmetricDS, by sets; and random databases for them.

Independent of spark.purge and spark.upkeep on purpose: written from PurgeService of SymmetricDS 3.16, what
each of its methods removes. Where Lethe keeps more than SymmetricDS, a line says `stricter`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import Any

from tests.oracles.symmetricds import Place, Row, Rows, Stranded, random_database
from tests.oracles.symmetricds_random import CUTOFF, random_time
from tests.oracles.symmetricds_schema import tables

Keep = Callable[[Rows, Any], dict[str, list[Row]]]
STATISTICS = ("node_host_channel_stats", "node_host_stats", "node_host_job_stats")
TABLES = {
    "EXTRACT_REQUEST": ("table_reload_status", "table_reload_request", "extract_request"),
    "REGISTRATION_REQUEST": ("registration_request",),
    "INCOMING_ERROR": ("incoming_error",),
    "STATISTICS": STATISTICS,
    "TRIGGER_HIST": ("trigger_hist",),
    "STRANDED": ("data_event", "data"),
    "CHANNELS": ("data",),
}
KINDS = tuple(TABLES)


def expected_after_upkeep(
    kind: str, place: Place, rows: Rows, cutoff: Any, *, stranded: Stranded = "SKIP"
) -> Rows:
    """Every row that a purge must leave of a snapshot of a place; `rows` is not changed.

    Args:
        stranded: CHANNELS: whether old batches of channels that are gone become OK first.
    """
    bound = place.encode(cutoff)
    if kind == "CHANNELS":
        return {**rows, **_without_channels(rows, bound, marks=stranded == "MARK")}
    return {**rows, **_LEFT[kind](rows, bound)}


def _is_old(row: Row, column: str, cutoff: Any) -> bool:
    return row[column] is not None and row[column] < cutoff


def _without_requests(rows: Rows, cutoff: Any) -> Rows:
    """purgeExtractRequests: the states of loads first, then what has no state any more."""
    states = [
        row
        for row in rows["table_reload_status"]
        if not (row["completed"] == 1 and _is_old(row, "last_update_time", cutoff))
    ]
    loads = {row["load_id"] for row in states}

    def is_over(row: Row) -> bool:
        return row["load_id"] not in loads and _is_old(row, "last_update_time", cutoff)

    reloads = [row for row in rows["table_reload_request"] if not (row["processed"] == 1 and is_over(row))]
    extracts = [row for row in rows["extract_request"] if not (row["status"] == "OK" and is_over(row))]
    return {
        "table_reload_status": states,
        "table_reload_request": reloads,
        "extract_request": extracts,
    }


def _without_registrations(rows: Rows, cutoff: Any) -> Rows:
    """purgeRegistrationRequests: OK, rejected, redirected."""
    left = [
        row
        for row in rows["registration_request"]
        if not (row["status"] in ("OK", "RJ", "RR") and _is_old(row, "last_update_time", cutoff))
    ]
    return {"registration_request": left}


def _without_errors(rows: Rows, cutoff: Any) -> Rows:
    """purgeIncomingError: no batch of that id, whatever its node; stricter: and old."""
    batches = {row["batch_id"] for row in rows["incoming_batch"]}
    left = [
        row
        for row in rows["incoming_error"]
        if row["batch_id"] in batches or not _is_old(row, "last_update_time", cutoff)
    ]
    return {"incoming_error": left}


def _without_statistics(rows: Rows, cutoff: Any) -> Rows:
    """purgeStats: by the time at which a period began."""
    return {
        name: [row for row in rows[name] if not _is_old(row, "start_time", cutoff)] for name in STATISTICS
    }


def _without_histories(rows: Rows, cutoff: Any) -> Rows:
    """purgeTriggerHist; stricter: not while a captured row names it."""
    named = {row["trigger_hist_id"] for row in rows["data"]}
    left = [
        row
        for row in rows["trigger_hist"]
        if row["trigger_hist_id"] in named or not _is_old(row, "inactive_time", cutoff)
    ]
    return {"trigger_hist": left}


def _without_stranded(rows: Rows, cutoff: Any) -> Rows:
    """purgeStranded without chunks: events below every batch, then rows below every event and live gap.

    Where there is no batch, no event or no live gap the lowest number counts as 0, and nothing goes.
    """
    lowest_batch = min((row["batch_id"] for row in rows["outgoing_batch"]), default=0)
    events = [
        row
        for row in rows["data_event"]
        if not (row["batch_id"] < lowest_batch and _is_old(row, "create_time", cutoff))
    ]
    expired = [(row["start_id"], row["end_id"]) for row in rows["data_gap"] if row["is_expired"] == 1]
    live = min((row["start_id"] for row in rows["data_gap"] if row["is_expired"] == 0), default=0)
    end = min(min((row["data_id"] for row in events), default=0), live) - 1
    greatest = max((row["data_id"] for row in rows["data"]), default=0)

    def goes(row: Row) -> bool:
        data_id = row["data_id"]
        in_gap = any(start <= data_id <= last for start, last in expired)
        return (
            data_id <= end
            and not in_gap
            and data_id != greatest  # stricter
            and _is_old(row, "create_time", cutoff)
        )

    return {"data_event": events, "data": [row for row in rows["data"] if not goes(row)]}


def late_in_gaps(place: Place, rows: Rows, cutoff: Any) -> list[Row]:
    """purgeDataGapsExpired: the rows that it captures again, of a snapshot without stranded events."""
    bound, live = place.encode(cutoff), [row["start_id"] for row in rows["data_gap"] if not row["is_expired"]]
    routed = {row["data_id"] for row in rows["data_event"]}
    greatest = max((row["data_id"] for row in rows["data"]), default=0)
    gaps = [range(row["start_id"], row["end_id"] + 1) for row in rows["data_gap"] if row["is_expired"]]
    return [
        row
        for row in rows["data"]
        if any(row["data_id"] in gap for gap in gaps)
        and row["data_id"] not in routed  # stricter, as is all that follows
        and live
        and row["data_id"] < min(live)
        and row["data_id"] != greatest
        and _is_old(row, "create_time", bound)
    ]


def _without_channels(rows: Rows, cutoff: Any, *, marks: bool) -> Rows:
    """purgeStrandedBatches of channels, and purgeStrandedChannels.

    Stricter: of an age, and not what a batch that is not delivered still holds; and never where there is no
    channel at all.
    """
    known = {row["channel_id"] for row in rows["channel"]}

    def is_gone(row: Row) -> bool:
        return bool(known) and row["channel_id"] is not None and row["channel_id"] not in known

    def is_marked(row: Row) -> bool:
        is_open = row["status"] is not None and row["status"] != "OK"
        return marks and is_gone(row) and is_open and _is_old(row, "create_time", cutoff)

    batches = [{**row, "status": "OK"} if is_marked(row) else row for row in rows["outgoing_batch"]]
    open_ids = {row["batch_id"] for row in batches if row["status"] not in ("OK", "IG")}
    needed = {row["data_id"] for row in rows["data_event"] if row["batch_id"] in open_ids}
    greatest = max((row["data_id"] for row in rows["data"]), default=0)
    data = [
        row
        for row in rows["data"]
        if not is_gone(row)
        or not _is_old(row, "create_time", cutoff)
        or row["data_id"] in needed
        or row["data_id"] == greatest
    ]
    return {"outgoing_batch": batches, "data": data}


_LEFT: dict[str, Callable[[Rows, Any], Rows]] = {
    "EXTRACT_REQUEST": _without_requests,
    "REGISTRATION_REQUEST": _without_registrations,
    "INCOMING_ERROR": _without_errors,
    "STATISTICS": _without_statistics,
    "TRIGGER_HIST": _without_histories,
    "STRANDED": _without_stranded,
}


def random_upkeep(rng: Random) -> Rows:
    """All tables of a random database of 3.x, with rows of every kind of purge."""
    rows = random_database(rng, "3.x", rows=rng.choice([0, 3, 12, 40]) or None)
    rows |= _captured(rng, rows)
    loads = [*range(1, rng.choice([2, 4, 9])), None]
    rows["table_reload_status"] = _made(
        rng,
        "table_reload_status",
        lambda: {"load_id": rng.choice(loads[:-1]), "completed": rng.choice([0, 1, 1]), **_updated(rng)},
    )
    rows["table_reload_request"] = _made(
        rng,
        "table_reload_request",
        lambda: {"load_id": rng.choice(loads), "processed": rng.choice([0, 1, 1]), **_updated(rng)},
    )
    rows["extract_request"] = _made(
        rng,
        "extract_request",
        lambda: {"load_id": rng.choice(loads), "status": rng.choice(["NE", "OK", "OK"]), **_updated(rng)},
    )
    rows["registration_request"] = _made(
        rng,
        "registration_request",
        lambda: {"status": rng.choice(["RQ", "RR", "RJ", "ER", "OK"]), **_updated(rng)},
    )
    rows["incoming_batch"] = _made(rng, "incoming_batch", lambda: {"status": "OK"})
    rows["incoming_error"] = _made(rng, "incoming_error", lambda: _updated(rng))
    for name in STATISTICS:
        rows[name] = _made(rng, name, lambda: {"start_time": _time(rng), "end_time": _time(rng)})
    rows["trigger_hist"] = _made(
        rng,
        "trigger_hist",
        lambda: {"inactive_time": random_time(rng, _about(rng)) if rng.random() < 0.8 else None},
    )
    return rows


def _captured(rng: Random, rows: Rows) -> Rows:
    """Channels, gaps, and rows that are stranded below the first batch and the first event."""
    channels = rng.choice([[], ["default"], ["default", "sale"], ["default", "sale", "config"]])
    data = [
        {
            **row,
            "channel_id": rng.choice(["default", "sale", "gone", None]),
            "trigger_hist_id": rng.randrange(9),
        }
        for row in rows.get("data", ())
    ]
    ids = [row["data_id"] for row in data] or [1]
    edge = rng.choice([min(ids), max(ids), rng.randrange(min(ids), max(ids) + 1)])
    gaps = {edge + rng.randrange(0, 9): 0} if rng.random() < 0.9 else {}
    gaps |= {rng.choice(ids): 1 for _ in range(rng.choice([0, 0, 1, 2]))}
    if rng.random() < 0.5:  # what lies below was purged or never routed
        rows["data_event"] = [row for row in rows["data_event"] if row["data_id"] >= edge]
    first = rng.choice([row["batch_id"] for row in rows["outgoing_batch"]] or [0])
    if rng.random() < 0.5:
        rows["outgoing_batch"] = [row for row in rows["outgoing_batch"] if row["batch_id"] >= first]
    return {
        "data": data,
        "data_gap": [
            {
                "start_id": start,
                "end_id": start + rng.randrange(4),
                "is_expired": expired,
                "create_time": CUTOFF,
            }
            for start, expired in gaps.items()
        ],
        "channel": [{"channel_id": name} for name in channels],
    }


def _about(rng: Random) -> Any:
    return CUTOFF + timedelta(hours=rng.uniform(-30, 15))


def _time(rng: Random) -> Any:
    found = random_time(rng, _about(rng))
    return CUTOFF if found is None else found


def _updated(rng: Random) -> Row:
    return {"last_update_time": _time(rng)}


def _made(rng: Random, table: str, make: Callable[[], Row]) -> list[Row]:
    """Rows of a table whose keys differ; what is not null and was not said gets something."""
    found: dict[tuple[Any, ...], Row] = {}
    known = tables("3.x")[table]
    for _ in range(rng.choice([0, 1, 5, 25])):
        row = make()
        for column in known.columns:
            is_asked = column.name in known.primary_key or (
                "not null" in column.tail and "default" not in column.tail.lower()
            )
            if is_asked and column.name not in row:
                row[column.name] = _value(rng, column.name, column.type)
        found.setdefault(tuple(row[name] for name in known.primary_key), row)
    return list(found.values())


def _value(rng: Random, name: str, kind: str) -> Any:
    if kind == "TIMESTAMP":
        return _time(rng)
    if kind == "INTEGER":
        return rng.randrange(12)
    if name.endswith("_reason") or kind in ("CHAR(1)", "CHAR"):
        return "N"
    return rng.choice(["a", "b", "o'neil", "node 3", "c"])

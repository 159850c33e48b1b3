"""Random SymmetricDS databases with every awkward row that facts/symmetricds-purge tells of.

Times have whole milliseconds, so that every encoding of SQLite keeps them apart, and lie around CUTOFF, some
of them on it. Ids are sparse or dense; a batch may belong to several nodes in 3.x; what is rare in life is
common here.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from random import Random

from tests.oracles.symmetricds_database import Row, Rows
from tests.oracles.symmetricds_schema import Version

CUTOFF = datetime(2026, 3, 10, 12, 0, 0)

ENABLED_NODES = ("00001", "00002", "00003")
# Disabled, never set, absent from sym_node, and the mark of unrouted batches.
STRANDED_NODES = ("00004", "00005", "90000", "-1")
OPEN_STATUSES = ("NE", "QY", "SE", "LD", "ER", "RQ", "RT", "RS", "XX", "LS", "ZZ")
BULKY = '"1","line one\nline two","quote ""x""","Grüße, 漢字 \U0001f600",'

Shape = Callable[[Random, Version], Rows]


def random_database(rng: Random, version: Version, *, rows: int | None = None) -> Rows:
    """Make all tables of one random database.

    Args:
        rng: the only source of chance.
        version: 2.x gives every batch one node, and events a router.
        rows: captured rows of a mixed database; None is a random number below 80, or a special shape.
    Returns: {table: rows}; tables that are not named have no rows.
    """
    if rows is None and rng.random() < 0.25:
        return rng.choice(SPECIAL_SHAPES)(rng, version)
    return _mixed(rng, version, rng.randrange(2, 80) if rows is None else rows)


def _mixed(rng: Random, version: Version, size: int) -> Rows:
    width = timedelta(hours=rng.choice([1, 10, 100]))
    batch_ids = random_ids(rng, version, max(1, size // rng.choice([1, 3, 8])))
    batches = [row for batch_id in batch_ids for row in _batch_rows(rng, version, batch_id)]
    data_ids = random_ids(rng, version, size)
    made: Rows = {"data": [], "data_event": [], "outgoing_batch": batches, **_surroundings(rng, version)}
    for position, data_id in enumerate(data_ids):
        share = position / size
        captured = CUTOFF + width * (share - rng.choice([0.3, 0.7, 0.7, 0.95]))
        made["data"].append(_data_row(rng, version, data_id, random_time(rng, captured)))
        made["data_event"] += _event_rows(rng, version, data_id, batch_ids, share=share, captured=captured)
    for position, batch in enumerate(batches):
        batch["create_time"] = random_time(rng, CUTOFF + width * (position / len(batches) - 0.7))
    made["data_event"] += _orphan_events(rng, version, data_ids, batch_ids)
    return _without_some_batches(rng, made)


def random_ids(rng: Random, version: Version, count: int) -> list[int]:
    """Ascending ids, dense or sparse."""
    start = rng.choice([1, 1, 10, 4990, 1_000_000])
    if version == "3.x" and rng.random() < 0.2:
        start = 2**31 - 20  # ids are BIGINT since 3.x: cross the limit of an integer
    steps = rng.choice([[1], [1, 1, 1, 1, 2, 5], [1, 3, 50, 400], [1, 7, 5001, 20_000]])
    made = [start]
    while len(made) < count:
        made.append(made[-1] + rng.choice(steps))
    return made


def random_time(rng: Random, about: datetime) -> datetime | None:
    """A time near the given one, or one of the special ones."""
    chance = rng.random()
    if chance < 0.04:
        return None
    if chance < 0.08:
        return CUTOFF
    if chance < 0.12:
        return CUTOFF + timedelta(milliseconds=rng.choice([-1, 1, -1000, 1000]))
    if chance < 0.14:
        return CUTOFF + timedelta(days=rng.choice([-4000, 4000]))
    skewed = about + timedelta(minutes=rng.gauss(0, 20))
    return skewed.replace(microsecond=skewed.microsecond // 1000 * 1000)


def _status(rng: Random) -> str | None:
    chance = rng.random()
    if chance < 0.62:
        return "OK"
    if chance < 0.70:
        return "IG"
    return None if chance < 0.76 else rng.choice(OPEN_STATUSES)


def _batch_rows(rng: Random, version: Version, batch_id: int) -> list[Row]:
    nodes = [*ENABLED_NODES, *ENABLED_NODES, *STRANDED_NODES]
    common = version == "3.x" and rng.random() < 0.25
    chosen = sorted(set(rng.choices(nodes, k=3 if common else 1)))
    return [
        {
            "batch_id": batch_id,
            "node_id": node,
            "channel_id": rng.choice(["default", "sale", "gone", None]),
            "status": "OK" if node == "-1" and rng.random() < 0.7 else _status(rng),
            "error_flag": int(rng.random() < 0.1),
            "common_flag": int(common),
            "last_update_time": CUTOFF + timedelta(seconds=rng.randrange(-9999, 9999)),
            "create_time": None,
        }
        for node in chosen
    ]


def _data_row(rng: Random, version: Version, data_id: int, captured: datetime | None) -> Row:
    row: Row = {
        "data_id": data_id,
        "table_name": rng.choice(["item", "sale"]),
        "event_type": rng.choice("IUDRS"),
        "row_data": rng.choice([None, "", f'"{data_id}",', BULKY]),
        "pk_data": rng.choice([None, f'"{data_id}"']),
        "old_data": None,
        "trigger_hist_id": rng.randrange(1, 9),
        "channel_id": rng.choice(["default", "sale", None]),
        "transaction_id": f"tx{data_id // 4}",
        "create_time": captured,
    }
    return {**row, "node_list": None} if version == "3.x" else row


def _event_rows(
    rng: Random, version: Version, data_id: int, batch_ids: list[int], *, share: float, captured: datetime
) -> list[Row]:
    """No event (unrouted), one, or several (fan-out), mostly in the batches made at that time."""
    near = min(len(batch_ids) - 1, int(share * len(batch_ids)))
    chosen = set()
    for _ in range(rng.choice([0, 1, 1, 1, 1, 1, 1, 2, 2, 4])):
        elsewhere = rng.random() < 0.15
        chosen.add(rng.choice(batch_ids) if elsewhere else batch_ids[max(0, near - rng.randrange(3))])
    return _events(rng, version, {(data_id, batch_id) for batch_id in chosen}, captured)


def _orphan_events(rng: Random, version: Version, data_ids: list[int], batch_ids: list[int]) -> list[Row]:
    """Events without a batch row (below, inside, above the range) and events whose data has gone already."""
    keys = set()
    for _ in range(rng.randrange(4)):
        missing = rng.choice([max(0, batch_ids[0] - 1), batch_ids[-1] + 3, rng.choice(batch_ids) + 1])
        if missing not in batch_ids:
            keys.add((rng.choice(data_ids), missing))
        gone = rng.choice(data_ids) + 1
        if gone not in data_ids:
            keys.add((gone, rng.choice(batch_ids)))
    return _events(rng, version, keys, CUTOFF)


def _events(rng: Random, version: Version, keys: set[tuple[int, int]], about: datetime) -> list[Row]:
    made: list[Row] = []
    for data_id, batch_id in sorted(keys):
        row: Row = {"data_id": data_id, "batch_id": batch_id, "create_time": random_time(rng, about)}
        if version == "3.x":
            made.append(row)
        else:
            routers = ["r1", "r2"] if rng.random() < 0.1 else ["r1"]
            made += [{**row, "router_id": router} for router in routers]
    return made


def _without_some_batches(rng: Random, made: Rows) -> Rows:
    """Take a few batch rows away under their events."""
    gone = {row["batch_id"] for row in made["outgoing_batch"] if rng.random() < 0.04}
    made["outgoing_batch"] = [row for row in made["outgoing_batch"] if row["batch_id"] not in gone]
    return made


def _surroundings(rng: Random, version: Version) -> Rows:
    """The nodes, and rows that an outgoing purge must not touch."""
    nodes = [(node, 1) for node in ENABLED_NODES] + [("00004", 0), ("00005", None)]
    old = CUTOFF - timedelta(days=99)
    gap: Row = {"start_id": 1, "end_id": 9, "create_time": old}
    made: Rows = {
        "node": [
            {"node_id": node, "node_group_id": "store", "external_id": node, "sync_enabled": enabled}
            for node, enabled in nodes
        ],
        "incoming_batch": [
            {"batch_id": number, "node_id": "00001", "status": rng.choice(["OK", "ER"]), "create_time": old}
            for number in range(3)
        ],
        "data_gap": [
            {**gap, "status": "SK", "last_update_time": old} if version == "2.x" else {**gap, "is_expired": 1}
        ],
    }
    if version == "3.x":
        made["sequence"] = [
            {"sequence_name": "outgoing_batch", "current_value": 2**31 + 99_999, "last_update_time": old}
        ]
    return made


def _empty(rng: Random, version: Version) -> Rows:
    return {"data": [], "data_event": [], "outgoing_batch": [], **_surroundings(rng, version)}


def _single(rng: Random, version: Version) -> Rows:
    """One row of each table: both are the newest of their table, so both stay."""
    return _uniform(rng, version, 1, "OK", CUTOFF - timedelta(days=1))


def _all_removable(rng: Random, version: Version) -> Rows:
    return _uniform(rng, version, rng.randrange(2, 40), "OK", CUTOFF - timedelta(days=1))


def _all_stuck(rng: Random, version: Version) -> Rows:
    status = rng.choice(OPEN_STATUSES)
    return _uniform(rng, version, rng.randrange(2, 40), status, CUTOFF - timedelta(days=1))


def _all_young(rng: Random, version: Version) -> Rows:
    return _uniform(rng, version, rng.randrange(2, 40), "OK", CUTOFF)


def _all_null(rng: Random, version: Version) -> Rows:
    return _uniform(rng, version, rng.randrange(2, 40), None, None)


def _unrouted(rng: Random, version: Version) -> Rows:
    return {**_all_removable(rng, version), "data_event": []}


def _without_batches(rng: Random, version: Version) -> Rows:
    return {**_all_removable(rng, version), "outgoing_batch": []}


def _without_nodes(rng: Random, version: Version) -> Rows:
    return {**_mixed(rng, version, 30), "node": []}


def _without_data(rng: Random, version: Version) -> Rows:
    return {**_mixed(rng, version, 30), "data": []}


def _dead_node(rng: Random, version: Version) -> Rows:
    """Everything waits for one node that is not enabled any more: the stranded step frees all of it."""
    made = _all_stuck(rng, version)
    node = rng.choice(STRANDED_NODES)
    return {**made, "outgoing_batch": [{**row, "node_id": node} for row in made["outgoing_batch"]]}


def _uniform(rng: Random, version: Version, size: int, status: str | None, time: datetime | None) -> Rows:
    data_ids, batch_ids = random_ids(rng, version, size), random_ids(rng, version, size)
    made: Rows = {"data": [], "data_event": [], "outgoing_batch": [], **_surroundings(rng, version)}
    for data_id, batch_id in zip(data_ids, batch_ids, strict=True):
        made["data"].append(_data_row(rng, version, data_id, time))
        made["data_event"] += _events(rng, version, {(data_id, batch_id)}, CUTOFF)
        batch: Row = {"batch_id": batch_id, "node_id": "00001", "status": status, "create_time": time}
        made["outgoing_batch"].append({**batch, "channel_id": "default"})
    return made


SPECIAL_SHAPES: tuple[Shape, ...] = (
    _empty,
    _single,
    _all_removable,
    _all_stuck,
    _all_young,
    _all_null,
    _unrouted,
    _without_batches,
    _without_nodes,
    _without_data,
    _dead_node,
)

"""A SymmetricDS 3.x database as a shop's head office has it: captured rows, routed, mostly delivered.

What is in it, by age:
- rows captured over ten days, the newest of them not routed yet;
- store-05 was disabled a week ago: its batches wait for it (the plan says what giving them up would cost);
- store-03 is stuck on an error since six days: its rows must stay, whatever their age;
- everything else is delivered (OK, some ignored: IG), except what was routed last.
"""

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from importlib.resources import files
from pathlib import Path
from typing import Final

ROWS: Final = 200_000
DAYS: Final = 10
DISABLED_DAYS: Final = 7
STUCK_DAYS: Final = 6
ROUTINGS: Final = 100
UNROUTED_ROWS: Final = 600
FIRST_DATA_ID: Final = 4_800_001
FIRST_BATCH_ID: Final = 91_001
SEED: Final = 20_26

NODES: Final = tuple(f"store-{number:02}" for number in range(1, 9))
DISABLED: Final = "store-05"
STUCK: Final = "store-03"
NOBODY: Final = "-1"
# channel: (its table, its share of the captured rows)
CHANNELS: Final = {
    "sale": ("sale_line", 0.55),
    "stock": ("stock_level", 0.30),
    "price": ("item_price", 0.05),
    "default": ("customer", 0.10),
}


def _text(time: datetime) -> str:
    """SymmetricDS keeps times on SQLite as text."""
    return time.strftime("%Y-%m-%d %H:%M:%S.%f")


@dataclass(slots=True)
class _Routed:
    """What routing made of the captured rows."""

    events: list[tuple[int, int, str]] = field(default_factory=list)
    batches: list[tuple[int, str, str, str, int, int, str, str]] = field(default_factory=list)


def build(path: Path, *, now: datetime, rows: int = ROWS) -> None:
    """Write the database in one transaction; the file must not exist.

    Args:
        now: naive UTC, the time of the newest row.
    """
    assert not path.exists()
    # Not for secrets: the same demo each time.
    chance = random.Random(SEED)  # noqa: S311
    captured = list(_capture(now, rows, chance))
    routed = _route(captured, now, chance)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.executescript(files("app.cli").joinpath("demo_schema.sql").read_text())
        # WAL, as SymmetricDS is run on SQLite beside writers of its own.
        db.execute("pragma journal_mode = wal")
        db.execute("begin immediate")
        _write_configuration(db, now, last_batch_id=FIRST_BATCH_ID + len(routed.batches) - 1)
        db.executemany(
            "insert into sym_data (data_id, table_name, event_type, row_data, pk_data, trigger_hist_id,"
            " channel_id, transaction_id, create_time) values (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            captured,
        )
        db.executemany(
            "insert into sym_data_event (data_id, batch_id, create_time) values (?, ?, ?)", routed.events
        )
        db.executemany(
            "insert into sym_outgoing_batch (batch_id, node_id, channel_id, status, error_flag,"
            " data_row_count, create_time, last_update_time) values (?, ?, ?, ?, ?, ?, ?, ?)",
            routed.batches,
        )
        db.execute("commit")
        db.execute("pragma wal_checkpoint(truncate)")


def _capture(
    now: datetime, rows: int, chance: random.Random
) -> Iterator[tuple[int, str, str, str, str, int, str, str, str]]:
    """Yield sym_data rows in the order of their ids, spread evenly over the days with some noise."""
    step_s = DAYS * 86_400 / rows
    start = now - timedelta(days=DAYS)
    names, shares = list(CHANNELS), [share for _, share in CHANNELS.values()]
    for index, channel in enumerate(chance.choices(names, shares, k=rows)):
        key = 1_000_000 + index * 7 % 650_003
        at = start + timedelta(seconds=(index + chance.random()) * step_s)
        kind = "I" if channel == "sale" else "U"
        row = f'"{key}","{channel} row {index}","{chance.randrange(1, 90_000) / 100:.2f}","EUR"'
        history = names.index(channel) + 1
        transaction = f"tx{index // 4}"
        yield (
            FIRST_DATA_ID + index,
            CHANNELS[channel][0],
            kind,
            row,
            f'"{key}"',
            history,
            channel,
            transaction,
            _text(at),
        )


def _nodes_of(channel: str, chance: random.Random) -> tuple[str, ...]:
    """Who receives a row: prices go to half of the stores, two in a hundred rows to nobody."""
    if channel == "price":
        return NODES[::2] if chance.random() < 0.5 else NODES[1::2]
    return (NOBODY,) if chance.random() < 0.02 else (NODES[chance.randrange(len(NODES))],)


def _route(
    captured: list[tuple[int, str, str, str, str, int, str, str, str]], now: datetime, chance: random.Random
) -> _Routed:
    """Route all but the newest rows, in runs; each run makes one batch per channel and node."""
    routed = _Routed()
    ready = captured[: max(0, len(captured) - UNROUTED_ROWS)]
    batch_id = FIRST_BATCH_ID
    size = -(-len(ready) // ROUTINGS)
    for first in range(0, len(ready), size):
        run = ready[first : first + size]
        is_last = first + size >= len(ready)
        members: dict[tuple[str, str], list[int]] = {}
        for row in run:
            for node in _nodes_of(row[6], chance):
                members.setdefault((row[6], node), []).append(row[0])
        created = run[-1][8]
        for (channel, node), data_ids in members.items():
            status = _status(node, created, now, is_last=is_last, chance=chance)
            failed = int(status == "ER")
            routed.batches.append((batch_id, node, channel, status, failed, len(data_ids), created, created))
            routed.events += [(data_id, batch_id, created) for data_id in data_ids]
            batch_id += 1
    return routed


def _status(node: str, created: str, now: datetime, *, is_last: bool, chance: random.Random) -> str:
    if node == DISABLED and created >= _text(now - timedelta(days=DISABLED_DAYS)):
        return "NE"
    if node == STUCK and created >= _text(now - timedelta(days=STUCK_DAYS)):
        return "ER" if created < _text(now - timedelta(days=STUCK_DAYS - 0.15)) else "NE"
    if is_last and node != NOBODY:
        return "NE"
    return "IG" if chance.random() < 0.004 else "OK"


def _write_configuration(db: sqlite3.Connection, now: datetime, *, last_batch_id: int) -> None:
    """Write nodes, channels, trigger history, sequence and parameters."""
    stamp = _text(now)
    nodes = [("head-office", "office", 1), *((node, "store", int(node != DISABLED)) for node in NODES)]
    db.executemany(
        "insert into sym_node (node_id, node_group_id, external_id, sync_enabled, symmetric_version,"
        " database_type) values (?1, ?2, ?1, ?3, '3.16.0', 'SQLite')",
        nodes,
    )
    db.executemany(
        "insert into sym_channel (channel_id, processing_order, create_time) values (?, ?, ?)",
        [(channel, order, stamp) for order, channel in enumerate(CHANNELS, start=1)],
    )
    db.executemany(
        "insert into sym_trigger_hist (trigger_hist_id, trigger_id, source_table_name, column_names,"
        " pk_column_names, last_trigger_build_reason, create_time)"
        " values (?1, ?2, ?2, 'id,text,amount,currency', 'id', 'N', ?3)",
        [(number, table, stamp) for number, (table, _) in enumerate(CHANNELS.values(), start=1)],
    )
    db.execute(
        "insert into sym_sequence (sequence_name, current_value, create_time, last_update_time)"
        " values ('outgoing_batch', ?1, ?2, ?2)",
        (last_batch_id, stamp),
    )
    # SymmetricDS's own purge is off, as it must be where Lethe purges.
    own = {"start.purge.outgoing.job": "false", "start.purge.incoming.job": "false"}
    db.executemany(
        "insert into sym_parameter values ('ALL', 'ALL', ?1, ?2, ?3, 'demo', ?3)",
        [(name, value, stamp) for name, value in ({"purge.retention.minutes": "7200"} | own).items()],
    )

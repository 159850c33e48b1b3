"""Random histories of an origin by instants: which transactions ran when, what they logged, when SYNCs were.

The model knows no snapshot: a row belongs to the first SYNC that was made after its transaction had ended.
What the tables hold of it is written down separately, with snapshots as PostgreSQL takes them.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import Any

from tests.spark.events.catalogs import LoadedCatalog

ORIGIN = 1
OTHER = 2
BASE = 5_000_000_000
TABLES = {1: 1, 2: 1, 3: 2, 4: 2}
"""Table id -> set."""
GONE = 9
"""A table that was dropped: its rows are in the log, it is in no set any more."""


@dataclass(frozen=True)
class Logged:
    """A row of a log table."""

    origin: int
    txid: int
    actionseq: int
    table_id: int | None
    cmdtype: str
    updated: int | None
    args: list[str | None]
    log: str


@dataclass
class History:
    """What happened. Times are whole numbers, no two events of transactions share one."""

    began: dict[int, int] = field(default_factory=dict)
    ended: dict[int, int] = field(default_factory=dict)
    committed: set[int] = field(default_factory=set)
    rows: list[Logged] = field(default_factory=list)
    syncs: list[tuple[int, int]] = field(default_factory=list)
    """(seqno, instant of the snapshot), by seqno."""
    config: list[tuple[int, str]] = field(default_factory=list)
    sequences: list[tuple[int, int, int]] = field(default_factory=list)
    """(seqno, sequence id, value)."""

    def over(self, instant: int) -> frozenset[int]:
        """Transactions that had ended."""
        return frozenset(txid for txid, at in self.ended.items() if at <= instant)

    def snapshot(self, instant: int) -> str:
        """As PostgreSQL takes it: xmax is behind the newest that has ended."""
        over = self.over(instant)
        running = [txid for txid, at in self.began.items() if at <= instant and txid not in over]
        xmax = max(over, default=9) + 1
        xip = sorted(txid for txid in running if txid < xmax)
        return f"{min(xip, default=xmax)}:{xmax}:{','.join(map(str, xip))}"

    def units(self, after: int, copied_at: int | None = None) -> list[tuple[int, list[Logged]]]:
        """By brute force: the SYNCs behind one that are units, and the rows of each."""
        instants = dict(self.syncs)
        seen = self.over(instants[after] if copied_at is None else copied_at)
        found = []
        for seqno, instant in self.syncs:
            now = self.over(instant)
            if seqno <= after or not seen <= now:
                continue
            new = [
                row for row in self.rows if row.origin == ORIGIN and row.txid in now and row.txid not in seen
            ]
            found.append((seqno, sorted(new, key=lambda row: row.actionseq)))
            seen = now
        return found


def make_history(seed: int) -> History:
    """One history; some have transactions that last for many SYNCs, SYNCs in the wrong order, empty ones."""
    rng = random.Random(seed)
    made = History()
    running: list[int] = []
    txid, actionseq, seqno, log = 10, 100, BASE, "sl_log_1"
    steps = rng.randint(20, 140)
    lasting = rng.choice([0.1, 0.3, 0.6])
    for now in range(1, steps):
        step = rng.random()
        if step < 0.25:
            made.began[txid] = now
            running.append(txid)
            txid += rng.choice([1, 1, 1, 4])
        elif step < 0.6 and running:
            owner = rng.choice(running)
            for _ in range(rng.randint(1, 3)):
                actionseq += rng.randint(1, 3)
                made.rows.append(_row(rng, owner, actionseq, log))
        elif step < 0.78 and running and rng.random() > lasting:
            owner = running.pop(rng.randrange(len(running)))
            made.ended[owner] = now
            if rng.random() < 0.85:
                made.committed.add(owner)
        elif step < 0.95:
            seqno += rng.randint(1, 2)
            made.syncs.append((seqno, now))
            made.sequences += [(seqno, 7, rng.randint(1, 99))] if rng.random() < 0.3 else []
        elif step < 0.97:
            seqno += 1
            made.config.append((seqno, rng.choice(["STORE_SET", "SET_ADD_TABLE", "MOVE_SET"])))
        else:
            log = "sl_log_2" if log == "sl_log_1" else "sl_log_1"
    if not made.syncs:
        made.syncs.append((seqno + 1, steps))
    if rng.random() < 0.3:
        _misorder(rng, made)
    # What is rolled back never was in the log; what still runs is not visible to anybody else.
    made.rows = [row for row in made.rows if row.txid in made.committed]
    return made


def _misorder(rng: random.Random, made: History) -> None:
    """Two SYNCs made beside each other without the lock: the greater number has the older snapshot."""
    if len(made.syncs) < 2:
        return
    at = rng.randrange(len(made.syncs) - 1)
    (first, one), (second, other) = made.syncs[at : at + 2]
    made.syncs[at : at + 2] = [(first, other), (second, one)]


def _row(rng: random.Random, txid: int, actionseq: int, log: str) -> Logged:
    origin = OTHER if rng.random() < 0.1 else ORIGIN
    if rng.random() < 0.05:
        return Logged(
            origin, txid, actionseq, None, rng.choice("Ss"), None, [f"ddl {actionseq}", ""], "sl_log_script"
        )
    table = rng.choice([*TABLES, GONE])
    value = rng.choice([None, "", "é'\"\\", str(actionseq)])
    kind = rng.choice("IIUUDT")
    args: dict[str, list[str | None]] = {
        "I": ["id", str(actionseq), "v", value],
        "U": ["v", value, "w", "1", "id", str(actionseq)],
        "D": ["id", str(actionseq), "k 2", "x"],
        "T": [],
    }
    return Logged(origin, txid, actionseq, table, kind, 2 if kind == "U" else 0, args[kind], log)


def store(node: LoadedCatalog, made: History) -> None:
    """Write a history into a node's empty tables."""
    with node.raw(autocommit=False) as raw:
        raw.execute(
            "truncate sl_event, sl_log_1, sl_log_2, sl_log_script, sl_seqlog, sl_table, sl_sequence,"
            " sl_set cascade"
        )
        raw.execute(
            "insert into sl_node (no_id, no_active, no_comment, no_failed)"
            " values (1, true, '', false), (2, true, '', false) on conflict do nothing"
        )
        raw.execute(
            "insert into sl_set values (1, 1, null, 'one'), (2, 1, null, 'two'), (3, 2, null, 'other')"
        )
        for table, set_id in TABLES.items():
            raw.execute(
                "insert into sl_table values (%s, %s, %s, 'public', %s, 'pk', false, '')",
                (table, table, f"t{table}", set_id),
            )
        raw.execute("insert into sl_sequence values (7, 700, 'ticket', 'public', 1, '')")
        for seqno, instant in made.syncs:
            raw.execute(
                "insert into sl_event (ev_origin, ev_seqno, ev_timestamp, ev_snapshot, ev_type)"
                " values (%s, %s, '2026-11-20 08:00:00+00', cast(%s as txid_snapshot), 'SYNC')",
                (ORIGIN, seqno, made.snapshot(instant)),
            )
        for seqno, kind in made.config:
            raw.execute(
                "insert into sl_event (ev_origin, ev_seqno, ev_timestamp, ev_snapshot, ev_type, ev_data1)"
                " values (%s, %s, now(), '1:1:', %s, '1')",
                (ORIGIN, seqno, kind),
            )
        raw.execute(
            "insert into sl_event (ev_origin, ev_seqno, ev_timestamp, ev_snapshot, ev_type)"
            " values (2, %s, now(), '1:900:', 'SYNC')",
            (BASE + 1,),
        )
        for seqno, number, value in made.sequences:
            raw.execute("insert into sl_seqlog values (%s, 1, %s, %s)", (number, seqno, value))
        for row in made.rows:
            if row.log == "sl_log_script":
                raw.execute(
                    "insert into sl_log_script values (%s, %s, %s, %s, %s)",
                    (row.origin, row.txid, row.actionseq, row.cmdtype, row.args),
                )
            else:
                raw.execute(
                    f"insert into {row.log} values (%s, %s, %s, %s, 'public', %s, %s, %s, %s)".encode(),
                    (
                        *(row.origin, row.txid, row.table_id, row.actionseq, f"t{row.table_id}"),
                        *(row.cmdtype, row.updated, row.args),
                    ),
                )


def shown(row: Logged) -> dict[str, Any]:
    """How the feed has to show a row, from the words of Slony-I's trigger."""
    pairs = [(row.args[at], row.args[at + 1]) for at in range(0, len(row.args) - 1, 2)]
    if row.cmdtype == "I":
        return {"kind": "INSERT", "key": None, "values": dict(pairs)}
    if row.cmdtype == "U":
        assert row.updated is not None
        return {"kind": "UPDATE", "key": dict(pairs[row.updated :]), "values": dict(pairs[: row.updated])}
    if row.cmdtype == "D":
        return {"kind": "DELETE", "key": dict(pairs), "values": None}
    kinds = {"T": "TRUNCATE", "S": "DDL", "s": "DDL_END"}
    return {"kind": kinds[row.cmdtype], "key": None, "values": None}


def plain(value: object) -> str:
    """One text for one value."""
    return json.dumps(value, sort_keys=True)

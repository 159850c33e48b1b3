"""Catalogs as no cluster may ever have had them, to run two cleanups over the same rows."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from tests.spark.events.catalogs import NO_PROCESS, LoadedCatalog, read_rows

CUTOFF = datetime(2026, 11, 20, 8, 0, tzinfo=UTC)
FIRST_SEQNO = 5_000_000_001


@dataclass(frozen=True)
class RandomCatalog:
    """Rows by table, as lists of columns in the order of the table's own; the status of the log."""

    rows: dict[str, list[tuple[Any, ...]]]
    status: int
    local_node: int


COLUMNS = {
    "sl_node": "no_id, no_active, no_comment, no_failed",
    "sl_event": "ev_origin, ev_seqno, ev_timestamp, ev_snapshot, ev_type",
    "sl_confirm": "con_origin, con_received, con_seqno, con_timestamp",
    "sl_log_1": "log_origin, log_txid, log_tableid, log_actionseq, log_cmdtype",
    "sl_log_2": "log_origin, log_txid, log_tableid, log_actionseq, log_cmdtype",
    "sl_seqlog": "seql_seqid, seql_origin, seql_ev_seqno, seql_last_value",
    "sl_log_script": "log_origin, log_txid, log_actionseq, log_cmdtype",
    "sl_set": "set_id, set_origin, set_comment",
    "sl_nodelock": "nl_nodeid, nl_conncnt, nl_backendpid",
}


def random_catalog(seed: int) -> RandomCatalog:
    """The same for the same seed."""
    dice = random.Random(seed)
    known = sorted(dice.sample((1, 2, 3, 4), dice.choice((1, 2, 3, 3, 3, 4))))
    gone = [node for node in (1, 2, 3, 4) if node not in known and dice.random() < 0.3]
    nodes = [(n, dice.random() < 0.9, f"node {n}", dice.random() < 0.05) for n in known]
    rows: dict[str, list[tuple[Any, ...]]] = {table: [] for table in COLUMNS}
    rows["sl_node"] = list(nodes)
    for origin in [*known, *gone]:
        _fill_origin(dice, rows, origin, [*known, *gone])
    status = dice.randrange(4)
    if status < 2 and dice.random() < 0.9:
        rows["sl_log_1" if status else "sl_log_2"] = []
    if dice.random() < 0.4:
        rows["sl_set"] = [(1, dice.choice(known), "set")]
    rows["sl_nodelock"] = [(1, 1, NO_PROCESS)] if dice.random() < 0.3 else []
    return RandomCatalog(rows, status, dice.choice(known))


def settled_catalog(status: int) -> RandomCatalog:
    """Three nodes that have confirmed most of ten events each; whatever log is the other one is drained."""
    old = CUTOFF - timedelta(minutes=5)
    rows: dict[str, list[tuple[Any, ...]]] = {table: [] for table in COLUMNS}
    rows["sl_node"] = [(node, True, f"node {node}", False) for node in (1, 2, 3)]
    for origin in (1, 2, 3):
        for number in range(10):
            seqno, xmin = FIRST_SEQNO + number, 700 + 10 * number
            kind = "SYNC" if number % 2 else "STORE_PATH"
            rows["sl_event"].append((origin, seqno, old, f"{xmin}:{xmin}:", kind))
            if kind == "SYNC":
                rows["sl_seqlog"].append((1, origin, seqno, number))
        for receiver in {1, 2, 3} - {origin}:
            for number in (0, 3, 8 if receiver == 3 else 6):
                rows["sl_confirm"].append((origin, receiver, FIRST_SEQNO + number, old))
        rows["sl_log_script"] = [(1, 650, 1, "S"), (1, 790, 2, "S")]
    active, other = ("sl_log_2", "sl_log_1") if status & 1 else ("sl_log_1", "sl_log_2")
    rows[active] = [(1, 800 + number, 1, number, "I") for number in range(5)]
    rows[other] = [(origin, 650 + n, 1, n, "U") for origin in (1, 2) for n in range(5)] if status & 2 else []
    rows["sl_set"] = [(1, 1, "set")]
    rows["sl_nodelock"] = [(1, 1, NO_PROCESS)]
    return RandomCatalog(rows, status, 1)


def _fill_origin(
    dice: random.Random, rows: dict[str, list[tuple[Any, ...]]], origin: int, nodes: list[int]
) -> None:
    seqno, txid = FIRST_SEQNO, 700
    seqnos, xmins = [], []
    share = dice.choice((0.0, 0.5, 0.8, 0.8, 1.0))
    for _ in range(dice.choice((0, 1, 5, 20, 30))):
        seqno += dice.choice((1, 1, 1, 2, 5))
        txid += dice.randrange(6)
        kind = "SYNC" if dice.random() < share else dice.choice(("STORE_PATH", "SUBSCRIBE_SET"))
        running = f"{txid},{txid + 2}" if dice.random() < 0.2 else ""
        at = CUTOFF + timedelta(seconds=dice.randint(-900, 900))
        rows["sl_event"].append((origin, seqno, at, f"{txid}:{txid + 3}:{running}", kind))
        seqnos.append(seqno)
        xmins.append(txid)
        if kind == "SYNC" and dice.random() < 0.5:
            rows["sl_seqlog"].append((1, origin, seqno, txid))
    behind = dice.random() < 0.3  # all rows are of before the first events: drained
    for table in ("sl_log_1", "sl_log_2"):
        for number in range(dice.choice((0, 0, 3, 10))):
            low, high = (600, 700) if behind else (650, txid + 3)
            rows[table].append((origin, dice.randint(low, high), 1, number, "I"))
    if dice.random() < 0.3:
        rows["sl_log_script"].append((origin, dice.randint(650, txid + 3), 1, "S"))
    for receiver in nodes:
        if receiver != origin and dice.random() < 0.93:
            rows["sl_confirm"] += _confirmations(dice, origin, receiver, seqnos)


def _confirmations(
    dice: random.Random, origin: int, receiver: int, seqnos: list[int]
) -> list[tuple[Any, ...]]:
    """Seqno and age rise together, mostly; now and then twice the same."""
    found = [0] if dice.random() < 0.3 else []
    reach = dice.choice((0.3, 0.7, 1.0, 1.0))
    upto = seqnos[: int(len(seqnos) * reach)]
    found += sorted(dice.sample(upto, min(len(upto), dice.randint(1, 12)))) if upto else []
    if not found:
        return []
    if dice.random() < 0.2:
        found.append(found[-1])
    if dice.random() < 0.1:
        found.append(found[-1] + 100)  # of an event that has not arrived here
    old = dice.choice((0.0, 0.5, 1.0, 1.0))
    ages = sorted(
        (dice.uniform(1, 600) if dice.random() < old else -dice.uniform(1, 600) for _ in found), reverse=True
    )
    if dice.random() < 0.1:
        dice.shuffle(ages)
    return [
        (origin, receiver, seqno, CUTOFF - timedelta(seconds=age))
        for seqno, age in zip(found, ages, strict=True)
    ]


def put(node: LoadedCatalog, catalog: RandomCatalog) -> None:
    """Replace everything in a catalog."""
    with node.raw(autocommit=False) as raw:
        tables = raw.execute(
            "select quote_ident(schemaname) || '.' || quote_ident(tablename) from pg_catalog.pg_tables"
            " where schemaname = %s",
            (node.schema,),
        ).fetchall()
        # Quicker than TRUNCATE for a few rows; the order of the tables does not matter in this role.
        deletes = "; ".join(f"delete from {name}" for (name,) in tables)
        raw.execute(f"set local session_replication_role = replica; {deletes}".encode())
        raw.execute("set local session_replication_role = origin")
        for (index,) in partial_indices(raw):
            raw.execute(f'drop index "{index}"')
        for table, rows in catalog.rows.items():
            names = COLUMNS[table]
            marks = ", ".join(["%s"] * len(names.split(",")))
            raw.cursor().executemany(f"insert into {table} ({names}) values ({marks})", rows)
        raw.execute("select setval('sl_log_status', %s)", (catalog.status,))
        raw.execute("select setval('sl_local_node_id', %s)", (catalog.local_node,))


def contents(node: LoadedCatalog) -> dict[str, Any]:
    """Everything that a cleanup may change: rows, status, locks of slons, indices."""
    with node.raw() as raw:
        found = read_rows(raw)
        found["sl_nodelock"] = raw.execute("select * from sl_nodelock order by 1, 2").fetchall()
        found["indices"] = partial_indices(raw)
    return found


def partial_indices(raw: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    """Names of the indices that the program makes by itself."""
    return raw.execute(
        "select indexname from pg_catalog.pg_indexes"
        " where schemaname = current_schema() and indexname like 'PartInd%%' order by 1"
    ).fetchall()

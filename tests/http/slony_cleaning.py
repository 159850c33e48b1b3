"""Cleanups and log switches of recorded nodes, and what must hold of a catalog at any moment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import httpx

from tests.http.shop import accepted, wait_for
from tests.http.slony_nodes import NodeStore
from tests.spark.events.catalogs import LoadedCatalog, recorded, recorded_rows

AT = "2026-11-20T08:02:05Z"
CASE = "fxa.n1.cleanup_080205"
"""Node 1 while node 3 was down, cleaned up to AT: a recorded case of the program."""
REMOVED = {"sl_confirm": 131, "sl_event": 136, "sl_seqlog": 79, "sl_log_script": 0, "sl_nodelock": 13}


def clean(node: NodeStore, **fields: Any) -> httpx.Response:
    """Ask for a cleanup, up to AT unless something else is named."""
    age = {} if {"interval", "confirmed_before", "plan_id"} & set(fields) else {"confirmed_before": AT}
    return node.http.post(f"{node.url}/event-cleanups", json=age | fields)


def plan(node: NodeStore, **fields: Any) -> httpx.Response:
    """Ask for a plan."""
    age = {} if {"interval", "confirmed_before"} & set(fields) else {"confirmed_before": AT}
    return node.http.post(
        f"{node.url}/event-cleanups",
        params={"validate_only": True},
        json=age | fields,
        headers={"Prefer": "wait=20"},
    )


def cleaned(node: NodeStore, **fields: Any) -> dict[str, Any]:
    """The result of a cleanup that succeeds."""
    job = wait_for(node.http, accepted(clean(node, **fields)))
    assert job["state"] == "SUCCEEDED", job
    result: dict[str, Any] = job["result"]
    return result


def slow_cleanup(node: NodeStore, *, rows_per_s: int = 40, **fields: Any) -> str:
    """Start a cleanup of many small throttled units, about eight seconds; the job's id."""
    return accepted(clean(node, max_rows_in_tx=10, throttle={"rows_per_s": rows_per_s}, **fields))


def switch(node: NodeStore, action: str, **fields: Any) -> httpx.Response:
    """Ask for a log switch."""
    return node.http.post(f"{node.url}/log-switches", json={"action": action} | fields)


def switched(node: NodeStore, action: str, **fields: Any) -> dict[str, Any]:
    """The result of a switch that succeeds."""
    job = wait_for(node.http, accepted(switch(node, action, **fields)))
    assert job["state"] == "SUCCEEDED", job
    result: dict[str, Any] = job["result"]
    return result


def log_status(loaded: LoadedCatalog) -> int:
    """The sequence as it is."""
    [(value,)] = loaded.query("select last_value from sl_log_status")
    return int(value)


def count(loaded: LoadedCatalog, table: str) -> int:
    """Rows of a table."""
    [(rows,)] = loaded.query(f"select count(*) from {table}")
    return int(rows)


def assert_recorded(loaded: LoadedCatalog, *, runs: int = 1) -> None:
    """The catalog is what the program left of it after so many cleanups; the rows go with the first."""
    case = recorded(f"oracle/{CASE}")
    rows = loaded.rows()
    assert {table: rows[table] for table in case["after"]} == case["after"]
    assert {table: len(rows[table]) for table in case["after_counts"]} == case["after_counts"]
    assert rows["sl_log_status"] == case["steps"][runs - 1]["log_status"][1]


@dataclass(frozen=True)
class Before:
    """A recorded catalog before anything was done to it: what must still be so afterwards."""

    rows: dict[str, Any]

    @classmethod
    def of(cls, node: int = 1) -> Before:
        """Of the cluster while node 3 was down."""
        return cls(recorded_rows("fxa", node))

    def assert_accepted(self, loaded: LoadedCatalog) -> None:
        """A slon can go on from here, whenever it looks.

        Of each origin the events are a suffix of what was there, with a SYNC that everybody has confirmed;
        each pair keeps its newest confirmation; a log table that counts as clean is empty, and no log row
        went that the oldest SYNC left does not cover.
        """
        rows = loaded.rows()
        newest = _newest_confirmations(self.rows)
        assert _newest_confirmations(rows) == newest
        oldest = {}
        for origin in {row[0] for row in self.rows["sl_event"]}:
            had = sorted(row for row in self.rows["sl_event"] if row[0] == origin)
            left = sorted(row for row in rows["sl_event"] if row[0] == origin)
            assert left, f"no event of node {origin} is left"
            assert left == had[len(had) - len(left) :], f"events of node {origin} have a hole"
            syncs = [row for row in left if row[4] == "SYNC"]
            floor = min(seqno for (of, _), seqno in newest.items() if of == origin)
            assert min(row[1] for row in syncs) <= floor, f"no confirmed SYNC of node {origin} is left"
            oldest[origin] = int(str(min(syncs, key=lambda row: row[1])[3]).split(":")[0])
        self._assert_logs(rows, oldest)

    def _assert_logs(self, rows: dict[str, Any], xmins: dict[int, int]) -> None:
        status = rows["sl_log_status"]
        assert status in (0, 1, 2, 3)
        if status in (0, 1):
            assert rows[f"sl_log_{2 - status}"] == []
        for table in ("sl_log_1", "sl_log_2"):
            had, left = self.rows[table], rows[table]
            if left == had:
                continue
            assert left == [], f"{table} was emptied whole or not at all"
            assert all(int(row[1]) < xmins[row[0]] for row in had), f"{table} was not drained"


def _newest_confirmations(rows: dict[str, Any]) -> dict[tuple[int, int], int]:
    found: dict[tuple[int, int], int] = {}
    for origin, receiver, seqno, *_ in rows["sl_confirm"]:
        found[origin, receiver] = max(seqno, found.get((origin, receiver), 0))
    return found


def fall_behind(node: NodeStore, *, receiver: int = 3) -> None:
    """Let a receiver have confirmed next to nothing of node 1, as far as this node has heard."""
    of_the_pair = f"con_origin = 1 and con_received = {receiver:d}"
    node.loaded.execute(
        f"delete from sl_confirm where {of_the_pair}"
        f" and con_seqno > (select min(con_seqno) from sl_confirm where {of_the_pair})"
    )


def catch_up(node: NodeStore, *, receiver: int = 3) -> None:
    """Let a receiver confirm everything of node 1, now."""
    node.loaded.execute(
        "insert into sl_confirm (con_origin, con_received, con_seqno, con_timestamp)"
        f" select 1, {receiver:d}, max(ev_seqno), now() from sl_event where ev_origin = 1"
    )

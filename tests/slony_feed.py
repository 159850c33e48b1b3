"""A naive subscriber: applies the records of a feed to dictionaries, by the words of the feed alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random
from typing import Any, Self

from tests.slony_cluster import SlonyCluster

KEYS: Mapping[str, tuple[str, ...]] = {"account": ("id",), "movement": ("account", "number")}
"""Of the tables of set 1."""
Row = dict[str, Any]


class NaiveSubscriber:
    """Rows by table and key. A unit counts when its SYNC has come; a row that comes twice is an error.

    Attributes:
        writes: changes of entries that the same units make in a replica.
    """

    def __init__(self) -> None:
        self.tables: dict[str, dict[tuple[Any, ...], Row]] = {name: {} for name in KEYS}
        self.ticket = 0
        self.units = self.rows = self.writes = 0
        self.after: int | None = None
        self.snapshot: str | None = None
        self.copied: str | None = None
        self._unit: list[Mapping[str, Any]] = []

    @classmethod
    def at(cls, cluster: SlonyCluster, node: int) -> Self:
        """With what a node holds now."""
        found = cls()
        found.tables = content(cluster, node)
        [(value,)] = cluster.run(node, "select last_value from ticket")
        found.ticket = int(value)
        return found

    def take_copy(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Take a first copy."""
        start, *rows, end = records
        assert (start["kind"], end["kind"]) == ("START", "END")
        assert end["detail"]["records"] == len(rows)
        self.after, self.snapshot = start["seqno"], start["snapshot"]
        self.copied = start["detail"]["copied"]
        for row in rows:
            self._apply({**row, "kind": "INSERT"} if row["kind"] == "COPY" else row)

    def take(self, records: Iterable[Mapping[str, Any]]) -> int:
        """Apply whole units; how many."""
        units = 0
        for record in records:
            if record["kind"] == "START":
                assert self.after in (None, record["seqno"])
                self._unit.clear()
            elif record["kind"] == "SYNC":
                assert record["detail"]["records"] == len(self._unit)
                assert all(each["seqno"] == record["seqno"] for each in self._unit)
                for each in self._unit:
                    self._apply(each)
                self.writes += any(each["kind"] != "EVENT" for each in self._unit)  # the label of the unit
                self._unit.clear()
                self.after, self.snapshot = record["seqno"], record["detail"]["snapshot"]
                self.copied = None
                units += 1
            else:
                self._unit.append(record)
        self.units += units
        return units

    def _apply(self, record: Mapping[str, Any]) -> None:
        kind = record["kind"]
        if kind == "EVENT":
            return
        if kind == "SEQUENCE":
            assert record["table"] == "ticket"
            self.ticket = int(record["detail"]["last_value"])
            self.writes += 1
            return
        self.rows += 1
        self.writes += 1
        table = self.tables[record["table"]]
        names = KEYS[record["table"]]
        if kind == "INSERT":
            key = tuple(record["values"][name] for name in names)
            assert key not in table, f"{record['table']} {key} came twice"
            table[key] = dict(record["values"])
        elif kind == "UPDATE":
            before = tuple(record["key"][name] for name in names)
            row = table.pop(before) | record["values"]
            after = tuple(row[name] for name in names)
            table[after] = row
            self.writes += before != after
        elif kind == "DELETE":
            del table[tuple(record["key"][name] for name in names)]
        elif kind == "TRUNCATE":
            self.writes += len(table) - 1
            table.clear()
        else:
            raise AssertionError(f"a record of kind {kind}")


def content(cluster: SlonyCluster, node: int) -> dict[str, dict[tuple[Any, ...], Row]]:
    """Every row of a node, each value as PostgreSQL prints it."""
    found: dict[str, dict[tuple[Any, ...], Row]] = {}
    for table, names in KEYS.items():
        rows = [row for (row,) in cluster.run(node, f"select to_jsonb(t) from (select {_texts(table)}) t")]
        found[table] = {tuple(row[name] for name in names): row for row in rows}
    return found


def odd_work(cluster: SlonyCluster, rng: Random) -> None:
    """What the load does not do: keys that change, tables that are emptied, rows that come and go.

    Each statement waits for the load's transactions and holds up new ones: none is a deadlock's victim.
    """
    number = 500_000 + rng.randrange(1_000)
    for statement in rng.sample(
        [
            "update account set id = (select max(id) + 1 from account)"
            " where id = (select min(id) from account)",
            f"insert into account values ({number}, E'\\u00e9\\\\\\'\"\\n', 1.50) on conflict do nothing",
            f"delete from account where id = {number}",
            f"update account set owner = 'o' where id > {number}",
            "update movement set number = -number where account % 7 = 0",
            "truncate movement; insert into movement values (1, 1, 1, null)",
            f"insert into account values (-{number}, 'x', 0); delete from account where id = -{number}",
        ],
        4,
    ):
        cluster.run(
            1, f"begin; lock table account, movement in share row exclusive mode; {statement}; commit"
        )


def _texts(table: str) -> str:
    columns = {"account": ("id", "owner", "balance"), "movement": ("account", "number", "amount", "note")}
    return f"{', '.join(f'{name}::text' for name in columns[table])} from {table}"

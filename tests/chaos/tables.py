"""Purges ROWS of a table beside its writer: what is gone is archived once, what is referred to stays."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from pathlib import Path

from spark.targets.archive.archive import read_manifest_json, read_rows
from spark.targets.connection import Target, connect
from tests.chaos.work import LABELS, Work

ROWS = 400
OLD, YOUNG = "2020-01-01 00:00:00", "2037-01-01 00:00:00"


class Tables(Work):
    """A fresh table in each turn: half of its rows old, some of these with a reading that refers to them."""

    name = "tables"

    def prepare(self) -> None:
        """One database for every second turn."""
        self.url = self.fleet.targets.create_database("tables")

    def turn(self) -> None:
        """Each row is either there or in the archive, and exactly those went that nothing holds."""
        table = f"event_{self.done}"
        is_sqlite = self.done % 2 == 0
        url = f"sqlite:///{self.directory}/{self.done}.db" if is_sqlite else self.url
        if is_sqlite:
            (self.directory / f"{self.done}.db").touch()
        referred = set(self.rng.sample(range(ROWS), 40))
        target = Target(url, table_prefix="")
        with self.fleet.guard:
            self._fill(target, table, referred)
        store = f"tables-{self.done}"
        self.client.stores.create(store, url, kind="SQL", labels=LABELS)
        body = {
            "kind": "ROWS",
            "table": table,
            "time_column": "at",
            "older_than": "P1D",
            "archive": {"format": "PARQUET"},
            "max_rows_in_tx": 20,
            "max_rows_per_s": self.rng.choice([50, 200, 5_000]),
        }
        job_id = str(self.post(f"/v1/stores/{store}/purges", body)["id"])
        result = self.succeeded(job_id)
        with self.fleet.guard, closing(connect(target, application_name="looks")) as conn:
            left = {int(n) for (n,) in conn.execute(f"select id from {table}")}
        gone = {n for n in range(ROWS) if n % 2 == 0} - referred
        assert left == set(range(ROWS)) - gone
        assert result["removed"] == {table: len(gone)}, result
        found = read_manifest_json(Path(result["archive"]["directory"]))
        archived = Counter(int(row[0]) for entry in found for row in read_rows(entry.path))
        assert archived == Counter(gone), "each row that went is archived exactly once"
        self.counts["rows"] += len(gone)

    def _fill(self, target: Target, table: str, referred: set[int]) -> None:
        with closing(connect(target, application_name="made")) as conn:
            conn.execute(f"create table {table} (id integer primary key, at timestamp null, n integer)")
            conn.execute(
                f"create table reading_{self.done} (id integer primary key, event integer,"
                f" foreign key (event) references {table} (id))"
            )
            rows = ", ".join(f"({n}, '{OLD if n % 2 == 0 else YOUNG}', {n})" for n in range(ROWS))
            conn.execute(f"insert into {table} values {rows}")
            held = ", ".join(f"({n}, {n})" for n in sorted(referred))
            conn.execute(f"insert into reading_{self.done} values {held}")

"""Archives of random tables, written as units write them: deleted, kept and counted in one transaction."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spark.targets.archive.archive import archive_delete, job_directory, write_manifest_json
from spark.targets.connection import Connection
from spark.targets.ledger import LedgerRow, archive_manifest, ensure_ledger, record_manifest, record_unit
from spark.targets.manifest import ManifestEntry

COLUMNS = {
    "sqlite": ("integer", "text", "blob", "real", "numeric", "datetime", "varchar(9)"),
    "postgresql": (
        "bigint",
        "smallint",
        "text",
        "bytea",
        "double precision",
        "numeric(9,2)",
        "timestamptz",
        "timestamp",
    ),
    "mysql": (
        "bigint unsigned",
        "int unsigned",
        "tinyint",
        "longtext",
        "varbinary(20)",
        "double",
        "datetime(6)",
    ),
}


def job_id(number: int) -> str:
    """The id of a job."""
    return f"job_{number:026d}"


@dataclass
class Archives:
    """Archives below one root."""

    root: Path
    store: str = "shop"

    def directory(self, job: int) -> Path:
        return job_directory(self.root, self.store, job_id(job))

    def keep(
        self, conn: Connection, table: str, where: str, *, job: int, unit: str, token: int = 1
    ) -> ManifestEntry | None:
        """Remove rows as a unit does; None: there were none."""
        assert ensure_ledger(conn)
        with conn.transaction():
            [(count,)] = conn.execute(f"select count(*) from {table} where {where}")
            entry = archive_delete(
                conn,
                f"delete from {conn.dialect.qualify(conn.target.schema, table)} as d where {where}",
                {},
                table=table,
                alias="d",
                directory=self.directory(job),
                job_id=job_id(job),
                unit_id=unit,
                token=token,
            )
            record_unit(conn, LedgerRow(job_id(job), unit, table.upper(), token, token, count))
            if entry is not None:
                record_manifest(conn, entry)
        return entry

    def close(self, conn: Connection, job: int) -> list[ManifestEntry]:
        """End a job: its manifest is written beside its files."""
        entries = archive_manifest(conn, job_id(job))
        write_manifest_json(self.directory(job), entries)
        return entries


def make_table(conn: Connection, table: str, rng: random.Random, rows: int) -> None:
    """A table of random columns with `rows` rows, the keys 0, 1, ..."""
    kinds = rng.sample(COLUMNS[conn.dialect.name], rng.randint(1, 5))
    columns = ", ".join(f"c{number} {kind}" for number, kind in enumerate(kinds))
    conn.execute(f"create table {table} (id bigint primary key, {columns})")
    fill(conn, table, rng, range(rows), kinds)


def fill(conn: Connection, table: str, rng: random.Random, keys: range, kinds: list[str]) -> None:
    """Rows of random values."""
    names = [f"c{number}" for number in range(len(kinds))]
    values = ", ".join(f":{name}" for name in names)
    with conn.transaction():
        for key in keys:
            row = {name: _value(conn, kind, rng) for name, kind in zip(names, kinds, strict=True)}
            conn.execute(f"insert into {table} values (:id, {values})", {"id": key, **row})


def _value(conn: Connection, kind: str, rng: random.Random) -> Any:
    if rng.random() < 0.15:
        return None
    if conn.dialect.name == "sqlite" and rng.random() < 0.25:  # any class may stand in any column
        return rng.choice(
            (rng.randint(-(2**63), 2**63 - 1), rng.random() * 1e6, "text", b"\xff\x00", float("inf"))
        )
    if "int" in kind:
        return rng.randint(0, 100 if kind.startswith(("tiny", "small")) else 2**31)
    if kind in ("blob", "bytea") or "binary" in kind:
        return rng.randbytes(rng.randint(0, 12))
    if kind in ("real", "double", "double precision"):
        return rng.random()
    if "numeric" in kind:
        return rng.randint(0, 10**8) / 100
    if "date" in kind or "timestamp" in kind:
        return rng.choice(("2026-11-25 15:00:00", "1970-01-01 00:00:00.123456"))
    return "".join(rng.choices("abc\"'\\\n✓ é", k=rng.randint(0, 9)))

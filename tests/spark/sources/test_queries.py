"""What auditors ask, answered over logs and archives whose truth their writers know."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lethe_spark.queries import (
    ARCHIVE_AGAINST_LEDGER,
    ERASED_KEYS_IN_CHANGES,
    ERASED_KEYS_IN_LOGS,
    PURGED_TWICE,
    ask,
)
from pyspark.sql import SparkSession

from lethe_samples.je_writer.environment import Environment
from spark.targets.connection import Target
from tests.spark.erase.random_environments import Written, random_environment
from tests.spark.sources.archives import Archives, job_id
from tests.spark.sources.conftest import Reading
from tests.spark.targets.conftest import Connect

SEEDS = [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 40))]


def _erased_in_log(
    session: SparkSession, directory: Path, keys: list[tuple[str, bytes]]
) -> list[dict[str, Any]]:
    options = {"path": str(directory)}
    erased = session.createDataFrame(
        pa.table({"database": [db for db, _ in keys], "key": [key for _, key in keys]})
    )
    entries = session.read.format("lethe_je").options(
        columns="environment,lsn,type,db,key,txn,name,deleted",
        types="MAP_LN,MAP_LN_TX,COMMIT,ABORT",
        **options,
    )
    found = ask(
        session,
        ERASED_KEYS_IN_LOGS,
        erased=erased,
        entries=entries.load(),
        keys=session.read.format("lethe_je").options(view="keys", **options).load(),
    )
    return [row.asDict() for row in found.collect()]


def _plain(written: Written) -> list[str]:
    """Databases whose keys stand in the log as the application gave them."""
    return [name for name in written.live if name not in written.dups | written.comparators]


@pytest.mark.parametrize("seed", SEEDS)
def test_no_live_key_is_missed_in_a_log(reading: Reading, tmp_path: Path, seed: int) -> None:
    written = random_environment(tmp_path, seed, size=400)
    names = _plain(written)
    live = {(name, key) for name in names for key, _ in written.live[name]}
    never = {(name, b"never-%d" % number) for name in names for number in range(3)}
    known = {
        (name, marker.key)
        for name in names
        for marker in written.markers.values()
        if marker.db_id == written.ids[name]
    }
    rows = reading.run(lambda session: _erased_in_log(session, tmp_path, sorted(live | never | known)))
    alive = {(row["database"], bytes(row["key"])) for row in rows if row["alive"]}
    readable = {(row["database"], bytes(row["key"])) for row in rows}
    assert live - alive == set()
    assert readable & never == set()
    data = b"".join(file.read_bytes() for file in tmp_path.glob("*.jdb"))
    plain = {written.ids[name] for name in names}
    of_others = {marker.key for marker in written.markers.values() if marker.db_id not in plain}
    for name, key in known - readable:
        assert (name, key) not in live
        # In a database with duplicates the same key stands in the log with its data, which nobody asked for.
        assert (
            key in of_others
            or data.count(key) == 0
            or len(key) < 6
            or any(key in other for _, other in readable)
        )
    for row in rows:
        assert row["entries"] + row["slots"] > 0


def test_a_deleted_key_is_readable_and_not_alive(reading: Reading, tmp_path: Path) -> None:
    log = Environment(tmp_path, file_bytes_max=100_000, created_ms=1)
    log.create("orders")
    for number in range(5):
        log.put(None, "orders", b"key-%d" % number, b"v" * 40)
    log.checkpoint()
    log.delete(None, "orders", b"key-1", b"")
    txn = log.begin()
    log.delete(txn, "orders", b"key-2", b"")
    log.abort(txn)
    txn = log.begin()
    log.delete(txn, "orders", b"key-3", b"")
    log.commit(txn)
    txn = log.begin()
    log.put(txn, "orders", b"key-7", b"v" * 40)
    log.abort(txn)
    log.checkpoint()
    log.close()
    asked = [("orders", b"key-%d" % number) for number in range(10)] + [("other", b"key-0")]
    rows = reading.run(lambda session: _erased_in_log(session, tmp_path, asked))
    assert {bytes(row["key"]): row["alive"] for row in rows} == {
        b"key-0": True,
        b"key-1": False,
        b"key-2": True,
        b"key-3": False,
        b"key-4": True,
        b"key-7": False,
    }
    assert {row["database"] for row in rows} == {"orders"}
    assert all(row["entries"] > 0 for row in rows)


def _archive_frames(session: SparkSession, archives: Archives, target: Target) -> dict[str, Any]:
    return {
        "archive": session.read.format("lethe_archive").load(str(archives.root)),
        "ledger": session.read.format("lethe_ledger").options(url=target.url).load(),
    }


def test_rows_purged_twice_and_units_that_differ_are_found(
    reading: Reading, archives: Archives, sqlite: Target, opened: Connect
) -> None:
    rng = random.Random(11)
    conn = opened(sqlite)
    conn.execute("create table t (id integer primary key, c text)")
    twice: dict[int, list[tuple[str, str]]] = {}
    for job in range(1, 5):
        keys = rng.sample(range(40), 15)
        conn.execute_many("insert into t values (:id, 'x')", [{"id": key} for key in keys])
        for unit, (low, high) in enumerate(((0, 20), (20, 40))):
            archives.keep(conn, "t", f"id >= {low} and id < {high}", job=job, unit=f"u-{unit}")
            for key in keys:
                if low <= key < high:
                    twice.setdefault(key, []).append((job_id(job), f"u-{unit}"))
        archives.close(conn, job)

    def found(session: SparkSession) -> tuple[list[Any], list[Any]]:
        frames = _archive_frames(session, archives, sqlite)
        return (
            ask(session, PURGED_TWICE, archive=frames["archive"]).collect(),
            ask(session, ARCHIVE_AGAINST_LEDGER, **frames).collect(),
        )

    rows, differing = reading.run(found)
    wanted = {key: sorted(jobs) for key, jobs in twice.items() if len(jobs) > 1}
    assert {
        int(row["primary_key"].strip("[]")): [tuple(each) for each in row["purges"]] for row in rows
    } == wanted
    assert {(row["store"], row["table_name"]) for row in rows} == {("shop", "t")}
    assert all(row["times"] == len(row["purges"]) for row in rows)
    assert differing == []

    conn.execute(
        "update lethe_unit_ledger set rows_affected = 99 where job_id = :job and unit_id = 'u-1'",
        {"job": job_id(2)},
    )
    conn.execute("delete from lethe_unit_ledger where job_id = :job and unit_id = 'u-0'", {"job": job_id(3)})
    conn.execute(
        "insert into lethe_unit_ledger (job_id, unit_id, step, attempt, token, rows_affected, detail)"
        " values (:job, 'u-5', 'T', 1, 1, 3, '{}')",
        {"job": job_id(4)},
    )
    _, differing = reading.run(found)
    kept = {(row["job_id"], row["unit_id"]): (row["archived"], row["counted"]) for row in differing}
    assert set(kept) == {(job_id(2), "u-1"), (job_id(3), "u-0"), (job_id(4), "u-5")}
    assert kept[job_id(2), "u-1"][1] == 99
    assert kept[job_id(3), "u-0"][1] == 0
    assert kept[job_id(4), "u-5"] == (0, 3)


def test_values_that_a_changelog_still_holds_are_found(reading: Reading) -> None:
    records = [
        ("1", "CHANGE", b"a", b"v"),
        ("2", "CHANGE", b"b", b"v"),
        ("3", "CHANGE", b"b", None),
        ("4", "CHANGE", b"c", None),
        ("5", "KEEPALIVE", b"d", None),
    ]

    def found(session: SparkSession) -> list[tuple[Any, ...]]:
        csn, kind, key, payload = zip(*records, strict=True)
        changes = session.createDataFrame(
            pa.table({"csn": csn, "kind": kind, "database": [b"db"] * 5, "key": key, "payload": payload})
        )
        erased = session.createDataFrame(pa.table({"database": [b"db"] * 4, "key": [b"a", b"b", b"c", b"z"]}))
        rows = ask(session, ERASED_KEYS_IN_CHANGES, changes=changes, erased=erased).collect()
        return [(bytes(row["key"]), row["alive"], row["records"]) for row in rows]

    assert reading.run(found) == [(b"a", True, 1), (b"b", False, 1)]

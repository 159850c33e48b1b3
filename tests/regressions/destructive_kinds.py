"""Every kind of job that removes rows in units, on PostgreSQL, to be run by a runner of this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from app.auth.scopes import Scope
from app.auth.service import Caller
from app.db import Database
from app.events.cleanup.models import CleanupRequest
from app.events.cleanup.service import submit_unseen as submit_cleanup
from app.extinction.queries import get_extinction
from app.extinction.records import insert_row, note_logged
from app.extinction.records import submit_job as submit_extinction
from app.extinction.rows import ExtinctionState
from app.extinction.service import commit_at_target
from app.jobs.models import ThrottleSetting
from app.replication.replica.replicas import opened_replica
from app.replication.trimming.service import unseen as unseen_trimming
from app.stores.models import StoreKind
from app.stores.rows import Store
from app.sweeps.purging import submit_looked
from spark.formats.csn import Csn
from spark.formats.extinction import Extinction
from spark.formats.replica import tables_of
from tests.oracles.symmetricds import CUTOFF, Place, build
from tests.regressions.old_rows import MUST_BE_THERE, OLD_ROWS, UPKEEP, insert
from tests.regressions.purges import OLD_CUTOFF, Purges
from tests.regressions.row_purges import RowPurges
from tests.spark.events.catalogs import Catalogs, conninfo_of
from tests.spark.replication.replica_tables import put_records

KINDS = ("OUTGOING", "INCOMING", "DATA_GAP", *UPKEEP, "CHANGELOG", "ROWS", "EVENT_CLEANUP", "EXTINCTION")
ARCHIVING = KINDS[:-1]
ELSEWHERE = {
    "ERASURE": "its units are files of JE, not rows: tests/app/erase, tests/spark/erase and tests/journeys",
    "LOG_SWITCH": "it empties a table at once, without units: tests/app/events and tests/spark/events",
    "SLONY_FEED": "what goes has gone at the node: tests/spark/slony_feed and tests/http",
    "REPLICATION_SESSION": "it removes at the consumer, by its changes: tests/spark/replication",
}
"""What removes something too, and is tested elsewhere."""
ROWS = 120
OLD_S = int(time.time()) - 100_000
CLEAN_AT = datetime(2026, 11, 20, 8, 2, 5, tzinfo=UTC)
ANN = Caller("tok", "ann", frozenset(Scope), None)
EXTINCTION = Extinction("ext_01k9x2m4c6d8e0f2g4h6j8k0mn", frozenset([b"db"]), b"b", None, None, "old ones")
SLEEPY = """
    create function {schema}slow() returns trigger language plpgsql as
    $$ begin perform pg_sleep({seconds}); return old; end $$;
    create trigger slow before delete on {schema}{table} for each row execute function {schema}slow();
"""


@dataclass(frozen=True)
class Destructive:
    """A store with rows to remove, and the job that does it.

    Args:
        table: whose rows go, with its schema.
        submit: queues the job, archived, throttled or in small units as asked; its id.
        went: rows that the result tells.
    """

    kind: str
    url: str
    schema: str
    table: str
    submit: Callable[..., str]
    went: Callable[[Mapping[str, Any]], int]

    def count(self) -> int:
        """Rows that are there."""
        with psycopg.connect(conninfo_of(self.url)) as raw:
            found = raw.execute(f"select count(*) from {self.schema}{self.table}").fetchone()
        assert found is not None
        return int(found[0])

    def slow_down(self, seconds: float) -> None:
        """Let every removed row take its time."""
        with psycopg.connect(conninfo_of(self.url)) as raw:
            raw.execute(SLEEPY.format(schema=self.schema, table=self.table, seconds=seconds))


def make(kind: str, purges: Purges, catalogs: Catalogs, url: str) -> Destructive:
    """A job of a kind, with a target of its own."""
    if kind in ("CHANGELOG", "EXTINCTION"):
        return _replica(kind, purges, url)
    if kind == "EVENT_CLEANUP":
        return _node(purges, catalogs)
    if kind == "ROWS":
        return _rows(purges, url)
    return _symmetricds(kind, purges, url)


def _symmetricds(kind: str, purges: Purges, url: str) -> Destructive:
    is_3x = kind == "OUTGOING" or kind in UPKEEP
    place = Place(url, "3.x" if is_3x else "2.x")
    if kind == "OUTGOING":
        purges.fill(place, rows=2 * ROWS)
    elif kind in UPKEEP:
        build(place, MUST_BE_THERE.get(kind, {}))
        insert(place, kind, range(1, ROWS + 1))
    else:
        build(place, _incoming())
    purges.store(place)
    table = {"OUTGOING": "data", "INCOMING": "incoming_batch", "DATA_GAP": "data_gap"}.get(kind)
    table = table or next(iter(OLD_ROWS[kind]))

    def submit(*, is_archived: bool = False, rows_in_tx: int | None = None, rate: float | None = None) -> str:
        return purges.submit(
            kind=kind,
            cutoff=OLD_CUTOFF,
            stranded="REMOVE" if kind == "STRANDED" else None,
            max_rows_in_tx=rows_in_tx,
            archive={"format": "PARQUET"} if is_archived else None,
            throttle=None if rate is None else {"rows_per_s": rate},
        )

    return Destructive(kind, url, "", f"sym_{table}", submit, lambda result: int(result["removed"][table]))


def _incoming() -> dict[str, list[dict[str, Any]]]:
    old = CUTOFF - timedelta(days=1)
    batches = [
        {"batch_id": 1_000 + number, "node_id": node, "status": "OK", "create_time": old}
        for node in ("north", "south")
        for number in range(ROWS)
    ]
    gaps = [
        {
            "start_id": 10 * number,
            "end_id": 10 * number + 5,
            "status": "OK",
            "create_time": old,
            "last_update_time": old,
        }
        for number in range(ROWS)
    ]
    return {"incoming_batch": batches, "data_gap": gaps}


def _add(database: Database, store: Store) -> None:
    with database.transaction() as db:
        db.add(store)


def _replica(kind: str, purges: Purges, url: str) -> Destructive:
    bench = purges.bench
    now = datetime.now(UTC)
    store = Store(
        id="shop",
        kind=StoreKind.REPLICA,
        rid=1,
        url=url,
        table_prefix="replica_",
        parameters={"je.cleaner.extinctScanBatchSize": ROWS, "je.cleaner.extinctScanBatchDelay": "PT0S"},
        created_at=now,
        updated_at=now,
    )
    _add(bench.database, store)
    with opened_replica(bench.database, bench.settings, store) as conn:
        if kind == "CHANGELOG":
            with conn.transaction():
                put_records(conn, [(Csn.of(OLD_S + number, 0, 2), OLD_S) for number in range(ROWS)])
        else:
            insert = (
                f"insert into {tables_of(conn).entries} (database, key, value, csn, is_tombstone)"
                " values (:database, :key, :value, :csn, false)"
            )
            with conn.transaction():
                for number in range(ROWS):
                    key, csn = b"b%04d" % number, "6affffff000000010000"
                    conn.execute(insert, {"database": b"db", "key": key, "value": b"v", "csn": csn})
    if kind == "CHANGELOG":
        return Destructive(
            kind,
            url,
            "",
            "replica_changelog",
            _trimmer(purges),
            lambda result: result["removed"]["changelog"],
        )
    return Destructive(
        kind, url, "", "replica_entries", _scanner(purges, store), lambda result: result["records"]
    )


def _trimmer(purges: Purges) -> Callable[..., str]:
    def submit(*, is_archived: bool = False, rows_in_tx: int | None = None, rate: float | None = None) -> str:
        fields: dict[str, Any] = {"retention_minutes": 60, "max_rows_in_tx": rows_in_tx}
        if is_archived:
            fields["archive"] = {"format": "PARQUET"}
        if rate is not None:
            fields["throttle"] = {"rows_per_s": rate}
        bench = purges.bench
        with bench.database.transaction() as db:
            store = db.get_one(Store, "shop")
            return submit_looked(
                db,
                store,
                unseen_trimming(db, store, fields),
                caller=ANN,
                reason=None,
                settings=bench.settings,
                now=datetime.now(UTC),
            ).id

    return submit


def _scanner(purges: Purges, store: Store) -> Callable[..., str]:
    def submit(*, is_archived: bool = False, rows_in_tx: int | None = None, rate: float | None = None) -> str:
        assert not is_archived, "an extinction keeps nothing"
        bench, now = purges.bench, datetime.now(UTC)
        with bench.database.transaction() as db:
            row = db.get_one(Store, store.id)
            if rows_in_tx is not None:
                row.parameters = {**row.parameters, "je.cleaner.extinctScanBatchSize": rows_in_tx}
                db.add(row)
            insert_row(db, store.id, EXTINCTION, state=ExtinctionState.RESERVED, now=now)
        csn = commit_at_target(bench.database, bench.settings, store, EXTINCTION, now=now)
        with bench.database.transaction() as db:
            found = get_extinction(db, store.id, EXTINCTION.id)
            note_logged(db, found, now=now, csn=csn)
            job = submit_extinction(
                db, store, found, settings=bench.settings, now=now, requested_by="ann", token_id=None
            )
            if rate is not None:
                job.throttle_requested = ThrottleSetting(rows_per_s=rate).model_dump()
                db.add(job)
            return job.id

    return submit


def _rows(purges: Purges, url: str) -> Destructive:
    with psycopg.connect(conninfo_of(url)) as raw:
        raw.execute("create table ticket (id integer primary key, closed timestamptz not null)")
        raw.execute(
            "insert into ticket select n, timestamptz '2020-01-01' + n * interval '1 minute'"
            " from generate_series(1, %s) n",
            (ROWS,),
        )
        raw.execute("insert into ticket values (0, now())")
    found = RowPurges(purges, url)
    found.add_store()

    def submit(*, is_archived: bool = False, rows_in_tx: int | None = None, rate: float | None = None) -> str:
        return found.submit(
            table="ticket",
            time_column="closed",
            cutoff="2026-01-01T00:00:00Z",
            max_rows_in_tx=rows_in_tx,
            archive={"format": "PARQUET"} if is_archived else None,
            throttle=None if rate is None else {"rows_per_s": rate},
        )

    return Destructive("ROWS", url, "", "ticket", submit, lambda result: result["removed"]["ticket"])


def _node(purges: Purges, catalogs: Catalogs) -> Destructive:
    loaded = catalogs.load("fxa", 1, cluster="lab")
    now = datetime.now(UTC)
    store = Store(
        id="shop", kind=StoreKind.SLONY, cluster="lab", url=loaded.url, created_at=now, updated_at=now
    )
    _add(purges.bench.database, store)

    def submit(*, is_archived: bool = False, rows_in_tx: int | None = None, rate: float | None = None) -> str:
        fields: dict[str, Any] = {"confirmed_before": CLEAN_AT.isoformat(), "via": "BUILTIN"}
        fields |= {"max_rows_in_tx": rows_in_tx, "log_switch": "NONE"}
        if is_archived:
            fields["archive"] = {"format": "PARQUET"}
        if rate is not None:
            fields["throttle"] = {"rows_per_s": rate}
        with purges.bench.database.transaction() as db:
            return submit_cleanup(
                db,
                db.get_one(Store, "shop"),
                CleanupRequest.model_validate(fields),
                caller=ANN,
                settings=purges.bench.settings,
                now=datetime.now(UTC),
            ).id

    return Destructive(
        "EVENT_CLEANUP", loaded.url, "_lab.", "sl_event", submit, lambda result: result["removed"]["sl_event"]
    )

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
from app.replication.tombstones.service import unseen as unseen_burial
from app.replication.trimming.service import unseen as unseen_trimming
from app.stores.models import StoreKind
from app.stores.rows import Store
from app.sweeps.purging import Looked, submit_looked
from spark.formats.csn import Csn
from spark.formats.extinction import Extinction
from spark.formats.replica import tables_of
from spark.targets.connection import Connection
from tests.oracles.symmetricds import CUTOFF, Place, build
from tests.regressions.old_rows import MUST_BE_THERE, OLD_ROWS, UPKEEP, insert
from tests.regressions.purges import OLD_CUTOFF, Purges
from tests.regressions.row_purges import RowPurges
from tests.spark.events.catalogs import Catalogs, conninfo_of
from tests.spark.replication.replica_tables import put_records
from tests.spark.replication.tombstone_tables import put_entries

KINDS = (
    *("OUTGOING", "INCOMING", "DATA_GAP", *UPKEEP),
    *("CHANGELOG", "TOMBSTONES", "ROWS", "EVENT_CLEANUP", "EXTINCTION"),
)
ARCHIVING = KINDS[:-1]
ELSEWHERE = {
    "ERASURE": "its units are files of JE, not rows: tests/app/erase, tests/spark/erase and tests/journeys",
    "LOG_SWITCH": "it empties a table at once, without units: tests/app/events and tests/spark/events",
    "SLONY_FEED": "what goes has gone at the node: tests/spark/slony_feed and tests/http",
    "REPLICATION_SESSION": "it removes at the consumer, by its changes: tests/spark/replication",
}
"""What removes something too, and is tested elsewhere."""
ROWS = 80
OLD_S = int(time.time()) - 100_000
A_DAY = 1_440
"""Minutes: what was deleted later goes by force only."""
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
    if kind in ("CHANGELOG", "TOMBSTONES", "EXTINCTION"):
        return replica_of(kind, purges, url)
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
        for number in range(ROWS // 2)
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


def replica_of(kind: str, purges: Purges, url: str, **fields: Any) -> Destructive:
    """A replica with rows of a kind to remove; `fields` of its store."""
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
        **fields,
    )
    _add(bench.database, store)
    with opened_replica(bench.database, bench.settings, store) as conn, conn.transaction():
        _fill(kind, conn)
    table = "replica_changelog" if kind == "CHANGELOG" else "replica_entries"
    if kind == "EXTINCTION":
        return Destructive(kind, url, "", table, _scanner(purges, store), lambda result: result["records"])
    submit = _of_replica(purges, unseen_trimming if kind == "CHANGELOG" else unseen_burial)
    name = table.removeprefix("replica_")
    return Destructive(kind, url, "", table, submit, lambda result: result["removed"][name])


def _fill(kind: str, conn: Connection) -> None:
    """Rows that an act of this kind removes."""
    csns = [Csn.of(OLD_S + number, 0, 2) for number in range(ROWS)]
    if kind == "CHANGELOG":
        put_records(conn, [(csn, OLD_S) for csn in csns])
        return
    is_dead = kind == "TOMBSTONES"
    put_entries(conn, {b"b%04d" % number: (csn, is_dead) for number, csn in enumerate(csns)})
    if is_dead:  # all of its changes are here
        conn.execute(
            f"insert into {tables_of(conn).ruv} (rid, max_csn) values (2, :csn)", {"csn": str(csns[-1])}
        )


def _of_replica(purges: Purges, unseen: Callable[..., Looked]) -> Callable[..., str]:
    def submit(*, is_archived: bool = False, rows_in_tx: int | None = None, rate: float | None = None) -> str:
        fields: dict[str, Any] = {"retention_minutes": A_DAY, "max_rows_in_tx": rows_in_tx}
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
                unseen(db, store, fields),
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

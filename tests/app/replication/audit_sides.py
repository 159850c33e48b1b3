"""Two replicas side by side, filled by hand, and an audit of them read by one connection or by workers."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from types import SimpleNamespace
from typing import Any, Final, cast

import pyarrow as pa

from app.clock import SystemClock
from app.jobs.engines.engine import InlineEngine
from app.jobs.errors import JobStopped, StopCause
from app.replication.audits.digests import compute_digests, wanted_by
from app.replication.audits.models import AuditParams, AuditResult, DigestRequest
from app.replication.audits.on_engine import working
from app.replication.audits.sides import Sides
from app.replication.audits.task import compare_sides
from app.replication.peer.answers import PeerReplica
from spark.formats.csn import Csn
from spark.formats.part import Part
from spark.formats.replica import tables_of
from spark.replication.proofs.withholding import withhold
from spark.replication.records import record_schema
from spark.replication.replica.buried import raise_bound
from spark.replication.replica.digest_piece import digest_work
from spark.replication.replica.replica import ensure_layout, snapshot
from spark.targets.connection import Connection
from tests.spark.replication.replica_tables import NOW_S, SHORT_WAITS, csn

RIDS: Final = (1, 3)
CHANGES: Final = 24
DIGEST_NAME: Final = "lethe-test-digest"
Answer = Callable[[int], None]


def nothing(_number: int) -> None:
    """Nothing happens before an answer."""


class Context:
    """What an audit needs of its job."""

    def __init__(self) -> None:
        self.clock = SystemClock()
        self.job = SimpleNamespace(id="job_a", kind="AUDIT", store="orders")
        self.throttle = SimpleNamespace(charges_in=lambda _seconds: None)
        self.stop_cause: StopCause | None = None
        self.done = 0
        self.cancels: list[Callable[[], object]] = []

    def check(self) -> None:
        if self.stop_cause is not None:
            raise JobStopped(self.stop_cause)

    def stop(self) -> None:
        self.stop_cause = StopCause.ABORT
        for cancel in list(self.cancels):
            cancel()

    def on_cancel(self, cancel: Callable[[], object]) -> Callable[[], None]:
        self.cancels.append(cancel)
        return lambda: self.cancels.remove(cancel)

    def show_waiting(self, waiting_on: Sequence[object]) -> None:
        assert not waiting_on, "threads are there at once"

    def progress(self, *, unit: str, done: int, total: int | None) -> None:
        assert (unit, total) == ("rows", None)
        self.done = done


@dataclass
class Consumer:
    """A consumer that answers by the service's own functions, one question after the other.

    Attributes:
        before: called before each answer with its number, from 1; any thread.
    """

    conn: Connection
    before: Answer
    turn: threading.Lock = field(default_factory=threading.Lock)
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def digests(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        wanted = wanted_by(DigestRequest.model_validate(body))
        with self.turn:
            self.before(next(self.numbers))
            return compute_digests(self.conn, wanted, should_stop=lambda: False).model_dump(mode="json")


@dataclass
class World:
    """A supplier and its consumer; `part`: of the consumer."""

    supplier: Connection
    consumer: Connection
    part: Part | None = None

    def audit(
        self, form: str, *, before: Answer = nothing, context: Context | None = None, **asked: Any
    ) -> AuditResult:
        """What an audit finds whose supplier's side is read in a form.

        Args:
            form: `own`, the job's connection; `threads`; `shuffled`, threads whose answers come in no order.
        """
        context = context or Context()
        params = AuditParams.model_validate(
            {"agreement_id": "a", "range": None, "entries": True, "consumer": {}, "target": {}} | asked
        )
        theirs = snapshot(self.consumer)
        peer = PeerReplica(
            rid=2,
            status="ONLINE",
            generation=theirs.replica.generation,
            ruv=theirs.vectors.ruv,
            purged=theirs.vectors.purged,
            part=self.part,
        )
        client = cast(Any, Consumer(self.consumer, before))
        sides = Sides(cast(Any, context), self.supplier, client, part=self.part)
        try:
            readers = cast(Any, _Readers(context, form))
            return compare_sides(sides, readers, params, snapshot(self.supplier), peer)
        finally:
            sides.close()


@dataclass
class _Readers:
    """Those of the service, with the choice made."""

    context: Context
    form: str

    @contextmanager
    def lent(self, sides: Sides, _ranges: Any, *, entries: bool) -> Iterator[None]:
        if self.form == "own":
            yield
            return
        work = digest_work(
            sides.conn.target, limits=SHORT_WAITS, application_name=DIGEST_NAME, part=sides.part
        )
        with working(InlineEngine(SystemClock()), work, cast(Any, self.context), workers=2) as map_units:
            in_turn = self.form == "threads"
            sides.read_by(map_units if in_turn else lambda units: _shuffled(map_units(units)), workers=2)
            yield


def _shuffled(outcomes: Iterator[Any]) -> Iterator[Any]:
    """As they end, but each held back for a while."""
    rng, held = random.Random(1), []
    for outcome in outcomes:
        held.append(outcome)
        if len(held) > 2:
            yield held.pop(rng.randrange(len(held)))
    yield from reversed(held)


# -- rows


@dataclass(frozen=True)
class Row:
    """A change of a replica id, or an entry, of the database `db`."""

    csn: Csn
    key: bytes
    value: bytes | None


def fill(conn: Connection, changes: Iterable[Row], entries: Iterable[Row], *, rid: int) -> None:
    """A replica with these rows; its RUV is that of CHANGES changes of each replica id, whatever is there."""
    ensure_layout(conn, rid=rid, generation=csn(0, 1), incarnation=f"inc_{rid}")
    tables = tables_of(conn)
    with conn.transaction():
        conn.execute_many(
            f"insert into {tables.changelog} (rid, csn, prev, kind, database, key, payload, logged_at_s)"
            f" values (:rid, :csn, null, 'CHANGE', :database, :key, :value, {NOW_S})",
            [_params(row) | {"rid": row.csn.rid} for row in changes],
        )
        conn.execute_many(
            f"insert into {tables.entries} (database, key, value, csn, is_tombstone)"
            " values (:database, :key, :value, :csn, :dead)",
            [_params(row) | {"dead": row.value is None} for row in entries],
        )
        conn.execute_many(
            f"insert into {tables.ruv} (rid, min_csn, max_csn) values (:rid, :first, :last)",
            [{"rid": each, "first": str(csn(1, each)), "last": str(csn(CHANGES, each))} for each in RIDS],
        )


def _params(row: Row) -> dict[str, Any]:
    return {"csn": str(row.csn), "database": b"db", "key": row.key, "value": row.value}


def withhold_rows(conn: Connection, part: Part) -> None:
    """Change a changelog into what a consumer of a part has of it."""
    table = tables_of(conn).changelog
    names = ("csn", "prev", "kind", "database", "key", "payload")
    rows = conn.execute(f"select {', '.join(names)} from {table} order by csn")
    batch = pa.RecordBatch.from_pylist([dict(zip(names, row, strict=True)) for row in rows], record_schema())
    conn.execute_many(
        f"update {table} set kind = :kind, database = :database, key = :key, payload = :payload"
        " where csn = :csn",
        [
            {name: value for name, value in row.items() if name != "prev"}
            for row in withhold(batch, part).to_pylist()
        ],
    )


def purge(conn: Connection, upto: Csn) -> None:
    """Trim the changelog."""
    tables, params = tables_of(conn), {"rid": upto.rid, "csn": str(upto)}
    with conn.transaction():
        conn.execute(f"delete from {tables.changelog} where rid = :rid and csn <= :csn", params)
        conn.execute(f"update {tables.ruv} set purged_csn = :csn where rid = :rid", params)


def bury(conn: Connection, upto: Csn) -> None:
    """Remove tombstones."""
    with conn.transaction():
        raise_bound(conn, upto)
        conn.execute(
            f"delete from {tables_of(conn).entries} where is_tombstone and csn <= :csn", {"csn": str(upto)}
        )


def write(conn: Connection, number: int) -> None:
    """A change of replica 1 after all of them: the RUV moves."""
    with conn.transaction():
        conn.execute(
            f"update {tables_of(conn).ruv} set max_csn = :csn where rid = 1",
            {"csn": str(csn(CHANGES + number, 1))},
        )

"""A supplier and its consumer, each a service without HTTP, for attacks on a copy that is under way.

What is run is the product's own task of a session, over real files and real metadata; only the wire is left
out: each request becomes the call that the consumer's API makes. Between any two requests a test may do what
a wicked world does: put a target or metadata back, purge, write, kill, or let somebody else come.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, cast

import pyarrow as pa
import pytest
from sqlmodel import col, update

from app.db import Database
from app.errors import ServiceError
from app.jobs.engines.choice import Engines
from app.jobs.engines.engine import InlineEngine
from app.jobs.errors import JobFailed, JobWaiting, LeaseLost
from app.jobs.rows import Job
from app.jobs.states import JobState
from app.replication.agreements.sessions.models import SessionParams
from app.replication.agreements.sessions.service import consumer_of, target_of_store
from app.replication.check import recover_replica
from app.replication.consumer.acquire import require_introduced, wanted_of
from app.replication.consumer.api import _with_history
from app.replication.consumer.applying import applying
from app.replication.consumer.models import AcquiredRead, AcquireRequest, AppliedRead, PeerLimits
from app.replication.consumer.service import Consumer, answered
from app.replication.peer.answers import (
    Acknowledged,
    Acquired,
    PeerRefused,
    PeerReplica,
    read_acknowledged,
    read_acquired,
    read_replica,
)
from app.replication.peer.client import ConsumerAddress
from app.replication.replica.replicas import (
    close_idle_replicas,
    connected_replica,
    note_own_max,
    remember,
    writer_turn,
)
from app.replication.supplier import pipeline, sending, task
from app.settings import Settings
from app.stores.models import StoreCreate
from app.stores.rows import Store
from app.stores.service import create_store
from spark.formats.changes.batch import ARROW_MEDIA_TYPE
from spark.formats.csn import Csn
from spark.replication.errors import ReplicaNotOnline, ReplicaWasRestored
from spark.replication.records import Snapshot, local_schema
from spark.replication.replica import local_write
from spark.replication.replica.replica import snapshot
from spark.replication.sessions.row import Ticket
from spark.replication.sessions.session import Completion, acquire, complete_total, release, renew
from spark.targets.connection import Connection, SessionLimits, connect
from tests.app.agreements import agreement_of
from tests.app.fake_clock import FakeClock
from tests.app.jobs.workbench import Workbench
from tests.spark.replication.history_sites import DATABASE, GENERATION, Machine

Hook = Callable[[str], None]
Act = Callable[[], object]
Kept = tuple[Path, Path]


class _Machine(Machine):
    """One that others use at the same time: its file stays as it is."""

    def open(self) -> None:
        self.conn = connect(
            self.target, application_name="copies", limits=SessionLimits(lock_timeout_ms=5_000)
        )
        self.compare()


@dataclass
class Node:
    """A service and its one replica: a file of metadata and a file of the target."""

    name: str
    rid: int
    folder: Path
    clock: FakeClock
    settings: Settings
    database: Database = field(init=False)
    store: Store = field(init=False)
    numbers: int = 0
    consents: bool = True
    """Whether an admin of it grants what a supplier asks for."""

    @property
    def path(self) -> Path:
        return self.folder / f"{self.name}.db"

    @property
    def metadata(self) -> Path:
        return self.folder / f"{self.name}.metadata"

    def create(self, template: Path) -> Self:
        """A new service, its store and its empty replica."""
        shutil.copyfile(template, self.metadata)
        self.begin()
        fields = {"id": self.name, "kind": "REPLICA", "rid": self.rid, "url": f"sqlite:///{self.path}"}
        request = StoreCreate.model_validate(fields | {"generation": GENERATION, "table_prefix": "replica_"})
        with self.database.transaction() as db:
            self.store = create_store(
                db, request, settings=self.settings, database=self.database, now=self.clock.now()
            )
        with self.opened():
            pass
        return self

    def begin(self) -> None:
        """The process begins."""
        self.database = Database(f"sqlite:///{self.metadata}", clock=self.clock)

    def end(self) -> None:
        """The process ends, with all its connections."""
        close_idle_replicas()
        self.database.close()

    @contextmanager
    def opened(self) -> Iterator[Connection]:
        with connected_replica(self.database, self.settings, self.store, purpose="test") as conn:
            yield conn

    @property
    def now_s(self) -> int:
        return int(self.clock.now().timestamp())

    def state(self) -> Snapshot:
        with self.opened() as conn:
            return snapshot(conn)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path, timeout=10)) as db:
            return db.execute(sql).fetchall()

    def entries(self) -> dict[bytes, tuple[str, bytes | None]]:
        """By key: CSN and value; None: it was deleted."""
        found = self.rows(
            "select key, csn, case when is_tombstone then null else value end from replica_entries"
        )
        return {bytes(key): (csn, value) for key, csn, value in found}

    def execute(self, sql: str) -> None:
        with closing(sqlite3.connect(self.path, timeout=10)) as db, db:
            db.execute(sql)

    def write(self, key: bytes, value: bytes | None) -> str | None:
        """A local change, as the service makes it; its CSN, None where it is refused."""
        self.clock.advance(1)
        batch = pa.RecordBatch.from_pylist(
            [{"database": DATABASE, "key": key, "value": value}], schema=local_schema()
        )
        with self.opened() as conn:
            expected = remember(self.database, conn, self.name)
            try:
                with writer_turn(conn):
                    done = local_write.write_group(
                        conn, [local_write.LocalRequest(batch)], now_s=self.now_s, expected=expected
                    )
            except (ReplicaNotOnline, ReplicaWasRestored):
                return None
        now = self.clock.now()
        with self.database.transaction() as db:
            note_own_max(db, self.name, done.own_max, now=now)
        return done.own_max

    def bury(self) -> int:
        """A purge of all tombstones that may go."""
        with self.machine() as machine:
            return machine.bury()

    def trim(self, upto: str) -> int:
        """Its own records up to a CSN leave the changelog, as far as they may."""
        with self.machine() as machine:
            return machine.trim(upto, self.rid)

    @contextmanager
    def machine(self) -> Iterator[Machine]:
        """The target, as tests of the lower floor use it."""
        found = _Machine(self.rid, self.path, clock_s=self.now_s)
        try:
            yield found
        finally:
            self.clock.advance(max(0, found.clock_s - self.now_s))
            found.close()

    def recover(self) -> None:
        """An admin gives up what is lost."""
        recover_replica(self.database, self.settings, self.store, "ann")

    # -- backups

    def back_up(self) -> Kept:
        """Target and metadata as they are."""
        self.numbers += 1
        kept = [Path(f"{path}.{self.numbers}") for path in (self.path, self.metadata)]
        for source, copy in zip((self.path, self.metadata), kept, strict=True):
            _copy(source, copy)
        return kept[0], kept[1]

    def put_back(self, kept: Kept, *, target: bool = True, metadata: bool = False) -> None:
        """As a restore into the running database does it; metadata only while no process is there."""
        if target:
            _copy(kept[0], self.path)
        if metadata:
            self.end()
            for suffix in ("-wal", "-shm"):
                Path(f"{self.metadata}{suffix}").unlink(missing_ok=True)
            shutil.copyfile(kept[1], self.metadata)
            self.begin()


def _copy(source: Path, copy: Path) -> None:
    with (
        closing(sqlite3.connect(source, timeout=10)) as old,
        closing(sqlite3.connect(copy, timeout=10)) as new,
    ):
        old.backup(new)


class DirectWire:
    """A PeerClient without a wire: the calls of the consumer's API, with `hook` before and after each."""

    def __init__(self, consumer: Node, hook: Hook) -> None:
        self.address = ConsumerAddress("http://127.0.0.1:1", consumer.name, "token")
        self.within_s: Callable[[], float] = lambda: 0.0
        self._node = consumer
        self._hook = hook

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""

    def cut(self) -> None:
        """Nothing is under way for long."""

    @property
    def _side(self) -> Consumer:
        node = self._node
        return Consumer(node.database, node.settings, node.clock, node.store)

    @contextmanager
    def _asked(self, step: str) -> Iterator[Consumer]:
        self._hook(f"before {step}")
        try:
            yield self._side
        except ServiceError as error:
            raise PeerRefused(
                error.status, error.code, error.detail, retry_after_s=None, facts=error.extra
            ) from error
        self._hook(f"after {step}")

    def acquire(self, body: Mapping[str, Any]) -> Acquired:
        with self._asked("acquire") as side:
            asked = AcquireRequest.model_validate(json.loads(json.dumps(body)))
            with answered():
                require_introduced(asked, self._node.name)
            found = side.begin(
                asked.session_id,
                lambda conn: acquire(
                    conn,
                    wanted_of(asked, self._node.settings),
                    now_s=side.now_s,
                    ahead_max_s=side.ahead_max_s,
                    consent=lambda: self._node.consents,
                ),
            )
            limits = PeerLimits(batch_rows=1_000, batch_bytes=1_000_000, in_flight=1)
            shown = AcquiredRead.of(asked.session_id, found, mode=asked.mode, limits=limits)
        return read_acquired(shown.model_dump(mode="json"))

    def send(self, session_id: str, *, epoch: int, batch_seq: int, body: bytes) -> Acknowledged:
        ticket = Ticket(session_id, epoch, batch_seq)
        is_records = b"payload" in body
        with self._asked("changes" if is_records else "entries") as side:
            found = side.write(
                applying(
                    ticket,
                    body,
                    ARROW_MEDIA_TYPE,
                    self._node.settings,
                    now_s=lambda: side.now_s,
                    ahead_max_s=side.ahead_max_s,
                )
            )
        return read_acknowledged(AppliedRead.of(found).model_dump(mode="json"))

    def renew(self, session_id: str, *, epoch: int, lease: str) -> Any:
        return self._side.write(lambda conn: renew(conn, Ticket(session_id, epoch), lease_s=60.0))

    def complete_total(
        self,
        session_id: str,
        *,
        epoch: int,
        batch_seq: int,
        ruv: Mapping[int, str],
        generation: str,
        buried: str | None = None,
    ) -> Mapping[int, Csn]:
        with self._asked("complete") as side:
            return side.write(
                lambda conn: complete_total(
                    conn,
                    Ticket(session_id, epoch, batch_seq),
                    ruv={rid: Csn(csn) for rid, csn in ruv.items()},
                    generation=generation,
                    now_s=side.now_s,
                    buried=None if buried is None else Csn(buried),
                )
            )

    def release(
        self, session_id: str, *, epoch: int, complete: bool = False, batch_seq: int = 0
    ) -> Mapping[str, Any]:
        self._node.numbers += 1
        incarnation = f"inc_total_{self._node.numbers}"
        with self._asked("release as complete" if complete else "release") as side:
            completion = Completion(incarnation, side.adopt) if complete else None
            ticket = Ticket(session_id, epoch, batch_seq)
            side.write(lambda conn: release(conn, ticket, now_s=side.now_s, complete=completion))
        return {}

    def ruv(self, *, at: Any = ()) -> PeerReplica:
        found = self._side.read(lambda conn: _with_history(conn, {csn.rid: csn for csn in at}))
        return read_replica(found.model_dump(mode="json"))


@dataclass
class Ending:
    """How an attempt ended: UP_TO_DATE and the like, or a code; `detail` is what an operator reads."""

    code: str
    detail: str = ""
    has_ended: bool = True


class Lead:
    """An agreement of two nodes, and the job of its session."""

    def __init__(self, supplier: Node, consumer: Node, number: int) -> None:
        self.supplier, self.consumer = supplier, consumer
        self.agreement = f"agr_{number:026d}"
        self.job_id = ""
        now = supplier.clock.now()
        row = agreement_of(
            supplier.name,
            now,
            id=self.agreement,
            consumer_store=consumer.name,
            batch_rows=2,
            batch_bytes=1_000_000,
        )
        with supplier.database.transaction() as db:
            self._consumer = consumer_of(row)
            db.add(row)

    @property
    def _bench(self) -> Workbench:
        return Workbench(self.supplier.database, cast(Any, self.supplier.clock), self.supplier.settings)

    def submit(self, mode: str = "TOTAL", *, discard: bool = False) -> None:
        """A new session."""
        params = SessionParams(
            agreement_id=self.agreement,
            mode=cast(Any, mode),
            strategy="WINDOW",
            max_changes=None,
            max_duration=None,
            discard_consumer_changes=discard,
            batch_rows=2,
            batch_bytes=1_000_000,
            in_flight=1,
            engine=None,
            throttle=None,
            consumer=self._consumer,
            target=target_of_store(self.supplier.store),
        )
        shown = params.model_dump(mode="json")
        self.job_id = self._bench.submit("REPLICATION_SESSION", store=self.supplier.name, params=shown)

    def attempt(self) -> Ending:
        """Claim the job and run its task once, as a runner does."""
        close_idle_replicas()
        with self.supplier.database.transaction() as db:  # no other one is taken in its place
            others = update(Job).where(col(Job.id) != self.job_id, col(Job.finished_at).is_(None))
            db.execute(others.values(state=JobState.FAILED, finished_at=self.supplier.clock.now()))
        self._set(state=JobState.QUEUED, finished_at=None)
        context = self._bench.context()
        assert context.job.id == self.job_id
        state = JobState.WAITING
        try:
            result = task.run_session(context, engines=Engines(InlineEngine(context.clock)))
            ending, state = Ending(str(result["outcome"])), JobState.SUCCEEDED
        except JobFailed as failed:
            ending, state = Ending(failed.code, failed.detail), JobState.FAILED
        except JobWaiting as waiting:
            ending = Ending(waiting.code or waiting.waiting_on[0].kind, waiting.detail or "", has_ended=False)
        except LeaseLost:
            ending = Ending("DIED", has_ended=False)
        finally:
            close_idle_replicas()
        self._set(state=state, finished_at=self.supplier.clock.now() if ending.has_ended else None)
        return ending

    def _set(self, **values: Any) -> None:
        free = {"lease_instance": None, "lease_expires_at": None, "not_before": None, "unproven": False}
        self._bench.set(self.job_id, **free | values)

    def run(self, mode: str = "TOTAL", *, attempts: int = 8, discard: bool = False) -> Ending:
        """A new session to its end; one that waits for a lease gets it."""
        self.submit(mode, discard=discard)
        return self.go_on(attempts=attempts)

    def go_on(self, *, attempts: int = 8) -> Ending:
        """The session that was begun, to its end."""
        for _ in range(attempts):
            ending = self.attempt()
            if ending.has_ended:
                break
            self.expire()
        return ending

    def expire(self) -> None:
        """Leases of both run out, and so does what says that one is about to be copied."""
        for node in (self.supplier, self.consumer):
            node.execute("update replica_session set expires_at_s = 1 where session_id is not null")
            node.execute("update replica_session set supplies = null")
        self.supplier.clock.advance(1)


class World:
    """A supplier `a`, its consumer `c`, and `b`, which supplies both.

    Attributes:
        lead, rival: what leads from `a` to `c`, and from `b` to `c`.
        steps: what was asked of consumers, in order.
        hook: called before and after each of these.
    """

    def __init__(self, folder: Path, template: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = FakeClock()
        settings = Settings(data_dir=folder, allowed_roots=[folder])
        self.a, self.c, self.b = (
            Node(name, rid, folder, self.clock, settings).create(template)
            for name, rid in (("a", 1), ("c", 2), ("b", 3))
        )
        self.hook: Hook = _nothing
        self.steps: list[str] = []
        self.lead, self.rival = Lead(self.a, self.c, 1), Lead(self.b, self.c, 2)
        self._bringing, self._asking = Lead(self.b, self.a, 3), Lead(self.a, self.b, 4)
        monkeypatch.setattr(task, "PeerClient", self._wire)
        monkeypatch.setattr(task, "address_of", lambda agreement, *_: agreement.consumer_store)
        monkeypatch.setattr(task, "QUICK_WAIT_S", 0.0)
        monkeypatch.setattr(sending, "RETRY_FIRST_S", 0.0)
        monkeypatch.setattr(pipeline, "READ_AHEAD", 0)  # what is read depends on the seed alone

    def _wire(self, consumer: str, **_: object) -> DirectWire:
        hook = self._step if consumer == "c" else _nothing
        return DirectWire({"a": self.a, "b": self.b, "c": self.c}[consumer], hook)

    def at(self, step: str, *acts: Act, number: int = 1) -> None:
        """Do something once, at the so-manieth time of a step; what is set up stays."""
        before, seen = self.hook, 0

        def hook(found: str) -> None:
            nonlocal seen
            before(found)
            seen += found == step
            if found == step and seen == number:
                for act in acts:
                    act()

        self.hook = hook

    def quiet(self) -> None:
        """No attack from here on."""
        self.hook = _nothing

    def _step(self, step: str) -> None:
        self.steps.append(step)
        self.hook(step)

    def close(self) -> None:
        for node in (self.a, self.b, self.c):
            node.end()

    def bring(self) -> Ending:
        """`b` brings `a` what it lacks."""
        return self._bringing.run("INCREMENTAL")

    def meet(self) -> tuple[Ending, Ending]:
        """`a` and `b` bring each other what they lack."""
        return self._bringing.run("INCREMENTAL"), self._asking.run("INCREMENTAL")


def die() -> None:
    """The process of the supplier ends, and tells nobody."""
    raise LeaseLost


def _nothing(_step: str) -> None:
    """No attack."""

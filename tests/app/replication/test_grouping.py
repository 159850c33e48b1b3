"""Groups of local writes: who shares a transaction, who waits, and what fails alone."""

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
import sqlalchemy as sa

from app.db import Database
from app.errors import Conflict, MetadataUnavailable, ServiceError, Unavailable, Unprocessable
from app.replication.replica.grouping import ChangeWriters, Outcome, Waiting, Writer
from app.replication.replica.refusals import ReplicaBusy
from app.settings import Settings
from app.stores.errors import StoreNotFound
from app.stores.models import StoreCreate
from app.stores.service import create_store
from spark.replication.records import local_schema
from spark.replication.replica.local_write import LocalRequest, RequestKey, RequestWritten
from tests.app.fake_clock import FakeClock

ANSWER_S = 20.0


class Watched(ChangeWriters):
    """Remembers the groups; `gate` holds a group back before it is written."""

    def __init__(self, database: Database, settings: Settings, clock: FakeClock) -> None:
        super().__init__(database, settings, clock)
        self.groups: list[int] = []
        self.gate = threading.Event()
        self.gate.set()
        self.held = threading.Event()
        self.fault: Exception | None = None

    def _written(self, store_id: str, group: Sequence[Waiting]) -> list[Outcome]:
        self.groups.append(len(group))
        self.held.set()
        self.gate.wait(ANSWER_S)
        if self.fault is not None:
            raise self.fault
        return super()._written(store_id, group)


def waiting(*keys: bytes, idempotency: str | None = None, fingerprint: str = "f") -> Waiting:
    columns = {"database": [b"d"] * len(keys), "key": list(keys), "value": [b"v"] * len(keys)}
    batch = pa.RecordBatch.from_pydict(columns, schema=local_schema())
    found = None if idempotency is None else RequestKey(idempotency, fingerprint)
    return Waiting(LocalRequest(batch, found), Writer("tok_1", "writer", None))


def answer(one: Waiting) -> RequestWritten:
    return one.answer.result(ANSWER_S)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        data_dir=tmp_path,
        replication_group_changes_max=10,
        replication_group_wait_ms=1_000,
        replication_waiting_requests_max=3,
        replication_waiting_max_bytes=2_000,
    )


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "replica.db"


@pytest.fixture
def writers(database: Database, settings: Settings, clock: FakeClock, target: Path) -> Iterator[Watched]:
    request = StoreCreate.model_validate(
        {"id": "r", "kind": "REPLICA", "url": f"sqlite:///{target}", "rid": 1}
    )
    with database.transaction() as db:
        create_store(db, request, settings=settings, database=database, now=clock.now())
    writers = Watched(database, settings, clock)
    yield writers
    writers.gate.set()
    writers.close()


@pytest.fixture
def hold(writers: Watched) -> Callable[[], None]:
    """Holds the writer back in a group of one, so that what follows waits together."""

    def begin() -> None:
        writers.gate.clear()
        writers.submit("r", waiting(b"first"))
        assert writers.held.wait(ANSWER_S)

    return begin


def test_a_lone_writer_waits_for_nobody(writers: Watched) -> None:
    writers.submit("r", warm := waiting(b"warm"))
    answer(warm)
    begun = time.monotonic()
    for number in range(5):
        writers.submit("r", one := waiting(b"k%d" % number))
        answer(one)
    assert time.monotonic() - begun < 5 * 0.5, "a wait of a second each, for nobody"
    assert writers.groups == [1] * 6


def test_a_group_waits_for_who_is_being_read(writers: Watched) -> None:
    with writers.arriving("r"):
        writers.submit("r", first := waiting(b"a"))
        time.sleep(0.05)
        assert writers.groups == []
        writers.submit("r", second := waiting(b"b"))
    csns = [answer(one).first_csn for one in (first, second)]
    assert writers.groups == [2]
    assert csns == sorted(csns, key=str)


def test_a_group_does_not_wait_for_ever(writers: Watched) -> None:
    with writers.arriving("r"):
        writers.submit("r", one := waiting(b"a"))
        assert answer(one).changes == 1


def test_what_comes_meanwhile_is_the_next_group(writers: Watched, hold: Callable[[], None]) -> None:
    hold()
    later = [waiting(b"k%d" % number) for number in range(7)]
    for one in later:
        writers.submit("r", one)
    writers.gate.set()
    csns = [answer(one).first_csn for one in later]
    assert writers.groups == [1, 7]
    assert csns == sorted(set(csns), key=str)


def test_a_group_is_bounded_and_a_large_request_is_one_of_its_own(
    writers: Watched, hold: Callable[[], None]
) -> None:
    hold()
    sizes = (6, 4, 1, 25, 3)
    later = [waiting(*(b"%d-%d" % (turn, n) for n in range(size))) for turn, size in enumerate(sizes)]
    for one in later:
        writers.submit("r", one)
    writers.gate.set()
    assert [answer(one).changes for one in later] == list(sizes)
    assert writers.groups == [1, 2, 1, 1, 1]


def test_own_max_and_audit_rows_are_there_before_the_answer(writers: Watched, database: Database) -> None:
    writers.submit("r", one := waiting(b"a", b"b"))
    found = answer(one)
    with database.reading() as db:
        assert db.execute(sa.text("select own_max_csn from replicas")).scalar_one() == found.last_csn
        [row] = db.execute(sa.text("select actor, action, subject_id, detail from audit_events")).all()
    assert tuple(row[:3]) == ("writer", "changes.write", "r")
    assert found.first_csn is not None
    assert found.first_csn in str(row[3])


def test_a_key_in_flight_is_told_and_afterwards_replayed(writers: Watched, hold: Callable[[], None]) -> None:
    hold()
    writers.submit("r", one := waiting(b"a", idempotency="k"))
    with pytest.raises(Conflict) as conflict:
        writers.submit("r", waiting(b"a", idempotency="k"))
    assert conflict.value.code == "IDEMPOTENCY_KEY_IN_FLIGHT"
    writers.gate.set()
    first = answer(one)
    writers.submit("r", again := waiting(b"a", idempotency="k"))
    writers.submit("r", other := waiting(b"b", idempotency="k2", fingerprint="g"))
    assert (answer(again).replayed, answer(again).first_csn) == (True, first.first_csn)
    assert not answer(other).replayed
    writers.submit("r", reused := waiting(b"a", idempotency="k2", fingerprint="h"))
    with pytest.raises(Unprocessable, match="another request"):
        answer(reused)


def test_room_is_bounded_by_requests_and_by_bytes(writers: Watched) -> None:
    with writers.admitted(1_500), writers.admitted(500):
        with pytest.raises(ReplicaBusy, match="bytes"), writers.admitted(1):
            pass
        with (
            writers.admitted(0),
            pytest.raises(ReplicaBusy, match="requests") as busy,
            writers.admitted(0),
        ):
            pass
        assert (busy.value.retryable, busy.value.headers["Retry-After"]) == (True, "1")
    with writers.admitted(1_000_000):  # one that is alone is bounded by its body alone
        pass
    with writers.admitted(2_000):  # and all room came back
        pass


def refuse_key(target: Path, key: bytes) -> None:
    """Make the target refuse one key with a constraint of its own."""
    with closing(sqlite3.connect(target)) as db:
        db.execute(
            f"create trigger refuse before insert on replica_entries when new.key = x'{key.hex()}'"
            " begin select raise(abort, 'not this key'); end"
        )
        db.commit()


def test_what_the_target_refuses_fails_alone(
    writers: Watched, target: Path, hold: Callable[[], None], database: Database
) -> None:
    writers.submit("r", warm := waiting(b"warm"))
    answer(warm)
    refuse_key(target, b"bad")
    hold()
    good, bad, also_good = waiting(b"good"), waiting(b"fine", b"bad"), waiting(b"also")
    for one in (good, bad, also_good):
        writers.submit("r", one)
    writers.gate.set()
    assert answer(good).changes == answer(also_good).changes == 1
    with pytest.raises(Conflict) as refused:
        answer(bad)
    assert refused.value.code == "TARGET_ROW_CONFLICT"
    with closing(sqlite3.connect(target)) as db:
        keys = [key for (key,) in db.execute("select key from replica_changelog order by csn")]
        entries = [key for (key,) in db.execute("select key from replica_entries order by key")]
        chain = db.execute("select csn, prev from replica_changelog order by csn").fetchall()
    assert keys == [b"warm", b"first", b"good", b"also"]
    assert entries == sorted(keys)
    assert [prev for _, prev in chain] == [None, *(csn for csn, _ in chain[:-1])]


def test_changes_that_could_not_be_noted_are_replayed_under_their_key(
    writers: Watched, database: Database, target: Path
) -> None:
    writers.submit("r", warm := waiting(b"warm"))
    answer(warm)
    with database.engine.begin() as connection:
        connection.exec_driver_sql("alter table audit_events rename to audit_events_away")
    writers.submit("r", one := waiting(b"a", idempotency="k"))
    with pytest.raises((Unavailable, sa.exc.DBAPIError)):
        answer(one)
    with database.engine.begin() as connection:
        connection.exec_driver_sql("alter table audit_events_away rename to audit_events")
    writers.submit("r", again := waiting(b"a", idempotency="k"))
    assert answer(again).replayed
    with database.reading() as db:
        noted = db.execute(sa.text("select own_max_csn from replicas")).scalar_one()
    assert noted == answer(again).last_csn
    with closing(sqlite3.connect(target)) as db2:
        assert db2.execute("select count(*) from replica_changelog").fetchone() == (2,)


@pytest.mark.parametrize("fault", [RuntimeError("a bug"), MetadataUnavailable()])
def test_a_fault_reaches_its_group_and_the_writer_lives_on(writers: Watched, fault: Exception) -> None:
    writers.fault = fault
    writers.submit("r", one := waiting(b"a", idempotency="k"))
    with pytest.raises(type(fault)):
        answer(one)
    writers.fault = None
    writers.submit("r", again := waiting(b"a", idempotency="k"))
    assert not answer(again).replayed


def test_who_has_gone_is_not_written_for(writers: Watched, hold: Callable[[], None], target: Path) -> None:
    hold()
    gone, stays = waiting(b"gone", idempotency="k"), waiting(b"stays")
    for one in (gone, stays):
        writers.submit("r", one)
    assert gone.answer.cancel()
    writers.gate.set()
    assert answer(stays).changes == 1
    writers.submit("r", again := waiting(b"again", idempotency="k"))
    assert not answer(again).replayed
    with closing(sqlite3.connect(target)) as db:
        keys = [key for (key,) in db.execute("select key from replica_changelog order by csn")]
    assert keys == [b"first", b"stays", b"again"]


def test_a_store_that_was_removed_is_told(writers: Watched) -> None:
    writers.submit("nowhere", one := waiting(b"a"))
    with pytest.raises(StoreNotFound):
        answer(one)


def test_a_closed_service_takes_no_more_and_writes_what_waits(
    writers: Watched, hold: Callable[[], None]
) -> None:
    hold()
    writers.submit("r", one := waiting(b"a"))
    writers.close()
    with pytest.raises(ServiceError), writers.admitted(1):
        pass
    writers.gate.set()
    assert answer(one).changes == 1

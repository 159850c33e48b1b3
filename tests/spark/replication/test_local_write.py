"""Local writes: CSNs in the order of the commits, a chain without a hole, each request written once."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pytest

from spark.formats.csn import Csn
from spark.formats.replica import tables_of
from spark.replication.csn_generator import ClockSkewExceeded, GeneratorState, next_csn
from spark.replication.errors import ReplicaMissing, ReplicaNotOnline, ReplicaWasRestored
from spark.replication.records import ReplicaStatus, local_schema, record_schema
from spark.replication.replica.appending import give_csns
from spark.replication.replica.local_write import (
    REQUESTS_KEPT_S,
    Expected,
    GroupWritten,
    KeyReused,
    LocalRequest,
    RequestKey,
    RequestWritten,
    write_group,
)
from spark.replication.replica.replica import (
    advance_ruv,
    ensure_layout,
    lock_replica,
    mark_restored,
    read_vectors,
    save_generator,
    snapshot,
)
from spark.replication.replica.restored import accept_loss
from spark.replication.replica.upsert import entries_of, put_changes, put_entries
from spark.targets.connection import Connection, SessionLimits, Target
from spark.targets.errors import TargetError, TargetLockTimeout
from tests.dying import Dying
from tests.spark.replication.replica_tables import NOW_S, csn, opened

Change = tuple[bytes, bytes, bytes | None]
RID = 7
SOUND = Expected("first", None)
FIRM = SessionLimits(lock_timeout_ms=10_000)


@pytest.fixture
def target(place: Target) -> Target:
    return place


@pytest.fixture
def empty(target: Target) -> Iterator[Connection]:
    with opened(target) as connection:
        yield connection


@pytest.fixture
def conn(empty: Connection) -> Connection:
    ensure_layout(empty, rid=RID, generation=None, incarnation="first")
    return empty


def _request(changes: Sequence[Change], key: str | None = None, body: str = "body") -> LocalRequest:
    rows = [dict(zip(local_schema().names, change, strict=True)) for change in changes]
    batch = pa.RecordBatch.from_pylist(rows, schema=local_schema())
    return LocalRequest(batch, None if key is None else RequestKey(key, body))


def _write(
    conn: Connection, *requests: LocalRequest, now_s: int = NOW_S, expected: Expected = SOUND
) -> GroupWritten:
    return write_group(conn, requests, now_s=now_s, expected=expected)


def _written(found: RequestWritten | KeyReused) -> RequestWritten:
    assert isinstance(found, RequestWritten)
    return found


def _log(conn: Connection, rid: int = RID) -> list[tuple[str, str | None, bytes, bytes, bytes | None]]:
    rows = conn.execute(
        f"select csn, prev, database, key, payload from {tables_of(conn).changelog}"
        " where rid = :rid order by csn",
        {"rid": rid},
    )
    return [tuple(row) for row in rows]


def _entries(conn: Connection) -> dict[tuple[bytes, bytes], tuple[bytes | None, str]]:
    rows = conn.execute(f"select database, key, value, csn, is_tombstone from {tables_of(conn).entries}")
    assert all(bool(dead) == (value is None) for _, _, value, _, dead in rows)
    return {(database, key): (value, at) for database, key, value, at, _ in rows}


def _everything(conn: Connection) -> list[list[Any]]:
    names = ("replica", "generator", "ruv", "changelog", "entries", "requests")
    return [
        sorted(conn.execute(f"select * from {getattr(tables_of(conn), name)}"), key=str) for name in names
    ]


def _check_chain(conn: Connection, rid: int = RID) -> list[str]:
    """Each record names the one before it, and the RUV and the entries are those of the log."""
    log = _log(conn, rid)
    csns = [row[0] for row in log]
    assert [row[1] for row in log] == [None, *csns][: len(csns)]
    vectors = read_vectors(conn)
    assert vectors.ruv.get(rid) == (csns[-1] if csns else None)
    assert vectors.min.get(rid) == (csns[0] if csns else None)
    return csns


def test_a_group_is_logged_and_held(conn: Connection) -> None:
    first = _request([(b"d", b"k", b"1"), (b"d", b"\x00\xff", b"")])
    second = _request([(b"d", b"k", None), (b"e\x00", b"k", b"2")])
    found = _write(conn, first, second)
    csns = _check_chain(conn)
    assert len(csns) == 4
    assert found == GroupWritten(
        (RequestWritten(csns[0], csns[1], 2), RequestWritten(csns[2], csns[3], 2)), csns[3]
    )
    assert [row[2:] for row in _log(conn)] == [
        (b"d", b"k", b"1"),
        (b"d", b"\x00\xff", b""),
        (b"d", b"k", None),
        (b"e\x00", b"k", b"2"),
    ]
    assert _entries(conn) == {
        (b"d", b"k"): (None, csns[2]),
        (b"d", b"\x00\xff"): (b"", csns[1]),
        (b"e\x00", b"k"): (b"2", csns[3]),
    }


def test_the_first_change_begins_the_generation(conn: Connection) -> None:
    _write(conn)
    _write(conn, _request([]))
    assert snapshot(conn).replica.status is ReplicaStatus.EMPTY
    found = _write(conn, _request([(b"d", b"k", b"1")]))
    replica = snapshot(conn).replica
    assert replica.status is ReplicaStatus.ONLINE
    assert replica.generation is not None
    assert Csn(replica.generation).rid == RID
    assert found.own_max is not None
    assert replica.generation < found.own_max
    _write(conn, _request([(b"d", b"k", b"2")]))
    assert snapshot(conn).replica == replica


def test_the_generator_is_kept_with_the_changes(conn: Connection) -> None:
    for now_s in (NOW_S, NOW_S - 100):
        found = _write(conn, _request([(b"d", b"k", b"1")] * 3), now_s=now_s)
        state = snapshot(conn).generator
        assert state.sampled_s == now_s
        assert str(next_csn(state, now_s=now_s)[0]) > str(found.own_max)


def test_a_request_without_changes_writes_nothing(conn: Connection) -> None:
    assert _write(conn, _request([])) == GroupWritten((RequestWritten(None, None, 0),), None)
    assert _write(conn) == GroupWritten((), None)
    own_max = _write(conn, _request([(b"d", b"k", b"1")])).own_max
    assert _write(conn, _request([])).own_max == own_max
    assert _check_chain(conn) == [own_max]


def test_the_chain_goes_on_behind_what_was_purged(conn: Connection) -> None:
    tables = tables_of(conn)
    conn.execute(
        f"insert into {tables.ruv} (rid, purged_csn) values (:rid, :csn)", {"rid": RID, "csn": csn(9, RID)}
    )
    _write(conn, _request([(b"d", b"k", b"1")]))
    assert [row[1] for row in _log(conn)] == [csn(9, RID)]


@pytest.mark.parametrize("step_s", [-86_000, -1, 0, 1, 5_000])
def test_csns_ascend_whatever_the_clock_does(conn: Connection, step_s: int) -> None:
    now_s = NOW_S
    for _ in range(4):
        _write(conn, _request([(b"d", b"k", b"1")] * 3), now_s=now_s)
        now_s += step_s if now_s == NOW_S else 0
    csns = _check_chain(conn)
    assert csns == sorted(set(csns))
    assert len(csns) == 12


def test_a_clock_that_is_days_behind_gives_nothing(conn: Connection) -> None:
    _write(conn, _request([(b"d", b"k", b"1")]))
    before = _everything(conn)
    with pytest.raises(ClockSkewExceeded):
        _write(conn, _request([(b"d", b"k", b"2")]), now_s=NOW_S - 86_402)
    assert _everything(conn) == before


def test_a_restarted_process_goes_on(target: Target) -> None:
    for turn in range(3):
        with opened(target) as conn:
            ensure_layout(conn, rid=RID, generation=None, incarnation="first")
            _write(conn, _request([(b"d", b"k", b"%d" % turn)] * 2), now_s=NOW_S - turn)
            assert len(_check_chain(conn)) == 2 * (turn + 1)


def test_no_csn_is_given_twice_though_the_generator_was_put_back(conn: Connection) -> None:
    _write(conn, _request([(b"d", b"k", b"1")] * 5))
    with conn.transaction():
        save_generator(conn, tables_of(conn), GeneratorState(RID, 0))
    _write(conn, _request([(b"d", b"k", b"2")] * 2))
    assert len(_check_chain(conn)) == 7


@pytest.mark.parametrize(
    ("count", "sequence"),
    [
        pytest.param(
            count, sequence, marks=pytest.mark.long if count == 140_000 and sequence != 65_535 else ()
        )
        for sequence in (0, 65_533, 65_535)
        for count in (0, 1, 2, 65_534, 65_535, 65_536, 140_000)
    ],
)
def test_a_block_of_csns_is_what_one_after_the_other_gives(count: int, sequence: int) -> None:
    if count > 10 and sequence == 65_533:
        count = 10
    state = wanted_state = GeneratorState(RID, NOW_S - 5, 2, 3, sequence)
    wanted = []
    for _ in range(count):
        given, wanted_state = next_csn(wanted_state, now_s=NOW_S)
        wanted.append(str(given))
    assert give_csns(state, count, now_s=NOW_S) == (wanted, wanted_state)


def test_a_key_that_was_seen_gets_the_answer_of_then(conn: Connection) -> None:
    request = _request([(b"d", b"k", b"1")] * 3, "key")
    first = _written(_write(conn, request).requests[0])
    own_max = _write(conn, _request([(b"d", b"other", b"2")])).own_max
    before = _everything(conn)
    again = _write(conn, request)
    assert again == GroupWritten((replace(first, replayed=True),), own_max)
    assert _everything(conn) == before


def test_a_key_with_another_body_writes_nothing_and_hinders_nobody(conn: Connection) -> None:
    _write(conn, _request([(b"d", b"k", b"1")], "key", "one"))
    found = _write(
        conn,
        _request([(b"d", b"k", b"2")], "key", "two"),
        _request([(b"d", b"k", b"3")], "else", "two"),
    )
    assert found.requests[0] == KeyReused("key")
    assert _written(found.requests[1]).changes == 1
    assert [row[4] for row in _log(conn)] == [b"1", b"3"]


def test_a_key_that_comes_twice_in_a_group_is_written_once(conn: Connection) -> None:
    request = _request([(b"d", b"k", b"1")], "key")
    found = _write(conn, request, _request([(b"d", b"k", b"9")], "key", "other"), request).requests
    assert len(_check_chain(conn)) == 1
    assert found[1] == KeyReused("key")
    assert found[2] == replace(_written(found[0]), replayed=True)
    assert _write(conn, request).requests == (found[2],)


def test_a_keyed_request_without_changes_is_kept_too(conn: Connection) -> None:
    assert _write(conn, _request([], "key")).requests == (RequestWritten(None, None, 0),)
    assert _write(conn, _request([], "key")).requests == (RequestWritten(None, None, 0, replayed=True),)


def test_many_keys_are_looked_up_at_once(conn: Connection) -> None:
    requests = [_request([(b"d", b"%d" % number, b"1")], f"key {number}") for number in range(1_200)]
    first = [_written(found) for found in _write(conn, *requests).requests]
    again = _write(conn, *requests).requests
    assert again == tuple(replace(found, replayed=True) for found in first)
    assert len(_check_chain(conn)) == 1_200


def _age(conn: Connection, seconds: int) -> None:
    conn.execute(f"update {tables_of(conn).requests} set at_s = at_s - :seconds", {"seconds": seconds})


def test_keys_are_forgotten_after_a_week(conn: Connection) -> None:
    request = _request([(b"d", b"k", b"1")], "key")
    _write(conn, request)
    _age(conn, REQUESTS_KEPT_S - 3_600)
    assert _written(_write(conn, request).requests[0]).replayed
    _age(conn, 3_600)
    assert not _written(_write(conn, request).requests[0]).replayed
    assert _written(_write(conn, request).requests[0]).replayed
    assert len(_check_chain(conn)) == 2
    _age(conn, REQUESTS_KEPT_S)
    _write(conn, _request([(b"d", b"k", b"2")]), now_s=NOW_S + 3_600)
    assert conn.execute(f"select count(*) from {tables_of(conn).requests}") == [(0,)]


@pytest.mark.parametrize("status", ["INITIALIZING", "RESTORED"])
def test_a_replica_that_is_not_online_takes_nothing(conn: Connection, status: str) -> None:
    _write(conn, _request([(b"d", b"k", b"1")]))
    conn.execute(f"update {tables_of(conn).replica} set status = :status", {"status": status})
    before = _everything(conn)
    with pytest.raises(ReplicaNotOnline) as found:
        _write(conn, _request([(b"d", b"k", b"2")]))
    assert found.value.status is ReplicaStatus(status)
    assert _everything(conn) == before


def test_a_target_without_a_layout_takes_nothing(empty: Connection) -> None:
    with pytest.raises(ReplicaMissing):
        _write(empty, _request([(b"d", b"k", b"1")]))


def test_a_restored_target_is_marked_and_writes_nothing(conn: Connection) -> None:
    own_max = _write(conn, _request([(b"d", b"k", b"1")])).own_max
    lost = str(Csn.of(NOW_S + 60, 0, RID))
    expected = Expected("first", lost)
    before = _everything(conn)[1:]
    with pytest.raises(ReplicaWasRestored) as found:
        _write(conn, _request([(b"d", b"k", b"2")], "key"), expected=expected)
    assert (found.value.found_own_max, found.value.upto) == (own_max, lost)
    assert _everything(conn)[1:] == before
    with pytest.raises(ReplicaNotOnline):
        _write(conn, _request([(b"d", b"k", b"2")]), expected=expected)
    assert snapshot(conn).replica.restored_upto == lost


def test_after_an_accepted_loss_new_changes_lie_above_it_and_name_what_is_here(conn: Connection) -> None:
    own_max = _write(conn, _request([(b"d", b"k", b"1")])).own_max
    lost = Csn.of(NOW_S + 60, 0, RID)
    mark_restored(conn, upto=lost)
    accept_loss(conn, incarnation="second", now_s=NOW_S)
    found = _write(conn, _request([(b"d", b"k", b"2")]), expected=Expected("second", own_max))
    assert found.own_max is not None
    assert found.own_max > lost
    assert _log(conn)[-1][:2] == (found.own_max, own_max)


@pytest.mark.parametrize("after", [False, True])
def test_a_death_at_any_call_leaves_all_or_nothing(target: Target, after: bool) -> None:
    with opened(target) as conn:
        ensure_layout(conn, rid=RID, generation=None, incarnation="first")
    at = written = 0
    while True:
        at += 1
        request = _request([(b"d", b"%d" % number, b"1") for number in range(20)], f"key {at}")
        with opened(target) as dying:
            session = Dying(dying._session, at, after=after)
            dying._session = session  # type: ignore[assignment]
            try:
                _write(dying, request)
            except TargetError:
                pass
            else:
                break
        with opened(target) as conn:
            did_commit = len(_check_chain(conn)) == written + 20
            assert did_commit or len(_check_chain(conn)) == written
            assert _written(_write(conn, request).requests[0]).replayed == did_commit
            written += 20
            assert len(_check_chain(conn)) == written
            assert len(_entries(conn)) == 20
    assert session.calls < at
    assert at > 8, "every statement of a group was met"


@dataclass
class _Writer:
    """One writer of several, on a connection of its own."""

    target: Target
    number: int
    groups: list[GroupWritten] = field(default_factory=list)
    failed: BaseException | None = None

    def run(self) -> None:
        rng = random.Random(self.number)
        try:
            with opened(self.target, limits=FIRM) as conn:
                for turn in range(12):
                    requests = [
                        _request([(b"d", b"%d" % rng.randrange(15), b"%d" % self.number)] * rng.randint(1, 4))
                        for _ in range(rng.randint(1, 3))
                    ]
                    now_s = NOW_S + rng.randint(-30, 30)
                    self.groups.append(_retried(conn, requests, now_s=now_s))
                    if turn % 4 == 0:
                        _remote(conn, rid=100 + self.number, turn=turn)
        except BaseException as error:  # noqa: BLE001 - the test's thread shows it
            self.failed = error


def _retried(conn: Connection, requests: Sequence[LocalRequest], *, now_s: int) -> GroupWritten:
    while True:
        try:
            return _write(conn, *requests, now_s=now_s)
        except TargetLockTimeout:
            time.sleep(0.01)


def _remote(conn: Connection, *, rid: int, turn: int) -> None:
    """What a consumer does beside local writers: records of another replica, of the same keys."""
    rows = [
        {
            "csn": csn(turn * 10 + at, rid),
            "prev": None,
            "kind": "CHANGE",
            "database": b"d",
            "key": b"%d" % at,
            "payload": b"remote",
        }
        for at in range(10)
    ]
    batch = pa.RecordBatch.from_pylist(rows, schema=record_schema())
    while True:
        try:
            with conn.transaction():
                put_changes(conn, tables_of(conn), batch)
                put_entries(conn, tables_of(conn), entries_of(batch))
                last = batch.column("csn")[-1].as_py()
                advance_ruv(conn, tables_of(conn), rid, first=str(rows[0]["csn"]), last=last, now_s=NOW_S)
            return
        except TargetLockTimeout:
            time.sleep(0.01)


def test_writers_on_connections_of_their_own_share_one_chain(target: Target) -> None:
    with opened(target) as conn:
        ensure_layout(conn, rid=RID, generation=None, incarnation="first")
    writers = [_Writer(target, number) for number in range(4)]
    threads = [threading.Thread(target=writer.run) for writer in writers]
    for thread in threads:
        thread.start()
    seen: list[int] = []
    with opened(target) as reader:
        while any(thread.is_alive() for thread in threads):
            with reader.transaction(read_only=True):
                log, ruv = _log(reader), read_vectors(reader).ruv
            csns = [row[0] for row in log]
            # Whatever moment a reader looks at: no hole below the RUV, nothing above it.
            assert [row[1] for row in log] == [None, *csns][: len(csns)]
            assert ruv.get(RID) == (csns[-1] if csns else None)
            seen.append(len(csns))
    for thread in threads:
        thread.join()
    assert [writer.failed for writer in writers] == [None] * 4
    with opened(target) as conn:
        csns = _check_chain(conn)
        assert len(csns) == len(set(csns))
        _check_answers(writers, csns)
        newest: dict[tuple[bytes, bytes], tuple[bytes | None, str]] = {}
        for rid in (RID, 100, 101, 102, 103):
            for at, _, database, key, value in _log(conn, rid):
                if at > newest.get((database, key), (None, ""))[1]:
                    newest[database, key] = (value, at)
        assert _entries(conn) == newest


def _check_answers(writers: Sequence[_Writer], csns: Sequence[str]) -> None:
    """Every change was answered once; a group's CSNs follow one another, and each writer's groups ascend."""
    place = {at: index for index, at in enumerate(csns)}
    answered = 0
    for writer in writers:
        last = -1
        for group in writer.groups:
            for found in map(_written, group.requests):
                assert found.first_csn is not None
                assert found.last_csn is not None
                first, end = place[found.first_csn], place[found.last_csn]
                assert end - first + 1 == found.changes
                assert first > last
                last = end
                answered += found.changes
            assert group.own_max == csns[last]
    assert answered == len(csns)


@pytest.mark.parametrize(
    "seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(6, 150))]
)
def test_any_interleaving_of_local_and_remote_writes_is_a_map_of_greatest_csns(
    conn: Connection, seed: int
) -> None:
    rng = random.Random(seed)
    keys = [(b"d", b"k"), (b"d\x00", b"k"), (b"\xff", b"\x00"), (b"d", b"k\xff"), (b"D", b"k")]
    values: list[bytes | None] = [None, b"", b"\x00", b"\xff" * 9, b"v"]
    model: dict[tuple[bytes, bytes], tuple[bytes | None, str]] = {}
    logged: dict[str, tuple[bytes, bytes, bytes | None]] = {}

    def note(at: str, change: Change) -> None:
        logged[at] = change
        if at > model.get(change[:2], (None, ""))[1]:
            model[change[:2]] = (change[2], at)

    def changes() -> list[Change]:
        return [(*rng.choice(keys), rng.choice(values)) for _ in range(rng.randint(1, 30))]

    remote_at = {1: -500, 9: -500}
    for _ in range(25):
        if rng.random() < 0.5:
            groups = [changes() for _ in range(rng.randint(1, 3))]
            found = _write(conn, *map(_request, groups), now_s=NOW_S + rng.randint(-300, 300))
            for group, answer in zip(groups, found.requests, strict=True):
                first = [row[0] for row in _log(conn)].index(str(_written(answer).first_csn))
                for at, change in zip(_log(conn)[first:], group, strict=False):
                    note(at[0], change)
        else:
            rid = rng.choice([1, 9])
            rows = []
            for change in changes():
                remote_at[rid] += rng.randint(1, 40)
                at = Csn.of(NOW_S + remote_at[rid], 0, rid)
                note(at, change)
                rows.append([at, None, "CHANGE", *change])
            rng.shuffle(rows)
            columns = zip(*rows, strict=True)
            arrays = [pa.array(each, kind.type) for each, kind in zip(columns, record_schema(), strict=True)]
            batch = pa.RecordBatch.from_arrays(arrays, schema=record_schema())
            with conn.transaction():
                lock_replica(conn, tables_of(conn))
                put_changes(conn, tables_of(conn), batch)
                put_entries(conn, tables_of(conn), entries_of(batch))
        assert _entries(conn) == model
    found_log = {row[0]: row[2:] for rid in (RID, 1, 9) for row in _log(conn, rid)}
    assert found_log == logged
    _check_chain(conn)

"""Writes with `if_csn`: groups beside a naive model, and real writers and sessions at once."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pytest

from spark.formats.csn import RID_MAX, Csn
from spark.formats.replica import tables_of
from spark.replication.consumer.apply import apply_batch
from spark.replication.records import SessionMode, entry_schema, local_schema
from spark.replication.replica.conditions import Condition, CsnDiffers
from spark.replication.replica.entries import get_entry
from spark.replication.replica.local_write import (
    Answer,
    Expected,
    LocalRequest,
    RequestKey,
    RequestWritten,
    write_group,
)
from spark.replication.replica.replica import ensure_layout
from spark.replication.replica.upsert import put_entries
from spark.replication.sessions.row import Ticket, lock_session
from spark.replication.sessions.session import Acquire, acquire
from spark.targets.connection import Connection, SessionLimits, Target
from spark.targets.errors import TargetLockTimeout
from tests.spark.replication.consumer_side import change, records
from tests.spark.replication.replica_tables import NOW_S, csn, opened

RID = 7
GENERATION = csn(0, RID)
SOUND = Expected("first", None)
FIRM = SessionLimits(lock_timeout_ms=10_000)
Write = tuple[bytes, bytes | None, str | None]
"""Key, value, and if_csn: a CSN, `none`, or None."""


def prepare(conn: Connection) -> None:
    ensure_layout(conn, rid=RID, generation=str(GENERATION), incarnation="first")


def request(writes: Sequence[Write], key: str | None = None) -> LocalRequest:
    rows = [{"database": b"db", "key": name, "value": value} for name, value, _ in writes]
    conditions = tuple(
        Condition(row, None if text == "none" else text)
        for row, (_, _, text) in enumerate(writes)
        if text is not None
    )
    batch = pa.RecordBatch.from_pylist(rows, schema=local_schema())
    return LocalRequest(batch, None if key is None else RequestKey(key, "body"), conditions)


def write(conn: Connection, *requests: LocalRequest) -> tuple[Answer, ...]:
    return write_group(conn, requests, now_s=NOW_S, expected=SOUND).requests


@dataclass
class Naive:
    """What the words say: key to CSN and whether it is deleted; one request after the other."""

    entries: dict[bytes, tuple[str, bool]] = field(default_factory=dict)

    def holds(self, key: bytes, text: str | None) -> bool:
        csn_there, is_deleted = self.entries.get(key, (None, True))
        if text is None:
            return True
        return is_deleted if text == "none" else csn_there == text

    def first_fault(self, writes: Sequence[Write]) -> int | None:
        faults = [row for row, (key, _, text) in enumerate(writes) if not self.holds(key, text)]
        return faults[0] if faults else None


def _draw_write(draw: random.Random, known: dict[bytes, list[str]]) -> Write:
    key = b"k%d" % draw.randrange(3)
    seen = known.get(key, [])
    newest = seen[-1:] * 3
    text = draw.choice([None, "none", "none", *newest, *seen, str(csn(5, 3))])
    return key, draw.choice([None, b"v", b"w"]), text


def _one_case(conn: Connection, seed: int) -> tuple[int, int]:
    """Random groups beside the model; how many requests were written, and how many were not."""
    draw, naive, written, refused = random.Random(seed), Naive(), 0, 0
    known: dict[bytes, list[str]] = {}
    tables = tables_of(conn)
    for key, at, dead in conn.execute(f"select key, csn, is_tombstone from {tables.entries}"):
        naive.entries[key] = (at, bool(dead))
        known[key] = [at]
    for _ in range(draw.randint(2, 5)):
        group = [
            [_draw_write(draw, known) for _ in range(draw.choice([1, 1, 1, 2, 3]))]
            for _ in range(draw.choice([1, 1, 2, 4]))
        ]
        answers = write(conn, *map(request, group))
        for writes, answer in zip(group, answers, strict=True):
            fault = naive.first_fault(writes)
            if fault is not None:
                there = naive.entries.get(writes[fault][0], (None, False))
                assert isinstance(answer, CsnDiffers), (seed, writes, answer)
                assert (answer.row, answer.csn, answer.is_deleted) == (fault, *there), seed
                refused += 1
                continue
            assert isinstance(answer, RequestWritten), (seed, writes, answer)
            csns = conn.execute(
                f"select csn from {tables.changelog} where rid = :rid and csn between :first and :last"
                " order by csn",
                {"rid": RID, "first": answer.first_csn, "last": answer.last_csn},
            )
            assert len(csns) == len(writes)
            for (key, value, _), (at,) in zip(writes, csns, strict=True):
                naive.entries[key] = (at, value is None)
                known.setdefault(key, []).append(at)
            written += 1
        rows = conn.execute(f"select key, csn, is_tombstone from {tables.entries}")
        assert {key: (at, bool(dead)) for key, at, dead in rows} == naive.entries, seed
    return written, refused


@pytest.mark.parametrize("cases", [60, pytest.param(1_000, marks=pytest.mark.long)])
def test_groups_do_what_the_words_say(place: Target, cases: int) -> None:
    written = refused = 0
    with opened(place) as conn:
        prepare(conn)
        conn.execute("pragma synchronous = off" if conn.dialect.name == "sqlite" else "select 1")
        for seed in range(cases):
            found = _one_case(conn, seed)
            written, refused = written + found[0], refused + found[1]
    assert min(written, refused) > cases


def test_a_keyed_request_is_answered_again_though_its_condition_fails_now(place: Target) -> None:
    with opened(place) as conn:
        prepare(conn)
        made = request([(b"k", b"v", "none")], key="one")
        [first, twin] = write(conn, made, made)
        assert isinstance(first, RequestWritten)
        assert isinstance(twin, RequestWritten)
        assert (twin.first_csn, twin.replayed) == (first.first_csn, True)
        [again] = write(conn, made)
        assert isinstance(again, RequestWritten)
        assert again.replayed
        # One that was refused is not kept: it may be sent again when it fits.
        late = request([(b"k", b"w", str(csn(5, 3)))], key="two")
        refused = write(conn, late, late)
        assert all(isinstance(answer, CsnDiffers) for answer in refused)
        kept = conn.execute(f"select request_key from {tables_of(conn).requests}")
        assert kept == [("one",)]


class Counting(threading.Thread):
    """Raises a number by one, as often as it should, each time from what it has read."""

    def __init__(self, place: Target, times: int, start: threading.Barrier) -> None:
        super().__init__(daemon=True)
        self.place, self.times, self.start_line = place, times, start
        self.won: list[tuple[str | None, str]] = []
        self.lost = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            with opened(self.place, limits=FIRM) as conn:
                self.start_line.wait()
                while len(self.won) < self.times:
                    self._try(conn)
        except BaseException as error:  # noqa: BLE001 -- the test looks at it
            self.error = error

    def _try(self, conn: Connection) -> None:
        entry = get_entry(conn, b"db", b"n")
        number = 0 if entry is None or entry.value is None else int(entry.value)
        text = None if entry is None else str(entry.csn)
        try:
            [answer] = write(conn, request([(b"n", b"%d" % (number + 1), text or "none")]))
        except TargetLockTimeout:
            return
        if isinstance(answer, RequestWritten):
            assert answer.last_csn is not None
            self.won.append((text, answer.last_csn))
        else:
            self.lost += 1


def _bring(place: Target, times: int, start: threading.Barrier, brought: list[str]) -> None:
    """A session that brings changes of the same entry, each newer than all that is there."""
    with opened(place, limits=FIRM) as conn:
        asked = Acquire("rps_1", SessionMode.INCREMENTAL, "peer", 9, str(GENERATION), {}, csn(1, 9), 600.0)
        granted = acquire(conn, asked, now_s=NOW_S)
        start.wait()
        before = None
        for seq in range(1, times + 1):
            at = Csn.of(NOW_S + 60 * seq, 0, 9)
            row = change(at, before, key=b"n", value=b"1000")
            while True:
                try:
                    apply_batch(
                        conn,
                        Ticket("rps_1", granted.epoch, seq),
                        records([row]),
                        now_s=NOW_S,
                        ahead_max_s=86_400,
                        trusted_rids=range(RID_MAX),
                    )
                    break
                except TargetLockTimeout:
                    continue
            brought.append(str(at))
            before = at


def test_what_a_session_is_about_to_commit_is_waited_for(place: Target) -> None:
    # Its entry is there, and nobody sees it yet: a writer who found "none" would overwrite it unseen.
    at, answers = csn(5, 9), list[Answer]()
    entry = {"database": b"db", "key": b"k", "value": b"theirs", "csn": str(at), "is_tombstone": False}

    def conditional() -> None:
        with opened(place, limits=FIRM) as conn:
            answers.extend(write(conn, request([(b"k", b"ours", "none")])))

    writer = threading.Thread(target=conditional, daemon=True)
    with opened(place) as conn:
        prepare(conn)
        with conn.transaction():
            lock_session(conn, tables_of(conn))  # as every batch does, first of all
            put_entries(conn, tables_of(conn), pa.RecordBatch.from_pylist([entry], schema=entry_schema()))
            writer.start()
            writer.join(1.0)
            assert answers == []
        writer.join(30)
        [answer] = answers
        assert isinstance(answer, CsnDiffers), answer
        assert (answer.row, answer.csn, answer.is_deleted) == (0, at, False)
        found = get_entry(conn, b"db", b"k")
        assert found is not None
        assert found.value == b"theirs"


@pytest.mark.parametrize("writers", [4, pytest.param(12, marks=pytest.mark.long)])
def test_of_writers_at_once_one_wins_each_round_and_sessions_are_seen(place: Target, writers: int) -> None:
    times, arrivals = 8, 6
    with opened(place) as conn:
        prepare(conn)
    start, brought = threading.Barrier(writers + 1), list[str]()
    counting = [Counting(place, times, start) for _ in range(writers)]
    session = threading.Thread(target=_bring, args=(place, arrivals, start, brought), daemon=True)
    for thread in (*counting, session):
        thread.start()
    for thread in (*counting, session):
        thread.join(120)
    assert [each.error for each in counting] == [None] * writers
    assert len(brought) == arrivals
    with opened(place) as conn:
        rows = conn.execute(f"select csn from {tables_of(conn).changelog} where key = :key", {"key": b"n"})
    logged = sorted(at for (at,) in rows)
    won = {new: old for each in counting for old, new in each.won}
    assert len(won) == writers * times
    assert sorted([*won, *brought]) == logged
    # Each was written on just what its writer had read: nothing came between, of a writer or of a session.
    for before, at in zip([None, *logged[:-1]], logged, strict=True):
        if at in won:
            assert won[at] == before
    assert sum(each.lost for each in counting) > 0, "nobody ever met another"

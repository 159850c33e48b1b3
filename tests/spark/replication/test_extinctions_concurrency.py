"""Writers and batches at the very moment of an extinction: after its scan no extinct key is left."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from random import Random

import pytest

from spark.extinction.slices import begin_scan, cut_slices, finish_scan, read_slices
from spark.formats.csn import Csn
from spark.formats.extinction import Extinction
from spark.formats.extinction_filter import Filter
from spark.replication.consumer.extinctions import find_extinction, write_extinction
from spark.replication.replica.local_write import KeyExtinct, RequestWritten
from spark.targets.connection import Connection, Target
from tests.spark.extinction.scanning import scan_slice
from tests.spark.replication.consumer_side import ConsumerSide, Row, change, consumer_side
from tests.spark.replication.extinct_keys import SOUND, extinction, local, record, write
from tests.spark.replication.replica_tables import NOW_S, opened
from tests.spark.replication.test_apply_concurrency import PATIENT, Side, again

KEYS = 40
EVEN = extinction(
    None, None, found=Filter.parse({"modulo": {"offset": 0, "width": 1, "divisor": 2, "remainder": 0}})
)
PROLOGUE = 8


def _keys(random: Random) -> list[bytes]:
    return [bytes([48 + random.randrange(KEYS)]) for _ in range(6)]


def _writer(number: int, ended: threading.Event, refused: list[int]) -> Callable[[ConsumerSide], None]:
    def work(side: ConsumerSide) -> None:
        random = Random(number)
        while not ended.is_set():
            request = local([(key, b"%d" % number) for key in _keys(random)[: 1 + random.randrange(6)]])
            done = again(lambda request=request: write(side.conn, request))
            [answer] = done.requests  # type: ignore[attr-defined]
            assert isinstance(answer, RequestWritten | KeyExtinct)
            refused.append(isinstance(answer, KeyExtinct))

    return work


def _batches(ended: threading.Event, brings: Extinction | None) -> Callable[[ConsumerSide], None]:
    """Batches of two replicas without an end; the extinction comes with one of them, where it is theirs."""

    def work(side: ConsumerSide) -> None:
        random, number = Random(3), 0
        epoch = again(side.acquire).epoch  # type: ignore[attr-defined]
        prev: dict[int, Csn | None] = {1: None, 2: None}
        while not ended.is_set():
            rows: list[Row] = []
            number += 1
            for rid in (1, 2):
                for part, key in enumerate(_keys(random)):
                    at = Csn.of(NOW_S, number * 10 + part, rid)
                    rows.append(change(at, prev[rid], key=key, value=b"batch"))
                    prev[rid] = at
            if brings is not None and number == PROLOGUE:
                at = Csn.of(NOW_S, number * 10 + 9, 1)
                rows.append(record(at, prev[1], brings))
                prev[1] = at
            seq = number
            again(lambda rows=rows, seq=seq: side.apply(rows, epoch=epoch, seq=seq))

    return work


@pytest.mark.parametrize("brought", [False, True], ids=["committed here", "brought by a batch"])
def test_no_extinct_key_is_left_whoever_wrote_it_meanwhile(place: Target, brought: bool) -> None:
    ended, refused = threading.Event(), [[], []]
    with consumer_side(place):
        pass
    works = [
        _writer(1, ended, refused[0]),
        _writer(2, ended, refused[1]),
        _batches(ended, EVEN if brought else None),
    ]
    sides = [Side(place, work) for work in works]
    threads = [threading.Thread(target=side.run, daemon=True) for side in sides]
    for thread in threads:
        thread.start()
    try:
        with opened(place, limits=PATIENT) as conn:
            _wait(lambda: all(len(each) > PROLOGUE for each in refused), sides)
            if not brought:
                again(lambda: write_extinction(conn, EVEN, now_s=NOW_S, expected=SOUND))
            _wait(lambda: find_extinction(conn, EVEN.id) is not None, sides)
            bounds = list(cut_slices(conn, EVEN, rows=None))
            again(lambda: begin_scan(conn, EVEN.id, bounds))
            for part in read_slices(conn, EVEN):
                again(lambda part=part: scan_slice(conn, part, rows_max=5))
            assert again(lambda: finish_scan(conn, EVEN.id, now_s=1)) is not None
            after = [len(each) for each in refused]
            _wait(lambda: _all_went_on(refused, after), sides)
            _wait(lambda: all(any(each) for each in refused), sides)
            _wait(lambda: _late(conn) > 0, sides)
    finally:
        ended.set()
        for thread in threads:
            thread.join(30)
    assert [side.failed for side in sides] == [None, None, None]
    with opened(place) as conn:
        side = ConsumerSide(conn)
        left = [key for database, key in side.entries() if EVEN.covers(database, key)]
        assert left == []
        assert side.entries()


def _all_went_on(refused: list[list[int]], after: list[int]) -> bool:
    return all(len(each) > before + PROLOGUE for each, before in zip(refused, after, strict=True))


def _late(conn: Connection) -> int:
    """Changes of extinct keys that came after the extinction, as the replica counts them."""
    known = find_extinction(conn, EVEN.id)
    assert known is not None
    return known.late


def _wait(until: Callable[[], bool], sides: list[Side]) -> None:
    deadline = time.monotonic() + 30
    while not until():
        assert [side.failed for side in sides] == [None] * len(sides)
        assert time.monotonic() < deadline
        time.sleep(0.005)

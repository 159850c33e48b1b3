"""Batches while the consumer's own writers write the same keys: nothing is lost, no circle of waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import pyarrow as pa

from spark.formats.csn import Csn
from spark.replication.records import local_schema
from spark.replication.replica.local_write import Expected, LocalRequest, write_group
from spark.targets.connection import SessionLimits, Target
from spark.targets.errors import TargetLockTimeout
from tests.spark.replication.consumer_side import OWN_RID, ConsumerSide, Row, change, consumer_side
from tests.spark.replication.replica_tables import NOW_S, opened

KEYS = 12
GROUPS = 40
BATCHES = 40
PATIENT = SessionLimits(lock_timeout_ms=5_000)
DEADLOCK = "40P01"


@dataclass
class Side:
    """One of the two that write; a lock that was too slow is tried again, a circle is a defect."""

    target: Target
    work: Callable[[ConsumerSide], None]
    failed: BaseException | None = None

    def run(self) -> None:
        """Work to the end."""
        try:
            with opened(self.target, limits=PATIENT) as conn:
                self.work(ConsumerSide(conn))
        except BaseException as error:  # noqa: BLE001 - the test shows it
            self.failed = error


def again(transact: Callable[[], object]) -> object:
    """Once more where another transaction was in the way."""
    while True:
        try:
            return transact()
        except TargetLockTimeout as error:
            if error.sqlstate == DEADLOCK:
                raise
            time.sleep(0.01)


def write_locally(side: ConsumerSide) -> None:
    """Groups of local changes, several of one key in each."""
    random = Random(1)
    for number in range(GROUPS):
        rows = [(b"db", b"%d" % random.randrange(KEYS), b"local %d" % number) for _ in range(5)]
        columns = [pa.array(list(column), pa.binary()) for column in zip(*rows, strict=True)]
        request = LocalRequest(pa.RecordBatch.from_arrays(columns, schema=local_schema()))
        again(
            lambda request=request: write_group(
                side.conn, [request], now_s=NOW_S, expected=Expected("inc_first", None)
            )
        )


def receive(side: ConsumerSide) -> None:
    """Batches of two replicas, whose clock is ahead in every second one."""
    random = Random(2)
    epoch = side.acquire().epoch
    prev: dict[int, Csn | None] = {1: None, 2: None}
    for number in range(BATCHES):
        rows: list[Row] = []
        for at in range(6):
            rid = 1 + at % 2
            made = Csn.of(NOW_S + (number if number % 2 else number - 1), number * 10 + at, rid)
            rows.append(
                change(made, prev[rid], key=b"%d" % random.randrange(KEYS), value=b"received %d" % number)
            )
            prev[rid] = made
        again(lambda rows=rows, seq=number + 1: side.apply(rows, epoch=epoch, seq=seq))


def test_batches_and_local_writes_of_the_same_keys_lose_nothing(place: Target) -> None:
    with consumer_side(place):
        pass
    sides = [Side(place, write_locally), Side(place, receive)]
    threads = [threading.Thread(target=side.run) for side in sides]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [side.failed for side in sides] == [None, None]
    with opened(place) as conn:
        end = ConsumerSide(conn)
        newest: dict[bytes, tuple[bytes, str]] = {}
        chains: dict[int, list[tuple[str, str | None]]] = {}
        for rid, at, prev, _, _, key, payload, *_ in end.rows("changelog"):
            chains.setdefault(rid, []).append((at, prev))
            if at > newest.get(key, (b"", ""))[1]:
                newest[key] = (payload, at)
        assert end.entries() == {(b"db", key): value for key, value in newest.items()}
        assert {rid: len(links) for rid, links in chains.items()} == {
            OWN_RID: GROUPS * 5,
            1: BATCHES * 3,
            2: BATCHES * 3,
        }
        for rid, links in chains.items():
            csns = [at for at, _ in sorted(links)]
            assert [prev for _, prev in sorted(links)] == [None, *csns[:-1]]
            assert end.ruv()[rid] == csns[-1]


def test_a_local_write_after_a_received_change_of_its_key_wins(place: Target) -> None:
    with consumer_side(place) as side:
        epoch = side.acquire().epoch
        rows = [change(Csn.of(NOW_S + 600, 50, 1), None, key=b"0", value=b"received")]
        side.apply(rows, epoch=epoch, seq=1)
        columns = [pa.array([value], pa.binary()) for value in (b"db", b"0", b"local")]
        request = LocalRequest(pa.RecordBatch.from_arrays(columns, schema=local_schema()))
        write_group(side.conn, [request], now_s=NOW_S, expected=Expected("inc_first", None))
        assert side.entries()[b"db", b"0"][0] == b"local"

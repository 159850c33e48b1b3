"""Batches that come before their turn: parked without a thread, applied in order, or told what is missing."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from app.kit.ids import new_id
from spark.formats.changes.batch import ARROW_MEDIA_TYPE
from spark.formats.csn import Csn
from tests.http.problem import problem
from tests.http.replica_stores import ConsumerStore, make_replica
from tests.http.service_process import ServiceProcess
from tests.spark.replication.consumer_side import Row, records
from tests.spark.replication.consumer_side import chain as chain_of

GENERATION = Csn.of(1_700_000_000, 0, 1)
PARKING_S = 1.0
API_THREADS = 4


def past(number: int, rid: int) -> Csn:
    """A CSN that the service's clock has passed."""
    return Csn.of(1_750_000_000 + number, 0, rid)


def chain(rid: int, numbers: list[int]) -> list[Row]:
    """Linked changes of the past; number 0 stands for nothing before."""
    after = past(numbers[0] - 1, rid) if numbers[0] > 1 else None
    return chain_of(rid, numbers, after=after, csn_of=past)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """A service with few threads, where batches wait for a second only."""
    settings = {
        "LETHE_REPLICATION_UNPROVEN_PEERS": "true",
        "LETHE_REPLICATION_PARKING_S": str(PARKING_S),
        "LETHE_API_THREADS_MAX": str(API_THREADS),
        "LETHE_REPLICATION_BATCHES_MAX": "10",
    }
    found = ServiceProcess(tmp_path_factory.mktemp("parking"), settings=settings).start()
    yield found
    assert found.stop() == 0


@pytest.fixture
def consumer(http: httpx.Client, tmp_path: Path) -> ConsumerStore:
    """An empty replica."""
    return make_replica(http, rid=9, folder=tmp_path, generation=GENERATION)


def acquired(consumer: ConsumerStore) -> str:
    """A session in its first epoch."""
    session = new_id("rps")
    now = Csn.of(int(time.time()), 0, 1)
    granted = consumer.acquire(session_id=session, generation=GENERATION, csn_now=now)
    assert granted.status_code == 201, granted.text
    return session


def test_batches_in_flight_are_applied_in_order_whatever_order_they_come_in(consumer: ConsumerStore) -> None:
    session = acquired(consumer)
    with ThreadPoolExecutor(4) as pool:
        sent = []
        for seq in (4, 3, 2, 1):
            body = records(chain(1, [2 * seq - 1, 2 * seq]))
            sent.append(pool.submit(consumer.send, session, body, epoch=1, seq=seq))
            time.sleep(0.05)
        answers = [each.result() for each in sent]
    assert [answer.status_code for answer in answers] == [200] * 4, [answer.text for answer in answers]
    assert [answer.json()["ruv"]["1"] for answer in answers] == [past(2 * seq, 1) for seq in (4, 3, 2, 1)]


def test_a_batch_whose_predecessor_does_not_come_is_told_what_is_expected(consumer: ConsumerStore) -> None:
    session = acquired(consumer)
    begun = time.monotonic()
    refused = problem(consumer.send(session, records(chain(1, [3])), epoch=1, seq=3), 409, "BATCH_GAP")
    assert time.monotonic() - begun >= PARKING_S
    assert (refused["expected"], refused["retryable"]) == (1, True)
    assert consumer.ruv()["ruv"] == {}


def test_more_batches_than_agreed_are_sent_away_unread(consumer: ConsumerStore) -> None:
    session = acquired(consumer)
    with ThreadPoolExecutor(4) as pool:
        parked = [
            pool.submit(consumer.send, session, records(chain(1, [seq])), epoch=1, seq=seq)
            for seq in (2, 3, 4, 5)
        ]
        time.sleep(0.4)
        problem(consumer.send(session, b"never read", epoch=1, seq=6), 429, "TOO_MANY_BATCHES")
        for each in parked:
            problem(each.result(), 409, "BATCH_GAP")
    assert consumer.send(session, records(chain(1, [1])), epoch=1, seq=1).status_code == 200


def test_parked_batches_hold_no_thread(http: httpx.Client, tmp_path: Path) -> None:
    consumers = [make_replica(http, rid=9, folder=tmp_path, generation=GENERATION) for _ in range(2)]
    sessions = [acquired(consumer) for consumer in consumers]
    with ThreadPoolExecutor(8) as pool:
        parked = [
            pool.submit(consumer.send, session, records(chain(1, [seq])), epoch=1, seq=seq)
            for consumer, session in zip(consumers, sessions, strict=True)
            for seq in (2, 3, 4, 5)
        ]
        time.sleep(0.3)
        assert len(parked) > API_THREADS
        begun = time.monotonic()
        assert http.get("/v1/stores").status_code == 200
        assert time.monotonic() - begun < PARKING_S / 2
        for each in parked:
            assert each.result().status_code == 409


def test_unfinished_bodies_of_one_token_leave_room_for_others(
    http: httpx.Client, service: ServiceProcess, consumer: ConsumerStore, tmp_path: Path
) -> None:
    """40 of them stopped every session of the process: they took all places before anything was read."""
    victims = [make_replica(http, rid=9, folder=tmp_path, generation=GENERATION) for _ in range(10)]
    answer = http.post("/v1/tokens", json={"name": "greedy", "scopes": ["replication:peer"]})
    greedy = answer.json()["token"]
    with ExitStack() as held:
        for number in range(40):
            sock = held.enter_context(socket.create_connection(("127.0.0.1", service.port)))
            path = f"{victims[number % 10].url}/sessions/{new_id('rps')}/batches?epoch=1&batch_seq=1"
            head = f"POST {path} HTTP/1.1\r\nHost: lethe\r\nAuthorization: Bearer {greedy}\r\n"
            sock.sendall(f"{head}Content-Type: {ARROW_MEDIA_TYPE}\r\nContent-Length: 1000\r\n\r\nx".encode())
        time.sleep(0.5)
        session = acquired(consumer)
        for seq in (1, 2, 3):
            sent = consumer.send(session, records(chain(1, [seq])), epoch=1, seq=seq)
            assert sent.status_code == 200, sent.text


def test_the_same_batch_twice_at_once_is_applied_once(consumer: ConsumerStore) -> None:
    session = acquired(consumer)
    body = records(chain(1, list(range(1, 500))))
    with ThreadPoolExecutor(3) as pool:
        sent = [pool.submit(consumer.send, session, body, epoch=1, seq=1) for _ in range(3)]
        answers = [each.result().json() for each in sent]
    assert sorted(answer["replayed"] for answer in answers) == [False, True, True]
    assert sum(answer["applied"] for answer in answers) == 499


def test_a_batch_that_is_refused_lets_the_next_ones_know(consumer: ConsumerStore) -> None:
    session = acquired(consumer)
    with ThreadPoolExecutor(2) as pool:
        later = pool.submit(consumer.send, session, records(chain(1, [2])), epoch=1, seq=2)
        time.sleep(0.2)
        problem(consumer.send(session, records(chain(1, [9])), epoch=1, seq=1), 409, "PREV_GAP")
        assert problem(later.result(), 409, "BATCH_GAP")["expected"] == 1

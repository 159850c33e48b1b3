"""Sessions between two services, each a process of its own: kills, lost answers, leases that run out.

What must be true in the end is always the same: the consumer's records, entries and RUV are the supplier's,
no change is there twice, and the session's counters say what happened.
"""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SharedServer
from tests.journeys.replicas import (
    GENERATION,
    Pair,
    ReplyLosingProxy,
    Site,
    agree,
    register,
    two_services,
)
from tests.journeys.service import Service, serving

pytestmark = pytest.mark.journey
CHANGES = 1_000
ARRIVED = 150
BOTH = pytest.mark.parametrize(
    "database", ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)], indirect=True
)
# So slow that a kill meets the session at work.
SLOW = {"throttle": {"rows_per_s": 400}}
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sessions")


@pytest.fixture(scope="module")
def services(directory: Path) -> Iterator[tuple[Service, Service]]:
    with two_services(directory) as made:
        yield made


@pytest.fixture(
    params=["sqlite", pytest.param("postgresql", marks=[pytest.mark.postgresql, pytest.mark.long])]
)
def database(request: pytest.FixtureRequest, directory: Path) -> Iterator[Callable[[], str]]:
    """Makes URLs of new databases of one kind."""
    if request.param == "sqlite":
        yield lambda: f"sqlite:///{directory}/replica-{next(_numbers)}.db"
        return
    server: SharedServer = request.getfixturevalue("postgresql_server")
    names: list[str] = []

    def make() -> str:
        names.append(f"lethe_replica_{uuid.uuid4().hex[:12]}")
        server.execute(f"create database {names[-1]}")
        return server.url(names[-1])

    yield make
    for name in names:
        server.execute(f"drop database if exists {name} with (force)")


@pytest.fixture
def sites(services: tuple[Service, Service], database: Callable[[], str]) -> tuple[Site, Site]:
    """A new replica on each service, both of one generation."""
    number = next(_numbers)
    east, west = services
    return (
        register(east, f"east-{number}", database(), 1, generation=GENERATION),
        register(west, f"west-{number}", database(), 2, generation=GENERATION),
    )


@pytest.fixture
def pair(sites: tuple[Site, Site]) -> Pair:
    return agree(*sites, batch_rows=100)


def _acknowledged(session: dict[str, Any], rid: int = 1) -> dict[str, int]:
    counted = session["counters"][str(rid)]
    return {name: counted[name] for name in ("sent", "acknowledged", "duplicates")}


ONCE = {"sent": CHANGES, "acknowledged": CHANGES, "duplicates": 0}


def test_a_session_brings_both_ways_what_each_has(pair: Pair) -> None:
    pair.supplier.write(CHANGES)
    pair.consumer.write(300, prefix="m")
    back = agree(pair.consumer, pair.supplier)
    for each in (pair, back):
        assert each.wait(each.begin())["state"] == "SUCCEEDED"
    pair.assert_level()
    assert len(pair.consumer.entries()) == CHANGES + 300


@BOTH
def test_a_supplier_that_is_killed_goes_on_with_its_session(pair: Pair) -> None:
    pair.supplier.write(CHANGES)
    job_id = pair.begin(**SLOW)
    pair.until_some_arrived(ARRIVED)
    session_id = pair.wait(job_id, "RUNNING")["subject"]["id"]
    pair.supplier.service.crash()
    job = pair.wait(job_id)
    session = pair.session(job)
    assert (job["state"], session["id"], session["outcome"]) == ("SUCCEEDED", session_id, "UP_TO_DATE")
    assert session["epoch"] == 2
    assert _acknowledged(session) == ONCE
    pair.assert_level()


def test_a_consumer_that_is_killed_gets_the_rest_when_it_is_back(pair: Pair) -> None:
    pair.supplier.write(CHANGES)
    job_id = pair.begin(**SLOW)
    pair.until_some_arrived(ARRIVED)
    pair.consumer.service.crash()
    job = pair.wait(job_id)
    session = pair.session(job)
    assert (job["state"], session["outcome"]) == ("SUCCEEDED", "UP_TO_DATE")
    assert _acknowledged(session) == ONCE
    pair.assert_level()


def test_a_consumer_that_stays_away_is_waited_for_without_holding_anything(pair: Pair) -> None:
    pair.supplier.write(10)
    pair.consumer.service.kill9()
    job_id = pair.begin()
    job = pair.wait(job_id, "WAITING")
    assert job["instance"] is None
    assert job["waiting_on"][0]["kind"] == "PEER"
    assert job["not_before"] is not None
    pair.consumer.service.start()
    assert pair.wait(job_id)["state"] == "SUCCEEDED"
    pair.assert_level()


def test_answers_that_are_lost_lose_and_double_nothing(sites: tuple[Site, Site]) -> None:
    supplier, consumer = sites
    with ReplyLosingProxy(consumer.service.port, lambda number, _asked: number % 3 == 0) as proxy:
        pair = agree(supplier, consumer, port=proxy.port, batch_rows=50)
        supplier.write(CHANGES)
        job = pair.wait(pair.begin())
        assert job["state"] == "SUCCEEDED"
        assert proxy.lost > 5
    assert _acknowledged(pair.session(job)) == ONCE
    pair.assert_level()


def test_a_lease_that_ran_out_is_acquired_again(pair: Pair) -> None:
    pair.supplier.write(CHANGES)
    job_id = pair.begin(**SLOW)
    pair.until_some_arrived(ARRIVED)
    pair.consumer.execute("update replica_session set expires_at_s = 1")
    job = pair.wait(job_id)
    session = pair.session(job)
    assert (job["state"], session["epoch"]) == ("SUCCEEDED", 2)
    assert _acknowledged(session) == ONCE
    pair.assert_level()


def test_a_batch_that_is_due_while_another_supplier_holds_the_lease_waits(pair: Pair) -> None:
    pair.supplier.write(CHANGES)
    job_id = pair.begin(**SLOW)
    pair.until_some_arrived(ARRIVED)
    later = time.time() + 600
    pair.consumer.execute(
        "update replica_session set session_id = 'rps_another', last_session_id = session_id,"
        f" epoch = epoch + 1, expires_at_s = {later}"
    )
    job = pair.wait(job_id, "WAITING")
    assert job["waiting_on"][0]["ref"].endswith("REPLICA_BUSY")
    pair.consumer.execute("update replica_session set expires_at_s = 1")
    job = pair.wait(job_id)
    assert job["state"] == "SUCCEEDED"
    pair.assert_level()


@pytest.mark.parametrize("killed", ["supplier", "consumer"])
def test_a_total_initialisation_goes_on_after_a_kill(
    services: tuple[Service, Service], database: Callable[[], str], killed: str
) -> None:
    number = next(_numbers)
    supplier = register(services[0], f"east-{number}", database(), 1)
    consumer = register(services[1], f"west-{number}", database(), 2)
    pair = agree(supplier, consumer, batch_rows=100)
    supplier.write(CHANGES)
    job_id = pair.begin(mode="TOTAL", **SLOW)
    deadline = time.monotonic() + 60
    while not consumer.count("entries"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    refused = consumer.call("GET", f"{consumer.path}/entries?database=ZGI=")
    assert (refused.status_code, refused.json()["code"]) == (409, "REPLICA_INITIALIZING")
    supplier.write(50, prefix="during")
    getattr(pair, killed).service.crash()
    job = pair.wait(job_id)
    session = pair.session(job)
    assert (job["state"], session["outcome"]) == ("SUCCEEDED", "UP_TO_DATE"), session
    assert session["total"]["is_complete"]
    assert consumer.entries() == supplier.entries()
    assert consumer.ruv() == supplier.ruv()
    found = consumer.done("GET", f"/v1/replicas/{consumer.store}/ruv")
    assert (found["status"], found["generation"]) == (
        "ONLINE",
        supplier.done("GET", f"/v1/replicas/{supplier.store}/ruv")["generation"],
    )


def test_a_total_initialisation_whose_last_answer_is_lost_is_not_begun_again(
    services: tuple[Service, Service], database: Callable[[], str]
) -> None:
    """The consumer is complete, and its own writers are at work: a second copy would take their changes."""
    number = next(_numbers)
    supplier = register(services[0], f"east-{number}", database(), 1)
    consumer = register(services[1], f"west-{number}", database(), 2)
    supplier.write(300)
    written: list[int] = []

    def loses(_number: int, asked: bytes) -> bool:
        if b"complete=true" not in asked or len(written) >= 2:
            return False
        consumer.write(1, prefix=f"own{len(written)}")
        written.append(1)
        return True

    with ReplyLosingProxy(consumer.service.port, loses) as proxy:
        pair = agree(supplier, consumer, port=proxy.port, batch_rows=100)
        job = pair.wait(pair.begin(mode="TOTAL"))
        assert job["state"] == "SUCCEEDED"
        assert proxy.lost == 2
    assert pair.session(job)["total"]["is_complete"]
    assert len(consumer.entries()) == 302
    assert consumer.done("GET", f"/v1/replicas/{consumer.store}/ruv")["status"] == "ONLINE"


@pytest.mark.long
def test_large_windows_are_read_over_spark(directory: Path) -> None:
    settings = {"LETHE_SPARK__ENABLED": "true", "LETHE_SPARK__WINDOW_MIN_CHANGES": "5000"}
    with serving(directory / "spark", settings) as service:
        sites = [
            register(
                service, f"spark-{rid}", f"sqlite:///{directory}/spark-{rid}.db", rid, generation=GENERATION
            )
            for rid in (1, 2)
        ]
        pair = agree(*sites, batch_rows=700)
        sites[0].write(12_000)
        job = pair.wait(pair.begin())
        assert (job["state"], job["engine"]) == ("SUCCEEDED", "SPARK")
        assert _acknowledged(pair.session(job)) == {"sent": 12_000, "acknowledged": 12_000, "duplicates": 0}
        pair.assert_level()
        sites[0].write(6_000, prefix="m")
        session = pair.session(pair.wait(pair.begin(max_changes=5_555)))
        assert (session["outcome"], _acknowledged(session)["acknowledged"]) == ("YIELDED", 5_555)
        sites[0].write(10, prefix="n")
        job = pair.wait(pair.begin())
        assert job["engine"] == "INLINE"
        pair.assert_level()
        assert list((service.data_dir / "_spool").iterdir()) == []


def test_two_sessions_to_one_consumer_take_turns(
    services: tuple[Service, Service], database: Callable[[], str]
) -> None:
    number = next(_numbers)
    first = register(services[0], f"one-{number}", database(), 1, generation=GENERATION)
    second = register(services[0], f"two-{number}", database(), 3, generation=GENERATION)
    consumer = register(services[1], f"west-{number}", database(), 2, generation=GENERATION)
    pairs = [agree(each, consumer, batch_rows=100) for each in (first, second)]
    for each in (first, second):
        each.write(500, prefix=each.store)
    jobs = [each.begin(throttle={"rows_per_s": 400}) for each in pairs]
    for each, job_id in zip(pairs, jobs, strict=True):
        assert each.wait(job_id)["state"] == "SUCCEEDED"
    assert consumer.ruv() == first.ruv() | second.ruv()
    assert len(consumer.entries()) == 1_000


def test_a_stop_of_the_supplier_hands_the_session_to_its_next_start(pair: Pair) -> None:
    pair.supplier.write(CHANGES)
    job_id = pair.begin(**SLOW)
    pair.until_some_arrived(ARRIVED)
    began = time.monotonic()
    assert pair.supplier.service.stop() == 0
    assert time.monotonic() - began < 15
    assert pair.consumer.rows("select session_id from replica_session") == [(None,)]
    pair.supplier.service.start()
    job = pair.wait(job_id)
    assert (job["state"], job["crash_count"]) == ("SUCCEEDED", 0)
    assert _acknowledged(pair.session(job)) == ONCE
    pair.assert_level()

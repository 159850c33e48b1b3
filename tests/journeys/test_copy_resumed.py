"""A total initialisation that ends before its copy is complete: what the next one sends again.

The supplier changes meanwhile. Its service is killed, or the session is aborted and another one begins.
"""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.journeys.replicas import Pair, Site, agree, register, two_services
from tests.journeys.service import Service

pytestmark = pytest.mark.journey
ENTRIES = 2_000
BATCH_ROWS = 20
SLOW = {"throttle": {"rows_per_s": 600}}
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, Service]]:
    with two_services(tmp_path_factory.mktemp("copies")) as made:
        yield made


@pytest.fixture
def pair(services: tuple[Service, Service], tmp_path: Path) -> Pair:
    """A supplier with entries and a blank consumer."""
    number = next(_numbers)
    supplier = register(services[0], f"from-{number}", f"sqlite:///{tmp_path}/from.db", 1)
    consumer = register(services[1], f"to-{number}", f"sqlite:///{tmp_path}/to.db", 2)
    supplier.write(ENTRIES)
    return agree(supplier, consumer, batch_rows=BATCH_ROWS)


def _until_copied(consumer: Site, least: int) -> None:
    deadline = time.monotonic() + 120
    while consumer.count("entries") < least:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _cut_off(pair: Pair, percent: int) -> int:
    """Abort a copy there; how many entries the consumer has then."""
    job_id = pair.begin(mode="TOTAL", **SLOW)
    _until_copied(pair.consumer, ENTRIES * percent // 100)
    pair.supplier.done("POST", f"/v1/jobs/{job_id}:abort", 200, 202)
    job = pair.wait(job_id)
    assert (job["state"], pair.session(job)["outcome"]) == ("ABORTED", "ABORTED")
    return pair.consumer.count("entries")


def _level(pair: Pair) -> None:
    assert pair.consumer.entries() == pair.supplier.entries()
    assert pair.consumer.ruv() == pair.supplier.ruv()


@pytest.mark.parametrize("percent", [pytest.param(each, marks=pytest.mark.long) for each in (10, 50, 90)])
def test_after_a_kill_the_copy_goes_on_where_it_was(pair: Pair, percent: int) -> None:
    job_id = pair.begin(mode="TOTAL", **SLOW)
    _until_copied(pair.consumer, ENTRIES * percent // 100)
    pair.supplier.service.crash()
    there = pair.consumer.count("entries")
    pair.supplier.write(100, prefix="between")
    job = pair.wait(job_id)
    session = pair.session(job)
    assert (job["state"], session["outcome"]) == ("SUCCEEDED", "UP_TO_DATE"), session
    _level(pair)
    # What was answered to nobody is counted too, and nothing twice: "between" lies below all that was copied.
    assert there >= ENTRIES * percent // 100
    assert session["total"]["entries_sent"] == ENTRIES, session["total"]


@pytest.mark.parametrize(
    "percent", [pytest.param(10, marks=pytest.mark.long), pytest.param(50, marks=pytest.mark.long), 90]
)
def test_the_next_session_sends_what_the_last_one_has_not(pair: Pair, percent: int) -> None:
    there = _cut_off(pair, percent)
    pair.supplier.write(50, prefix="a-before")  # below all that was copied: it comes as a change
    pair.supplier.write(50, prefix="z-behind")
    job = pair.wait(pair.begin(mode="TOTAL"))
    session = pair.session(job)
    assert (job["state"], session["outcome"]) == ("SUCCEEDED", "UP_TO_DATE"), session
    _level(pair)
    total = session["total"]
    former = pair.supplier.done("GET", f"{pair.supplier.path}/replication-sessions/{total['continued_from']}")
    # What the former session was not answered it has not counted; the consumer has.
    assert former["total"]["entries_sent"] <= total["entries_before"] == there
    assert total["entries_sent"] == ENTRIES + 50 - there
    assert total["entries_sent"] <= ENTRIES * (100 - percent + 5) // 100
    # And nothing goes on with what is complete.
    pair.supplier.write(1, prefix="later")
    grant = {"supplier_rid": 1, "reason": "a test"}
    pair.consumer.done("POST", f"{pair.consumer.path}/discard-grants", 201, json=grant)
    again = pair.session(pair.wait(pair.begin(mode="TOTAL")))
    assert (again["outcome"], again["total"]["continued_from"]) == ("UP_TO_DATE", None), again


@pytest.mark.long
def test_a_consumer_that_was_put_back_meanwhile_begins_anew(pair: Pair, tmp_path: Path) -> None:
    _cut_off(pair, 10)
    _back_up(tmp_path, "to")
    _cut_off(pair, 50)
    _put_back(tmp_path, "to")
    session = pair.session(pair.wait(pair.begin(mode="TOTAL")))
    assert (session["outcome"], session["total"]["entries_sent"]) == ("UP_TO_DATE", ENTRIES), session
    assert (session["total"]["continued_from"], session["total"]["entries_before"]) == (None, 0)
    _level(pair)


@pytest.mark.long
def test_a_supplier_that_was_put_back_meanwhile_begins_anew(pair: Pair, tmp_path: Path) -> None:
    _back_up(tmp_path, "from")
    pair.supplier.write(5, prefix="a-lost")
    _cut_off(pair, 50)
    _put_back(tmp_path, "from")
    refused = pair.wait(pair.begin(mode="TOTAL"))
    assert (refused["state"], refused["error"]["code"]) == ("FAILED", "REPLICA_NOT_ONLINE"), refused
    recovered = pair.supplier.call("POST", f"{pair.supplier.path}:recover", json={"reason": "a test"})
    assert recovered.status_code in (200, 202), recovered.text
    pair.supplier.write(10, prefix="a-new")
    session = pair.session(pair.wait(pair.begin(mode="TOTAL")))
    assert (session["outcome"], session["total"]["entries_sent"]) == ("UP_TO_DATE", ENTRIES + 10), session
    assert session["total"]["continued_from"] is None
    _level(pair)


def _back_up(folder: Path, name: str) -> None:
    """A copy of the file at rest: its log was written back when its last connection closed."""
    deadline = time.monotonic() + 30
    while (folder / f"{name}.db-wal").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    shutil.copy(folder / f"{name}.db", folder / f"{name}.kept")


def _put_back(folder: Path, name: str) -> None:
    for suffix in ("-wal", "-shm"):
        (folder / f"{name}.db{suffix}").unlink(missing_ok=True)
    (folder / f"{name}.kept").rename(folder / f"{name}.db")

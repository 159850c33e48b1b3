"""A replica of a part of the keys, while both services are killed: in its copy, and in what follows.

Whatever is killed, it holds the supplier's entries of its keys and no others, with the supplier's RUV and a
changelog of every CSN.
"""

from __future__ import annotations

import itertools
import time
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import SharedServer
from tests.journeys.replicas import Pair, agree, register, two_services
from tests.journeys.service import Service

pytestmark = pytest.mark.journey
HELD, OTHERS = 400, 400
_numbers = itertools.count(1)
SLOW = {"throttle": {"rows_per_s": 600}}
PART = [{"database": b64encode(b"db").decode(), "prefix": b64encode(b"eu-").decode()}]


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, Service]]:
    with two_services(tmp_path_factory.mktemp("parts")) as made:
        yield made


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.long)])
def pair(request: pytest.FixtureRequest, services: tuple[Service, Service], tmp_path: Path) -> Pair:
    """A supplier of all keys, and a blank consumer of some."""
    number = next(_numbers)
    urls = [f"sqlite:///{tmp_path}/{name}.db" for name in ("all", "eu")]
    if request.param == "postgresql":
        server: SharedServer = request.getfixturevalue("postgresql_server")
        for at, name in enumerate((f"parts_all_{number}", f"parts_eu_{number}")):
            server.execute(f"create database {name}")
            urls[at] = server.url(name)
    supplier = register(services[0], f"all-{number}", urls[0], 1)
    consumer = register(services[1], f"eu-{number}", urls[1], 2)
    supplier.write(HELD, prefix="eu-")
    supplier.write(OTHERS, prefix="us-")
    return agree(supplier, consumer, batch_rows=20, keys=PART)


def _until(pair: Pair, table: str, least: int) -> None:
    deadline = time.monotonic() + 120
    while pair.consumer.count(table) < least:
        assert time.monotonic() < deadline, pair.consumer.count(table)
        time.sleep(0.01)


def _level(pair: Pair) -> None:
    """The consumer holds its keys as the supplier has them, nothing else, and proves every change."""
    held = [row for row in pair.supplier.entries() if bytes(row[1]).startswith(b"eu-")]
    assert pair.consumer.entries() == held
    assert pair.consumer.ruv() == pair.supplier.ruv()
    keys = {bytes(row[5]) for row in pair.consumer.changelog()} - {b""}
    assert all(key.startswith(b"eu-") for key in keys), "nothing of another key has come"
    shown = pair.consumer.done("GET", f"/v1/replicas/{pair.consumer.store}/ruv")
    assert (shown["status"], shown["part"]) == ("PARTIAL", PART)


def _ended_level(pair: Pair, job_id: str) -> None:
    job = pair.wait(job_id)
    assert (job["state"], pair.session(job)["outcome"]) == ("SUCCEEDED", "UP_TO_DATE"), job
    _level(pair)


@pytest.mark.parametrize("killed", ["supplier", "consumer"])
def test_a_kill_leaves_the_part_and_nothing_else(pair: Pair, killed: str) -> None:
    """In the copy, then in a session of changes, of which every second one is withheld."""
    site = getattr(pair, killed)
    copy = pair.begin(mode="TOTAL", **SLOW)
    _until(pair, "entries", HELD // 3)
    site.service.crash()
    _ended_level(pair, copy)
    before = pair.consumer.count("changelog")
    for number in range(10):
        pair.supplier.write(40, prefix="eu-", value=b"w%d" % number)
        pair.supplier.write(40, prefix="us-", value=b"w%d" % number)
    changes = pair.begin(**SLOW)
    _until(pair, "changelog", before + 100)
    site.service.crash()
    _ended_level(pair, changes)
    withheld = [row for row in pair.consumer.changelog() if row[3] == "WITHHELD"]
    assert len(withheld) == 400
    assert pair.consumer.count("changelog") == before + 800

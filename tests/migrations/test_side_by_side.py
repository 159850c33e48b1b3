"""A former and the present version at work on one PostgreSQL, after the migration."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest
from lethe_client import Lethe, PurgeRequest

from tests.journeys.crashes import build_large
from tests.journeys.ground import add_store, assert_exact, expect, purge_request
from tests.journeys.service import Service, succeeded
from tests.migrations.former import BEFORE_SCHEDULES, LANDED, SETTINGS, Former, as_former, former_code
from tests.oracles.symmetricds import Place, snapshot

pytestmark = pytest.mark.postgresql

SECONDS, SECONDS_LONG = 6.0, 300.0
ROWS = 120


REVISIONS = [
    pytest.param(LANDED, id=LANDED.revision),
    pytest.param(BEFORE_SCHEDULES, id=BEFORE_SCHEDULES.revision, marks=pytest.mark.long),
]


@pytest.fixture(params=REVISIONS)
def pair(
    request: pytest.FixtureRequest, tmp_path: Path, postgresql_url: str
) -> Iterator[tuple[Service, Service]]:
    """A service of a former version that was there first, and one of the present that has migrated."""
    version: Former = request.param
    (tmp_path / "code").mkdir()
    former = former_code(version, tmp_path / "code")
    if former is None:
        pytest.skip("this clone has no history: the former version's code is not here")
    settings = {**SETTINGS, "LETHE_METADATA_URL": postgresql_url, "LETHE_MIGRATE": "true"}
    old, new = Service(tmp_path / "old", settings), Service(tmp_path / "new", settings)
    as_former(old, former)
    with ExitStack() as stack:
        for service in (old, new):
            stack.callback(service.close)
            stack.callback(lambda service=service: None if service.has_ended() else service.kill9())
        old.start()
        new.start()
        yield old, new


def _turns(
    clients: list[Lethe], number: int, directory: Path, over: threading.Event, done: Counter[str]
) -> None:
    """Purge one fresh store after the other, asked of either version; each exact by the oracle."""
    rng, turn = Random(number), 0
    while not over.is_set():
        turn += 1
        place = Place(f"sqlite:///{directory}/{number}-{turn}.db")
        build_large(place, 1000 * number + turn, rows=ROWS)
        expected = expect(place, snapshot(place))
        asked, watched = rng.choice(clients), rng.choice(clients)
        store = f"side-{number}-{turn}"
        add_store(asked, store, place)
        request: PurgeRequest = purge_request(place, archive=True, max_rows_in_tx=20, rows_per_s=400)
        job_id = asked.purges.create(store, request).id
        if rng.random() < 0.3:
            watched.jobs.throttle(job_id, lift=True)
        result = succeeded(watched, job_id)
        assert_exact(place, expected, result)
        job = watched.jobs.get(job_id)
        done[
            str(next(e.data["instance"] for e in watched.jobs.event_list(job_id) if "instance" in e.data))
        ] += 1
        assert job.raw["attempt"] == 1, "nobody takes from the other what it is doing"


def _run(pair: tuple[Service, Service], directory: Path, seconds: float) -> None:
    over, done = threading.Event(), Counter[str]()
    faults: list[BaseException] = []

    def work(number: int) -> None:
        try:
            _turns([service.client for service in pair], number, directory, over, done)
        except BaseException as fault:  # noqa: BLE001 -- the test raises it
            faults.append(fault)

    threads = [threading.Thread(target=work, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    over.wait(seconds)
    over.set()
    for thread in threads:
        thread.join(120)
    if faults:
        raise faults[0]
    old, new = pair
    print(f"{done[old.instance]} purges by the former version, {done[new.instance]} by the present one")
    for service in pair:
        assert not service.has_ended(), service.report()
        lines = service.log.read_text().splitlines()
        # Until it can take work /readyz says 503: whoever waits for the start asks for that.
        answers = [line for line in lines if '"path": "/readyz"' not in line]
        assert [line for line in answers if '"status": 5' in line] == []
        assert [line for line in lines if "Traceback" in line] == []
    return


def test_two_versions_work_side_by_side_and_do_nothing_twice(
    pair: tuple[Service, Service], tmp_path: Path
) -> None:
    _run(pair, tmp_path, SECONDS)


@pytest.mark.long
def test_two_versions_work_side_by_side_for_five_minutes(
    pair: tuple[Service, Service], tmp_path: Path
) -> None:
    _run(pair, tmp_path, SECONDS_LONG)

"""What the present version has made or begun, and a former one beside it takes."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from lethe_client import Job

from tests.journeys.crashes import build_large
from tests.journeys.ground import add_store, assert_exact, expect, purge_request
from tests.journeys.service import Service, await_job, succeeded, until
from tests.migrations.former import SETTINGS, WITH_PEERS, as_former, former_code
from tests.oracles.symmetricds import Place, snapshot

pytestmark = pytest.mark.postgresql

ROWS = 120
FOREVER = 5_000_000
HERE = "here"
"""The label of the runners that reach the targets."""


@pytest.fixture
def pair(tmp_path: Path, postgresql_url: str) -> Iterator[tuple[Service, Service]]:
    """A service of a former version that reaches the targets, and one of the present that does not."""
    (tmp_path / "code").mkdir()
    former = former_code(WITH_PEERS, tmp_path / "code")
    if former is None:
        pytest.skip("this clone has no history: the former version's code is not here")
    settings = {**SETTINGS, "LETHE_METADATA_URL": postgresql_url, "LETHE_MIGRATE": "true"}
    old = Service(tmp_path / "old", settings | {"LETHE_LABELS": HERE})
    new = Service(tmp_path / "new", settings)
    as_former(old, former)
    with ExitStack() as stack:
        for service in (old, new):
            stack.callback(service.close)
            stack.callback(lambda service=service: None if service.has_ended() else service.kill9())
        old.start()
        new.start()
        yield old, new


def _place(directory: Path, name: str) -> Place:
    place = Place(f"sqlite:///{directory}/{name}.db")
    build_large(place, len(name), rows=ROWS)
    return place


def _kept(place: Place) -> list[object]:
    with closing(sqlite3.connect(place.url.removeprefix("sqlite:///"))) as target:
        query = "select data_id from sym_data where channel_id = 'sale' order by data_id"
        return target.execute(query).fetchall()


def test_former_runner_leaves_what_it_does_not_know_to_a_newer_one(
    pair: tuple[Service, Service], tmp_path: Path
) -> None:
    _, new = pair
    kept, other = _place(tmp_path, "kept"), _place(tmp_path, "other")
    for store, place in (("kept", kept), ("other", other)):
        add_store(new.client, store, place, runs_on=[HERE])
    before = _kept(kept)
    assert before
    request = purge_request(kept, channel_retention_minutes={"sale": FOREVER})
    job_id = new.client.purges.create("kept", request).id
    plan = new.client.purges.start_plan("kept", request, wait_s=0)
    assert isinstance(plan, Job)
    plan_id = plan.id
    succeeded(new.client, new.client.purges.create("other", purge_request(other)).id)  # by the former one
    time.sleep(1.0)
    assert _kept(kept) == before
    for waiting in (job_id, plan_id):
        job = new.client.jobs.get(waiting)
        assert (job.state, job.raw["runs_on"], job.raw["attempt"]) == ("QUEUED", [HERE], 0)
    new.stop()
    new.settings["LETHE_LABELS"] = HERE
    new.start()
    assert succeeded(new.client, job_id)["channel_cutoffs"]
    assert await_job(new.client, plan_id).state == "SUCCEEDED"
    assert _kept(kept) == before


def test_former_runner_goes_on_with_what_the_present_one_has_begun(
    pair: tuple[Service, Service], tmp_path: Path
) -> None:
    old, new = pair
    new.stop()
    new.settings["LETHE_LABELS"] = HERE
    new.start()
    place = _place(tmp_path, "begun")
    add_store(new.client, "begun", place, runs_on=[HERE])
    expected = expect(place, snapshot(place))
    old.freeze()
    request = purge_request(place, archive=True, max_rows_in_tx=20, rows_per_s=20)
    job_id = new.client.purges.create("begun", request).id
    until(lambda: new.client.jobs.get(job_id).progress.done > 0)
    old.thaw()
    assert new.stop() == 0
    old.client.jobs.throttle(job_id, lift=True)
    result = succeeded(old.client, job_id)
    assert_exact(place, expected, result)
    assert old.client.jobs.get(job_id).raw["attempt"] > 1

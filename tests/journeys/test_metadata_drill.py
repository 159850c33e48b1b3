"""The drill: metadata is brought back from a backup while a target has gone on, and no promise is broken."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from lethe_client import Conflict, Lethe, PurgeRequest

from tests.forge import run_lethe
from tests.journeys.crashes import build_large
from tests.journeys.ground import CUTOFF, Expected, add_store, assert_exact, expect, instant, purge_request
from tests.journeys.service import LETHE, await_job, environment, serving, succeeded
from tests.oracles.symmetricds import Place, expected_after_purge, session, snapshot

pytestmark = pytest.mark.journey

ROWS = 400
ROWS_PER_S = 60
LATER_PURGES = 2
TABLES = ("data", "data_event", "outgoing_batch")


def _metadata(*words: str | Path, settings: dict[str, str]) -> dict[str, Any]:
    """`lethe metadata ... --json`."""
    done = run_lethe([LETHE, "metadata", *words, "--json"], env=environment(settings))
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(json.loads(done.stdout))


def _databases(request: pytest.FixtureRequest, engine: str) -> list[dict[str, str]]:
    """Settings of the former metadata and of that which a backup goes into."""
    if engine == "sqlite":
        return [{}, {}]
    server = request.getfixturevalue("own_postgresql")
    urls = [server.create_database(name) for name in ("former", "restored")]
    return [{"LETHE_METADATA_URL": url, "LETHE_MIGRATE": "true"} for url in urls]


@pytest.mark.parametrize(
    "engine", ["sqlite", pytest.param("postgresql", marks=[pytest.mark.postgresql, pytest.mark.long])]
)
def test_restored_into_the_past_it_is_refused_then_recovered_and_exact(
    tmp_path: Path, request: pytest.FixtureRequest, engine: str
) -> None:
    former, later = _databases(request, engine)
    place, calm = Place(f"sqlite:///{tmp_path}/shop.db"), Place(f"sqlite:///{tmp_path}/calm.db")
    build_large(place, 12, rows=ROWS)
    build_large(calm, 13, rows=50)
    aside = Place(f"sqlite:///{tmp_path}/aside.db")
    build_large(aside, 14, rows=200)
    whole = expect(place, snapshot(place))
    backup = tmp_path / "backup"
    with serving(tmp_path / "former", former) as service:
        client = service.client
        add_store(client, "shop", place)
        add_store(client, "calm", calm)
        add_store(client, "aside", aside)
        early = instant(place, local=CUTOFF - timedelta(hours=4))
        running = client.purges.create(
            "shop", purge_request(place, cutoff=early, max_rows_in_tx=20, rows_per_s=ROWS_PER_S)
        ).id
        await_job(client, running, "RUNNING")
        reviewed = client.purges.plan("aside", purge_request(aside, cutoff=early, stranded="SKIP")).plan_id
        kept = _metadata("backup", backup, "--data-dir", service.data_dir, settings=former)
        assert client.jobs.get(running).state == "RUNNING", "the backup was to be beside a running purge"
        assert kept["manifest"]["engine"] == engine
        client.jobs.abort(running)
        await_job(client, running)
        lost = [_purge_until(client, place, hours=3 - number) for number in range(LATER_PURGES)]
        request = PurgeRequest(plan_id=reviewed, stranded="SKIP")
        executed = succeeded(client, client.purges.create("aside", request).id)
        assert executed["removed"]["data"] > 0
        service.kill9()
    after = snapshot(place)
    said = _metadata("check", backup, settings=later)
    assert (said["ok"], said["stores"] or said["rows"]["stores"]) in [
        (True, ["aside", "calm", "shop"]),
        (True, 3),
    ]
    done = _metadata("restore", backup, "--data-dir", tmp_path / "later", settings=later)
    assert done["stores"] == ["aside", "calm", "shop"]
    assert done["next"][-3:] == ["lethe recover aside", "lethe recover calm", "lethe recover shop"]
    with serving(tmp_path / "later", later) as service:
        client = service.client
        assert await_job(client, running).state == "FAILED"
        assert client.jobs.get(running).error.code == "EPOCH_AHEAD"  # type: ignore[union-attr]
        with pytest.raises(Conflict) as refused:
            client.purges.create("shop", purge_request(place))
        assert refused.value.code == "EPOCH_AHEAD"
        assert snapshot(place) == after
        recovered = client.stores.recover("shop").raw
        assert set(lost) <= set(recovered["foreign_jobs"])
        client.stores.recover("aside")
        _assert_plan_that_was_executed_removes_no_more(client, aside, reviewed)
        for name, target in {"shop": place, "calm": calm}.items():
            expected = expect(target, snapshot(target))
            job = client.purges.create(name, purge_request(target))
            assert_exact(target, expected, succeeded(client, job.id))
    _assert_nothing_needed_has_gone(place, whole)


def _assert_plan_that_was_executed_removes_no_more(client: Lethe, aside: Place, reviewed: str) -> None:
    """To the restored metadata it is new; what became due since the review was not reviewed."""
    long_ago = aside.encode(CUTOFF - timedelta(days=9))
    with session(aside) as target:
        name = aside.name("outgoing_batch")
        target.run(f"update {name} set status = 'OK', create_time = :old", {"old": long_ago})
    before = snapshot(aside)
    request = PurgeRequest(plan_id=reviewed, stranded="SKIP")
    done = succeeded(client, client.purges.create("aside", request).id)
    assert set(done["removed"].values()) == {0}
    assert snapshot(aside) == before


def _assert_nothing_needed_has_gone(place: Place, whole: Expected) -> None:
    """What one purge would have kept is there. Several keep more: rows that the first has left unrouted."""
    final = snapshot(place)
    for table in TABLES:
        assert [row for row in whole.after[table] if row not in final[table]] == [], table


def _purge_until(client: Lethe, place: Place, *, hours: int) -> str:
    """A purge with an earlier cut-off than the oracle's, and exactly what the oracle says of it."""
    local = CUTOFF - timedelta(hours=hours)
    wanted = expected_after_purge(snapshot(place), place.encode(local))
    job_id = client.purges.create("shop", purge_request(place, cutoff=instant(place, local=local))).id
    succeeded(client, job_id)
    after = snapshot(place)
    assert {table: after[table] for table in wanted} == wanted
    return job_id

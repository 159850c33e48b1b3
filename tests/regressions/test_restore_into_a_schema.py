"""A restore into a schema took no claim and left no trace of its target. A runner under SIGSTOP inside its
COPY was replaced, the job aborted and called ABORTED at once, and when the runner woke its transaction
committed. The schema could be that of another store's live tables too: whoever may purge wrote rows into
them, past the admin's `--live`. And restores wrote to a suspended store until somebody noticed, again every
thirty seconds.
"""

from __future__ import annotations

from typing import Any

import pytest

from app.archives.task import run_restore
from app.jobs.service import request_abort
from spark.targets.connection import connect
from spark.targets.silence import application_name
from tests.oracles.symmetricds import Place, session, snapshot
from tests.regressions.purges import OLD_CUTOFF, Purges
from tests.spark.purge.outgoing_run import target_of


@pytest.fixture
def archived(purges: Purges, postgresql_url: str) -> tuple[Place, str]:
    place = purges.fill(Place(postgresql_url), rows=60)
    purges.store(place)
    job_id = purges.submit(cutoff=OLD_CUTOFF, archive={"format": "PARQUET"})
    assert purges.run(job_id).state == "SUCCEEDED"
    return place, job_id


def _restore(purges: Purges, archive: str, **into: Any) -> str:
    whole = {"file": None, "schema": None, "live": False} | into
    return purges.bench.submit("ARCHIVE_RESTORE", params={"archive": archive, "into": whole})


def test_restore_of_a_dead_runner_is_aborted_only_when_its_session_is_gone(
    purges: Purges, archived: tuple[Place, str]
) -> None:
    place, archive = archived
    bench = purges.bench
    job_id = _restore(purges, archive, schema="back")
    done = purges.run(job_id)
    assert (done.state, done.error) == ("SUCCEEDED", None)
    job_id = _restore(purges, archive, schema="back")
    sleeper = (
        purges.attempt()
    )  # as the runner that took the job, opened its session, and fell asleep in a COPY
    assert sleeper.job.id == job_id
    run_restore(sleeper)
    name = application_name(job_id, "control", sleeper.job.token)
    with connect(target_of(place), application_name=name) as asleep:
        begun = asleep.transaction()
        begun.__enter__()
        asleep.execute("create table back.late (id integer)")
        bench.do(request_abort, job_id)
        bench.lapse(job_id)
        with bench.running(purges.kinds):
            bench.until(job_id, "ABORTED")
        with pytest.raises(Exception, match=r"terminat|closed|connection"):
            asleep.execute("select 1")
        with pytest.raises(Exception, match=r"."):
            begun.__exit__(None, None, None)
    with session(place) as target:
        assert target.run("select to_regclass('back.late')") == [(None,)]


@pytest.mark.parametrize("schema", ["other", "lethe", "pg_catalog"])
def test_schema_in_use_is_refused(purges: Purges, archived: tuple[Place, str], schema: str) -> None:
    place, archive = archived
    other = Place(place.url, schema="other")
    purges.fill(other, rows=20, seed=4)
    before = snapshot(other)
    job = purges.run(_restore(purges, archive, schema=schema))
    assert job.error is not None
    assert job.error["code"] == "RESTORE_CONFLICT"
    assert snapshot(other) == before


def test_suspended_store_gets_no_rows_back(purges: Purges, archived: tuple[Place, str]) -> None:
    place, archive = archived
    before = snapshot(place)
    purges.change_store(is_suspended=True)
    for into in ({"schema": "back"}, {"live": True}):
        job = purges.run(_restore(purges, archive, **into), "WAITING", "SUCCEEDED", "FAILED")
        assert job.state == "WAITING"
        assert job.waiting_on[0]["kind"] == "STORE_SUSPENDED"
    assert snapshot(place) == before
    with session(place) as target:
        assert target.run("select count(*) from pg_namespace where nspname = 'back'") == [(0,)]

"""A restore into a schema took no claim and left no trace of its target. A runner under SIGSTOP inside its
COPY was replaced, the job aborted and called ABORTED at once, and when the runner woke its transaction
committed. The schema could be that of another store's live tables too: whoever may purge wrote rows into
them, past the admin's `--live`. And restores wrote to a suspended store until somebody noticed, again every
thirty seconds.
"""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy.engine import make_url

from app.archives.task import run_restore
from app.jobs.service import request_abort
from spark.targets.connection import connect, identity
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


@pytest.mark.parametrize("is_known", [True, False])
def test_schema_of_another_store_with_the_same_tables_is_refused(
    purges: Purges, archived: tuple[Place, str], is_known: bool
) -> None:
    """It held nothing but tables of the archive's names, and got rows of another tenant into these."""
    place, archive = archived
    other = Place(place.url, schema="other")
    with session(place) as target:
        target.run("create schema other")
        for table in ("sym_data", "sym_data_event", "sym_outgoing_batch"):  # without sequences
            target.run(f"create table other.{table} (like public.{table} including indexes)")
    purges.store(other, "theirs")
    if is_known:
        with connect(target_of(other), application_name="t") as conn:
            purges.change_store("theirs", target_identity=identity(conn), url=f"{other.url}?sslmode=disable")
    job = purges.run(_restore(purges, archive, schema="other"))
    assert job.error is not None
    assert job.error["code"] == "RESTORE_CONFLICT"
    assert "theirs" not in job.error["detail"]
    with session(place) as target:
        assert target.run("select * from other.sym_data") == []


@pytest.mark.parametrize("is_known", [True, False])
def test_database_of_another_store_with_the_same_tables_is_refused(
    purges: Purges, mariadb_url: str, is_known: bool
) -> None:
    """MariaDB has no schemas: there it is a database beside the store's own."""
    place, other = Place(mariadb_url), Place(f"{mariadb_url}_2")
    name = str(make_url(other.url).database)
    purges.store(purges.fill(place, rows=60))
    archive = purges.submit(cutoff=OLD_CUTOFF, archive={"format": "PARQUET"})
    assert purges.run(archive).state == "SUCCEEDED"
    with session(place) as target:
        target.run(f"create database {name}")
        try:
            for table in ("sym_data", "sym_data_event", "sym_outgoing_batch"):
                target.run(f"create table {name}.{table} like {table}")
            purges.store(other, "theirs")
            if is_known:
                with connect(target_of(other), application_name="t") as conn:
                    purges.change_store("theirs", target_identity=identity(conn))
            job = purges.run(_restore(purges, archive, schema=name))
            assert (job.error or {}).get("code") == "RESTORE_CONFLICT"
            assert target.run(f"select * from {name}.sym_data") == []
        finally:
            target.run(f"drop database {name}")


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

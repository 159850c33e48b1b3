"""A purge began where Lethe might make no tables; `:check` said so, and while the job was paused somebody
gave the right. The next attempt found a ledger, and believed it: it counted only its own units and called
that EXACT, and its manifest named only its own files, so that the archive of the rows before them was taken
for abandoned.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy.engine import make_url

from app.archives.service import entries_on_disk
from app.jobs.service import request_pause, request_resume
from tests.oracles.symmetricds import Place, snapshot
from tests.regressions.purges import OLD_CUTOFF, Purges

PURGED = ("data", "data_event", "outgoing_batch")


@pytest.fixture
def admin(postgresql_url: str) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    url = make_url(postgresql_url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def role(admin: psycopg.Connection[tuple[object, ...]]) -> Iterator[str]:
    name = f"lethe_poor_{uuid.uuid4().hex[:8]}"
    admin.execute(f"create role {name} login")
    yield name
    admin.execute(f"drop owned by {name}")
    admin.execute(f"drop role {name}")


def test_job_that_began_without_a_ledger_ends_without_one(
    purges: Purges,
    postgresql_url: str,
    admin: psycopg.Connection[tuple[object, ...]],
    role: str,
    tmp_path: Path,
) -> None:
    bench = purges.bench
    place = purges.fill(Place(postgresql_url))
    admin.execute(f"grant usage on schema public to {role}")
    admin.execute(f"grant select, update, delete on all tables in schema public to {role}")
    purges.store(Place(make_url(postgresql_url).set(username=role).render_as_string()))
    before = snapshot(place)
    job_id = purges.submit(
        cutoff=OLD_CUTOFF, archive={"format": "PARQUET"}, max_rows_in_tx=10, throttle={"rows_per_s": 40}
    )
    with bench.running(purges.kinds):
        while not list(tmp_path.glob("archive/shop/*/data-*.parquet")):
            pass
        bench.do(request_pause, job_id)
        paused = bench.until(job_id, "PAUSED")
    assert paused.result is not None
    assert paused.result["counts"] == paused.result["archive"]["counts"] == "AT_LEAST"
    assert paused.result["archive"]["rows"] > 0
    admin.execute(
        f"do $$ begin execute format('grant create on database %I to {role}', current_database()); end $$"
    )
    bench.set(job_id, throttle_requested=None)
    bench.do(request_resume, job_id)
    job = purges.run(job_id)
    assert (job.state, job.error) == ("SUCCEEDED", None)
    assert job.result is not None
    after = snapshot(place)
    gone = sum(len(before[table]) - len(after[table]) for table in PURGED)
    assert job.result["counts"] == "AT_LEAST"
    assert 0 < sum(job.result["removed"].values()) <= gone
    archive = purges.archive(job_id)
    assert archive is not None
    assert (archive.counts, archive.rows) == ("AT_LEAST", gone)
    entries, _ = entries_on_disk(Path(archive.directory))
    assert sum(entry.rows for entry in entries) == gone

"""A job whose target was away could only be ended by a proof that nobody could make. An admin's word ends it
now; but a session of it may sit at the target all the same, amid a unit, and come to life with the target.
Whoever writes there next ends that session first: else two jobs would write, or the second wait for ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from app.jobs.errors import JobWaiting
from app.jobs.models import WaitingOn
from app.jobs.running import outcome
from app.jobs.running.abandonment import abandon
from app.jobs.running.recovery import recover_target
from app.jobs.running.sql_target import claim, controlled, read_store_of
from app.purge.rules import fence_resource
from app.stores.rows import Store
from app.sweeps.purging import JOB_PURGE
from spark.targets.connection import Connection, SessionLimits, Target, connect
from spark.targets.errors import TargetError
from spark.targets.fence import check_fence, read_fence
from spark.targets.silence import application_name
from tests.oracles.symmetricds import Place
from tests.regressions.purges import OLD_CUTOFF, Purges

AWAY = JobWaiting(
    [WaitingOn(kind="TARGET_UNREACHABLE", ref="shop")],
    not_before=None,
    transient=True,
    code="TARGET_UNREACHABLE",
    gives_back=True,
)


@pytest.fixture
def place(purges: Purges, postgresql_url: str) -> Place:
    place = purges.fill(Place(postgresql_url))
    purges.store(place)
    return place


@contextmanager
def _straggler(purges: Purges, place: Place) -> Iterator[tuple[str, int, Connection]]:
    """A job that was abandoned while a unit of it holds the fence: its id, token and session."""
    job_id = purges.submit(cutoff=OLD_CUTOFF)
    context = purges.attempt()
    store = read_store_of(context)
    with controlled(context, store) as conn:
        claimed = claim(context, conn, resource=fence_resource(store), queue=False)
    name = application_name(job_id, "data-1", context.job.token)
    session = connect(Target(place.url), application_name=name, limits=SessionLimits())
    with suppress(TargetError), session as unit, unit.transaction():  # its end is what is tested
        check_fence(unit, claimed.resource, token=context.job.token)
        unit.execute("delete from sym_data where data_id = (select min(data_id) from sym_data)")
        outcome.wait(context, AWAY, proven=False)
        purges.bench.do(abandon, job_id, reason="the server is gone")
        yield job_id, context.job.token, unit


def test_next_job_ends_what_the_abandoned_one_left_before_it_writes(purges: Purges, place: Place) -> None:
    with _straggler(purges, place) as (job_id, token, unit):
        successor = purges.submit(cutoff=OLD_CUTOFF)
        assert purges.run(successor).state == "SUCCEEDED"
        with pytest.raises(TargetError):
            unit.execute("select 1")
    row = purges.bench.row(job_id)
    assert (row["state"], row["silence_proved"]) == ("ABANDONED", False)
    assert row["fenced_off_at"] is not None
    with connect(Target(place.url), application_name="test", limits=SessionLimits()) as conn:
        fence = read_fence(conn, fence_resource(_store(purges)))
    assert fence is not None
    assert fence[0] > token


def test_recover_shuts_it_out_too(purges: Purges, place: Place) -> None:
    with _straggler(purges, place) as (job_id, token, unit):
        store = _store(purges)
        resource = fence_resource(store)
        bench = purges.bench
        recover_target(bench.database, bench.settings, store, "ann", kind=JOB_PURGE, resources=[resource])
        with pytest.raises(TargetError):
            unit.execute("select 1")
    assert purges.bench.row(job_id)["fenced_off_at"] is not None
    with connect(Target(place.url), application_name="test", limits=SessionLimits()) as conn:
        fence = read_fence(conn, resource)
    assert fence is not None
    assert fence[0] > token


def _store(purges: Purges) -> Store:
    with purges.bench.database.reading() as db:
        return db.get_one(Store, "shop")

"""Lists of jobs and events: filters, pages, and the end of the queue."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from app.errors import InvalidPageToken
from app.jobs.errors import QueueFull
from app.jobs.queries import JobFilter, count_active_jobs, list_events, list_instances, list_jobs, read_events
from app.jobs.rows import Instance
from app.jobs.service import JobRequest, submit
from app.jobs.states import ACTIVE, JobState
from app.jobs.writing import change_job
from tests.app.jobs.workbench import Workbench


def listed(bench: Workbench, *, page_size: int = 2, **wanted: Any) -> list[str]:
    """All pages together."""
    found: list[str] = []
    token = ""
    while True:
        with bench.database.reading() as db:
            page = list_jobs(db, JobFilter(**wanted), page_size=page_size, page_token=token)
        found += [job.id for job in page.items]
        token = page.next_page_token
        if not token:
            return found


def test_filters_narrow_and_pages_leave_nothing_out(bench: Workbench) -> None:
    first = [bench.submit(store="shop") for _ in range(3)]
    bench.set(first[0], created_at=bench.clock.now() - timedelta(days=2))
    parent = bench.submit("BATCH", store=None)
    child = bench.submit(store="other", parent_id=parent)
    bench.set(first[1], state=JobState.RUNNING)
    everything = [*first, parent, child]
    assert listed(bench) == everything[::-1]
    assert listed(bench, states=[JobState.RUNNING, JobState.PAUSED]) == [first[1]]
    assert listed(bench, kinds=["BATCH"]) == [parent]
    assert listed(bench, stores=["shop", "none"]) == first[::-1]
    assert listed(bench, parent_id=parent) == [child]
    assert listed(bench, created_after=bench.clock.now() - timedelta(days=1)) == everything[:0:-1]
    assert listed(bench, visible_stores=["other"]) == [child]
    assert listed(bench, visible_stores=[]) == []


def test_jobs_that_come_meanwhile_do_not_shift_the_pages(bench: Workbench) -> None:
    ids = [bench.submit() for _ in range(4)]
    with bench.database.reading() as db:
        first = list_jobs(db, JobFilter(), page_size=2, page_token="")
    bench.submit()
    with bench.database.reading() as db:
        second = list_jobs(db, JobFilter(), page_size=2, page_token=first.next_page_token)
    assert [job.id for job in (*first.items, *second.items)] == ids[::-1]


def test_token_of_a_list_opens_no_other(bench: Workbench) -> None:
    for _ in range(3):
        bench.submit()
    with bench.database.reading() as db:
        token = list_jobs(db, JobFilter(), page_size=1, page_token="").next_page_token
        with pytest.raises(InvalidPageToken):
            list_jobs(db, JobFilter(stores=["shop"]), page_size=1, page_token=token)
        with pytest.raises(InvalidPageToken):
            list_jobs(db, JobFilter(visible_stores=["shop"]), page_size=1, page_token=token)


def test_events_are_read_after_a_sequence_and_in_pages(bench: Workbench) -> None:
    job_id = bench.submit()
    for number in range(6):
        with bench.database.transaction() as db:
            event = ("warning", {"n": number})
            change_job(db, job_id, guards=[], values={}, now=bench.clock.now(), event=event)
    with bench.database.reading() as db:
        assert [event.seq for event in read_events(db, job_id, after=4)] == [5, 6, 7]
        seen, token = [], ""
        while True:
            page = list_events(db, job_id, page_size=3, page_token=token)
            seen += [event.seq for event in page.items]
            token = page.next_page_token
            if not token:
                break
    assert seen == list(range(1, 8))


def test_queue_has_an_end_that_children_do_not_meet(bench: Workbench) -> None:
    def ask(**fields: Any) -> str:
        request = JobRequest(kind="TOY", store="shop", params={}, requested_by="ann", **fields)
        with bench.database.transaction() as db:
            return submit(db, request, now=bench.clock.now(), queued_max=2).id

    first, _ = ask(), ask()
    with pytest.raises(QueueFull) as full:
        ask()
    assert (full.value.status, full.value.retryable, full.value.headers["Retry-After"]) == (429, True, "30")
    assert ask(parent_id=first)
    bench.set(first, state=JobState.RUNNING)


@pytest.mark.parametrize("state", list(JobState))
def test_store_is_in_use_until_its_jobs_have_ended(sqlite_bench: Workbench, state: JobState) -> None:
    sqlite_bench.put(state)
    with sqlite_bench.database.reading() as db:
        assert count_active_jobs(db, "shop") == (1 if state in ACTIVE else 0)
        assert count_active_jobs(db, "other") == 0


def test_instance_is_alive_within_its_lease_time(bench: Workbench) -> None:
    now = bench.clock.now()
    with bench.database.transaction() as db:
        for name, age_s, stopped in (("fresh", 10, False), ("silent", 100, False), ("stopped", 1, True)):
            beat = now - timedelta(seconds=age_s)
            db.add(
                Instance(
                    id=f"ins_{name}", hostname="h", pid=1, role="serve", version="0", labels=[],
                    started_at=beat, heartbeat_at=beat, stopped_at=beat if stopped else None,
                )
            )  # fmt: skip
    with bench.database.reading() as db:
        page = list_instances(db, now=now, alive_within_s=90, page_size=50, page_token="")
        alive = {row.id: row.alive for row in page.items}
    assert alive == {"ins_fresh": True, "ins_silent": False, "ins_stopped": False}


def test_list_after_a_time_is_that_of_all_rows_whatever_the_order_of_ids(bench: Workbench) -> None:
    # Ids are made by each instance's clock, created_at by another: neither may hide a job from the list.
    start = bench.clock.now()
    chance = random.Random(7)
    made = {bench.submit(chance.choice(["TOY", "OTHER"])): chance.randrange(60) for _ in range(60)}
    for job_id, second in made.items():
        bench.set(job_id, created_at=start + timedelta(seconds=second))
    for second in range(-1, 61, 7):
        for kinds in ([], ["TOY"], ["TOY", "OTHER"], ["NONE"]):
            after = start + timedelta(seconds=second)
            with bench.database.reading() as db:
                wanted = JobFilter(kinds=kinds, created_after=after)
                page = list_jobs(db, wanted, page_size=100, page_token="")
            naive = [
                job_id
                for job_id, at in sorted(made.items(), reverse=True)
                if at > second and (not kinds or bench.job(job_id).kind in kinds)
            ]
            assert [job.id for job in page.items] == naive


@pytest.mark.parametrize(
    ("wanted", "index"),
    [
        (JobFilter(kinds=["TOY"]), "ix_jobs_kind_id"),
        (JobFilter(created_after=datetime(2030, 1, 1, tzinfo=UTC)), "ix_jobs_created_at"),
    ],
    ids=["kind", "created_after"],
)
def test_lists_of_a_kind_and_after_a_time_use_an_index(
    sqlite_bench: Workbench, wanted: JobFilter, index: str
) -> None:
    # 311 ms at 100,000 jobs: all of them were read.
    asked: list[tuple[str, Any]] = []

    def note(_conn: object, _cursor: object, statement: str, parameters: object, *_rest: object) -> None:
        asked.append((statement, parameters))

    engine = sqlite_bench.database.engine
    sa.event.listen(engine, "before_cursor_execute", note)
    with sqlite_bench.database.reading() as db:
        list_jobs(db, wanted, page_size=50, page_token="")
    sa.event.remove(engine, "before_cursor_execute", note)
    [(statement, parameters)] = [each for each in asked if "FROM jobs" in each[0]]
    with engine.connect() as connection:
        plan = connection.exec_driver_sql(f"explain query plan {statement}", parameters).all()
    assert index in str(plan)

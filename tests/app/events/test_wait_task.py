"""A wait for an event, attempt by attempt: when it looks and tells, how it ends, what a crash changes."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from app.jobs.again import retry
from app.jobs.rows import Job
from app.jobs.running.claims import reap
from app.jobs.service import request_abort
from app.stores.rows import Store
from tests.app.events.waits import Waits
from tests.app.fake_clock import FakeClock
from tests.app.jobs.workbench import Workbench, claimer
from tests.spark.events.catalogs import Catalogs, LoadedCatalog

pytestmark = pytest.mark.postgresql


@pytest.fixture
def waits(sqlite_bench: Workbench) -> Waits:
    return Waits(sqlite_bench)


@pytest.fixture
def node(catalogs: Catalogs) -> LoadedCatalog:
    """Node 1 of a cluster of three, where each has confirmed everything but its own."""
    loaded = catalogs.empty(node=1)
    loaded.execute(
        "insert into sl_node (no_id, no_active, no_failed) select n, true, false from generate_series(1, 3) n"
    )
    for origin in (1, 2, 3):
        make_event(loaded, origin, 5_000_000_010)
        for receiver in {1, 2, 3} - {origin}:
            confirm(loaded, origin, receiver, 5_000_000_010)
    return loaded


@pytest.fixture
def store(waits: Waits, node: LoadedCatalog) -> Store:
    return waits.register("node-1", node)


def make_event(loaded: LoadedCatalog, origin: int, seqno: int, kind: str = "SYNC") -> None:
    loaded.execute(
        "insert into sl_event (ev_origin, ev_seqno, ev_timestamp, ev_snapshot, ev_type)"
        f" values ({origin}, {seqno}, now(), '10:10:', '{kind}')"
    )


def confirm(loaded: LoadedCatalog, origin: int, receiver: int, seqno: int) -> None:
    loaded.execute(
        "insert into sl_confirm (con_origin, con_received, con_seqno, con_timestamp)"
        f" values ({origin}, {receiver}, {seqno}, now())"
    )


def drop_node(loaded: LoadedCatalog, node_id: int) -> None:
    """What dropNode leaves of a node in these tables."""
    loaded.execute(
        f"delete from sl_confirm where {node_id} in (con_origin, con_received)",
        f"delete from sl_node where no_id = {node_id}",
    )


def outstanding(
    receiver: int, confirmed: int | None, *, seqno: int = 5_000_000_020, origin: int = 1
) -> dict[str, Any]:
    return {
        "origin": origin,
        "seqno": seqno,
        "receiver": receiver,
        "confirmed_seqno": confirmed,
        "behind": None if confirmed is None else seqno - confirmed,
        "why": "NEVER_CONFIRMED" if confirmed is None else "BEHIND",
    }


def clock_of(waits: Waits) -> FakeClock:
    assert isinstance(waits.bench.clock, FakeClock)
    return waits.bench.clock


def run_to(waits: Waits, job_id: str, seconds: float) -> list[float]:
    """Let a wait look whenever it wants to for a time; the moments, counted from the beginning of it."""
    clock, began, looks = clock_of(waits), clock_of(waits).now(), []
    until = began + timedelta(seconds=seconds)
    while (job := waits.bench.job(job_id)).state in ("QUEUED", "WAITING"):
        due = job.not_before or clock.now()
        if due > until:
            break
        clock.advance(max(0.0, (due - clock.now()).total_seconds()))
        looks.append((clock.now() - began).total_seconds())
        waits.attempt(job_id)
    return looks


def test_everything_confirmed_ends_at_the_first_look(waits: Waits, store: Store) -> None:
    job_id = waits.submit(store)
    job = waits.attempt(job_id)
    now = clock_of(waits).now()
    assert (job.state, job.result) == (
        "SUCCEEDED",
        {
            "awaited": [{"origin": 1, "seqno": 5_000_000_010, "known_by": 1}],
            "wait_on": 1,
            "is_satisfied": True,
            "origins_gone": [],
            "pairs": 2,
            "outstanding": [],
            "outstanding_total": 0,
            "looked_at": shown(now),
            "deadline": shown(now + timedelta(minutes=10)),
        },
    )
    assert waits.told(job_id) == []


def shown(instant: datetime) -> str:
    return instant.isoformat().replace("+00:00", "Z")


def test_wait_holds_nothing_between_two_looks(waits: Waits, store: Store, node: LoadedCatalog) -> None:
    make_event(node, 1, 5_000_000_020)
    job_id = waits.submit(store)
    job = waits.attempt(job_id)
    assert (job.state, job.lease_instance, job.unproven, job.claim_resource) == ("WAITING", None, False, None)
    deadline = shown(clock_of(waits).now() + timedelta(minutes=10))
    assert job.waiting_on == [
        {"kind": "CONFIRMATION", "ref": "node 2 of (1,5000000020)", "until": deadline},
        {"kind": "CONFIRMATION", "ref": "node 3 of (1,5000000020)", "until": deadline},
    ]
    sessions = node.query("select count(*) from pg_stat_activity where application_name like 'lethe:job%'")
    assert sessions == [(0,)]


def test_looks_come_each_second_then_less_often_and_stop_at_the_deadline(
    waits: Waits, store: Store, node: LoadedCatalog
) -> None:
    make_event(node, 1, 5_000_000_020)
    job_id = waits.submit(store, timeout="PT1M3.5S")
    looks = run_to(waits, job_id, 3600)
    assert looks == [*map(float, range(61)), 62, 63.5]
    assert waits.bench.state(job_id) == "FAILED"


def test_many_stores_share_the_looks_of_a_second(waits: Waits, store: Store, node: LoadedCatalog) -> None:
    make_event(node, 1, 5_000_000_020)
    job_id = waits.submit(store)
    for number in range(59):
        waits.bench.submit("EVENT_WAIT", store=f"store-{number}")
    waits.bench.submit("OTHER", store=store.id)
    job = waits.attempt(job_id)
    assert job.not_before == clock_of(waits).now() + timedelta(seconds=12)


def test_who_is_outstanding_is_told_every_ten_seconds(
    waits: Waits, store: Store, node: LoadedCatalog
) -> None:
    make_event(node, 1, 5_000_000_020)
    confirm(node, 1, 2, 5_000_000_020)
    node.execute("delete from sl_confirm where con_origin = 1 and con_received = 3")
    job_id = waits.submit(store)
    began = clock_of(waits).now()
    run_to(waits, job_id, 15)
    confirm(node, 1, 3, 5_000_000_012)
    run_to(waits, job_id, 10)
    confirm(node, 1, 3, 5_000_000_021)
    run_to(waits, job_id, 15)
    assert [
        (told["looked_at"], told["outstanding"], told["pairs"], told["problem"])
        for told in waits.told(job_id)
    ] == [
        (shown(began), [outstanding(3, None)], 2, None),
        (shown(began + timedelta(seconds=10)), [outstanding(3, None)], 2, None),
        (shown(began + timedelta(seconds=20)), [outstanding(3, 5_000_000_012)], 2, None),
    ]
    assert waits.bench.state(job_id) == "SUCCEEDED"


def test_timeout_fails_with_who_is_outstanding(waits: Waits, store: Store, node: LoadedCatalog) -> None:
    make_event(node, 1, 5_000_000_020)
    node.execute("delete from sl_confirm where con_origin = 1 and con_received = 3")
    job_id = waits.submit(store, timeout="PT3S")
    assert run_to(waits, job_id, 60) == [0, 1, 2, 3]
    job = waits.bench.job(job_id)
    assert job.error == {
        "code": "WAIT_TIMEOUT",
        "title": "Wait timeout",
        "detail": "waited PT3S in vain; outstanding: node 2 of (1,5000000020) only at 5000000010, node 3"
        " of (1,5000000020) never confirmed anything",
        "retryable": True,
    }
    assert job.result is not None
    assert (job.result["is_satisfied"], job.result["outstanding"]) == (
        False,
        [outstanding(2, 5_000_000_010), outstanding(3, None)],
    )


def test_confirmations_that_come_with_the_deadline_are_seen(
    waits: Waits, store: Store, node: LoadedCatalog
) -> None:
    make_event(node, 1, 5_000_000_020)
    job_id = waits.submit(store, timeout="PT3S")
    run_to(waits, job_id, 2)
    for receiver in (2, 3):
        confirm(node, 1, receiver, 5_000_000_020)
    clock_of(waits).advance(3600)
    assert waits.attempt(job_id).state == "SUCCEEDED"


def test_wait_of_zero_never_ends_by_itself(waits: Waits, store: Store, node: LoadedCatalog) -> None:
    make_event(node, 1, 5_000_000_020)
    job_id = waits.submit(store, timeout="PT0S")
    waits.attempt(job_id)
    clock_of(waits).advance(400 * 86_400)
    job = waits.attempt(job_id)
    assert (job.state, job.waiting_on[0]["until"]) == ("WAITING", None)
    for receiver in (2, 3):
        confirm(node, 1, receiver, 5_000_000_020)
    clock_of(waits).advance(10)
    job = waits.attempt(job_id)
    assert (job.state, (job.result or {})["deadline"]) == ("SUCCEEDED", None)


def test_node_that_becomes_active_is_waited_for(waits: Waits, store: Store, node: LoadedCatalog) -> None:
    node.execute("insert into sl_node (no_id, no_active, no_failed) values (4, false, false)")
    make_event(node, 1, 5_000_000_020)
    confirm(node, 1, 2, 5_000_000_020)
    job_id = waits.submit(store)
    waits.attempt(job_id)
    node.execute("update sl_node set no_active = true where no_id = 4")
    confirm(node, 1, 3, 5_000_000_020)
    run_to(waits, job_id, 11)
    assert waits.told(job_id)[-1]["outstanding"] == [outstanding(4, None)]
    confirm(node, 1, 4, 5_000_000_020)
    run_to(waits, job_id, 2)
    assert waits.bench.state(job_id) == "SUCCEEDED"


def test_dropped_receiver_is_waited_for_no_longer(waits: Waits, store: Store, node: LoadedCatalog) -> None:
    make_event(node, 1, 5_000_000_020)
    confirm(node, 1, 2, 5_000_000_020)
    job_id = waits.submit(store)
    assert waits.attempt(job_id).state == "WAITING"
    drop_node(node, 3)
    run_to(waits, job_id, 2)
    job = waits.bench.job(job_id)
    assert (job.state, (job.result or {})["pairs"]) == ("SUCCEEDED", 1)


@pytest.mark.parametrize(
    ("request_", "change", "code"),
    [
        ({"origin": 2, "seqno": 5_000_000_020}, ("drop", 2), "ORIGIN_GONE"),
        ({"origin": 1, "confirmed": 3}, ("drop", 3), "RECEIVER_GONE"),
    ],
)
def test_named_node_that_is_dropped_ends_the_wait(
    waits: Waits,
    store: Store,
    node: LoadedCatalog,
    request_: dict[str, Any],
    change: tuple[str, int],
    code: str,
) -> None:
    for origin in (1, 2):
        make_event(node, origin, 5_000_000_020)
    job_id = waits.submit(store, **request_)
    assert waits.attempt(job_id).state == "WAITING"
    drop_node(node, change[1])
    run_to(waits, job_id, 2)
    job = waits.bench.job(job_id)
    assert (job.state, (job.error or {})["code"]) == ("FAILED", code)


def test_nobody_left_satisfies_nothing(waits: Waits, store: Store, node: LoadedCatalog) -> None:
    make_event(node, 1, 5_000_000_020)
    job_id = waits.submit(store)
    waits.attempt(job_id)
    drop_node(node, 2)
    node.execute("update sl_node set no_active = false where no_id = 3")
    run_to(waits, job_id, 2)
    job = waits.bench.job(job_id)
    assert (job.state, (job.error or {})["code"]) == ("FAILED", "NO_RECEIVERS")


def test_all_of_all_goes_on_without_a_dropped_origin(waits: Waits, store: Store, node: LoadedCatalog) -> None:
    for origin in (1, 2, 3):
        make_event(node, origin, 5_000_000_020)
    job_id = waits.submit(store, origin="ALL")
    job = waits.attempt(job_id)
    assert waits.told(job_id)[0]["outstanding_total"] == 6
    drop_node(node, 3)
    for origin, receiver in ((1, 2), (2, 1)):
        confirm(node, origin, receiver, 5_000_000_020)
    run_to(waits, job_id, 2)
    job = waits.bench.job(job_id)
    assert job.result is not None
    assert (job.state, job.result["origins_gone"], job.result["pairs"]) == ("SUCCEEDED", [3], 2)


# -- what may happen to a wait


def crash(waits: Waits) -> Job:
    """Claim the wait, and lose the process."""
    job_id = waits.context().job.id
    with waits.bench.database.transaction() as db:
        assert reap(db, waits.bench.database, claimer(), own=True) == [job_id]
    return waits.bench.job(job_id)


def test_killed_wait_goes_on_to_the_same_deadline(waits: Waits, store: Store, node: LoadedCatalog) -> None:
    make_event(node, 1, 5_000_000_020)
    job_id = waits.submit(store, timeout="PT1M")
    began = clock_of(waits).now()
    run_to(waits, job_id, 30)
    clock_of(waits).advance(1)
    assert crash(waits).state == "QUEUED"
    clock_of(waits).advance(20)
    assert run_to(waits, job_id, 600) == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    job = waits.bench.job(job_id)
    assert ((job.error or {})["code"], clock_of(waits).now() - began) == (
        "WAIT_TIMEOUT",
        timedelta(minutes=1),
    )


def test_wait_that_was_away_past_its_deadline_looks_once_more(
    waits: Waits, store: Store, node: LoadedCatalog
) -> None:
    make_event(node, 1, 5_000_000_020)
    job_id = waits.submit(store, timeout="PT1M")
    waits.attempt(job_id)
    clock_of(waits).advance(2)
    crash(waits)
    clock_of(waits).advance(3600)
    for receiver in (2, 3):
        confirm(node, 1, receiver, 5_000_000_020)
    assert waits.attempt(job_id).state == "SUCCEEDED"


def test_many_crashes_in_a_long_wait_are_no_crash_loop(
    waits: Waits, store: Store, node: LoadedCatalog
) -> None:
    make_event(node, 1, 5_000_000_020)
    job_id = waits.submit(store, timeout="PT0S")
    for _ in range(8):
        crash(waits)
        job = waits.attempt(job_id)
        assert (job.state, job.crash_count) == ("WAITING", 0)
        clock_of(waits).advance(5)


def test_abort_answers_at_once(waits: Waits, store: Store, node: LoadedCatalog) -> None:
    make_event(node, 1, 5_000_000_020)
    job_id = waits.submit(store)
    waits.attempt(job_id)
    assert waits.bench.do(request_abort, job_id).state == "ABORTED"


def test_retry_waits_for_the_same_event_to_a_deadline_of_its_own(
    waits: Waits, store: Store, node: LoadedCatalog
) -> None:
    make_event(node, 1, 5_000_000_020)
    first = waits.submit(store, timeout="PT2S")
    run_to(waits, first, 60)
    make_event(node, 1, 5_000_000_030)
    clock = clock_of(waits)
    with waits.bench.database.transaction() as db:
        again = retry(db, first, now=clock.now(), actor="ann", token_id="tok_a", queued_max=9).id
    assert waits.attempt(again).state == "WAITING"
    for receiver in (2, 3):
        confirm(node, 1, receiver, 5_000_000_020)
    clock.advance(1)
    assert waits.attempt(again).state == "SUCCEEDED"


def test_node_that_is_away_is_waited_for_to_the_deadline(
    waits: Waits, node: LoadedCatalog, store: Store
) -> None:
    make_event(node, 1, 5_000_000_020)
    job_id = waits.submit(store, timeout="PT1M")
    waits.attempt(job_id)
    move(waits, store, "postgresql+psycopg://nobody@127.0.0.1:1/nowhere")
    looks = run_to(waits, job_id, 40)
    assert looks == [1, 2, 4, 8, 16, 26, 36]
    job = waits.bench.job(job_id)
    assert (job.state, job.waiting_on[0]["kind"], job.retries) == ("WAITING", "TARGET_UNREACHABLE", 0)
    last = waits.told(job_id)[-1]
    assert last["problem"].startswith("TARGET_UNREACHABLE: ")
    assert last["outstanding"] == [outstanding(2, 5_000_000_010), outstanding(3, 5_000_000_010)]
    move(waits, store, node.url)
    assert run_to(waits, job_id, 12) == [10, 11, 12]
    move(waits, store, "postgresql+psycopg://nobody@127.0.0.1:1/nowhere")
    run_to(waits, job_id, 60)
    job = waits.bench.job(job_id)
    assert (job.state, (job.error or {})["code"]) == ("FAILED", "WAIT_TIMEOUT")
    assert (job.error or {})["detail"].startswith(
        "waited PT1M in vain; node 1 could not be asked; outstanding: "
    )


def move(waits: Waits, store: Store, url: str) -> None:
    with waits.bench.database.transaction() as db:
        row = db.get_one(Store, store.id)
        row.url = url
        db.add(row)


def test_store_that_became_another_node_is_not_believed(
    waits: Waits, store: Store, node: LoadedCatalog, catalogs: Catalogs
) -> None:
    make_event(node, 1, 5_000_000_020)
    job_id = waits.submit(store)
    waits.attempt(job_id)
    move(waits, store, catalogs.empty(node=2).url)
    run_to(waits, job_id, 2)
    error = waits.bench.job(job_id).error
    assert error is not None
    assert (error["code"], error["detail"]) == ("STORE_CHANGED", "the store is node 2 now, not 1")


def test_catalog_that_is_gone_fails_the_wait(waits: Waits, store: Store, node: LoadedCatalog) -> None:
    make_event(node, 1, 5_000_000_020)
    job_id = waits.submit(store)
    waits.attempt(job_id)
    node.execute(f'drop schema "{node.schema}" cascade')
    run_to(waits, job_id, 2)
    error = waits.bench.job(job_id).error
    assert error is not None
    assert error["code"] == "NOT_A_SLONY_CLUSTER"


def test_suspended_store_is_not_asked_and_the_deadline_stays(
    waits: Waits, store: Store, node: LoadedCatalog
) -> None:
    make_event(node, 1, 5_000_000_020)
    job_id = waits.submit(store, timeout="PT40S")
    waits.attempt(job_id)
    with waits.bench.database.transaction() as db:
        row = db.get_one(Store, store.id)
        row.is_suspended = True
        db.add(row)
    assert run_to(waits, job_id, 100) == [1, 31, 40]
    error = waits.bench.job(job_id).error
    assert error is not None
    assert error["detail"].startswith("waited PT40S in vain; store node-1 was suspended; outstanding: node 2")

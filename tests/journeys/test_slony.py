"""Lethe beside a real, replicating cluster of Slony-I: cleanup, log switch, waiting, hazards, kills.

One cluster for the whole file: every test leaves it healthy, with its slons running.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest
from lethe_client.slony import CleanupRequest

from tests.journeys.service import await_job, succeeded, until
from tests.journeys.slony_ground import LOG_TABLES, Ground, slony_ground, store
from tests.slony_cluster import SlonyCluster

pytestmark = [pytest.mark.journey, pytest.mark.slony]

CLEANUPS = 2
KILLS = 2
RACES = 1


@pytest.fixture(scope="module")
def standing(slony: SlonyCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with slony_ground(slony, tmp_path_factory.mktemp("slony")) as ground:
        yield ground


@pytest.fixture
def ground(standing: Ground) -> Iterator[Ground]:
    """The same, with every slon running again after a test that stopped one, and proved to be healthy."""
    yield standing
    standing.assert_healthy()


def test_cleanups_while_slons_replicate_leave_replication_healthy(ground: Ground) -> None:
    cluster = ground.cluster
    vias = ("NATIVE", "BUILTIN")
    with cluster.load() as load:
        load.await_committed(40)
        results = []
        for number in range(CLEANUPS):
            node, via = cluster.nodes[number % 3], vias[number % 2]
            results.append(ground.cleaned(node, via=via))
            load.await_committed(10)
    assert {result["via"] for result in results} == set(vias)
    assert sum(result["removed"]["sl_event"] for result in results) > 0


def test_health_is_silent_under_load_and_names_a_slon_that_stops(ground: Ground) -> None:
    cluster, slony = ground.cluster, ground.client.slony
    with cluster.load() as load:
        load.await_committed(20)
        healthy = slony.cluster_health(cluster.name)
    assert (healthy.status, healthy.findings) == ("OK", ()), healthy.raw
    assert sorted(node.node or 0 for node in healthy.nodes) == list(cluster.nodes)
    cluster.slons[3].stop()

    def codes() -> set[tuple[str, int | None]]:
        return {(each.code, each.node) for each in slony.cluster_health(cluster.name).findings}

    until(lambda: codes() == {("NO_OWN_SLON", 3)})
    cluster.slons[3].start()
    until(lambda: not codes())


def test_native_does_what_the_plan_says(ground: Ground) -> None:
    cluster = ground.cluster
    with cluster.load() as load:
        load.await_committed(40)
    cluster.catch_up()
    cluster.stop_slons()
    before = ground.catalog()
    plan = ground.client.slony.plan_cleanup(store(1), CleanupRequest(interval="PT0S", via="NATIVE"))
    assert ground.catalog() == before
    result = ground.cleaned(1, via="NATIVE")
    after = ground.catalog()
    assert (result["classification"], result["removed"]) == ("AS_PLANNED", plan.raw["tables"])
    gone = {name: len(rows) - len(after[name]) for name, rows in before.items() if name in result["removed"]}
    assert gone == {name: result["removed"][name] for name in gone}
    assert gone["sl_event"] > 0
    bounds = {item["origin"]: item["bound"] for item in plan.raw["origins"]}
    oldest = cluster.run(1, "select ev_origin, min(ev_seqno) from sl_event where ev_type = 'SYNC' group by 1")
    assert dict(oldest) == bounds


def test_full_switch_truncates_only_after_the_node_that_was_down_has_caught_up(ground: Ground) -> None:
    cluster = ground.cluster
    ground.end_switch()
    cluster.slons[3].stop()
    with cluster.load() as load:
        load.await_committed(30)
    job = ground.switch(1, "FULL", timeout="PT2M")
    waiting = await_job(ground.client, job.id, "WAITING")
    assert {item["kind"] for item in waiting.raw["waiting_on"]} == {"LOG_NOT_DRAINED"}
    old = ground.client.slony.log_status(store(1)).other
    held = cluster.count(1, old)
    assert held > 0
    cluster.await_confirmed(1, 2, cluster.sync(1))
    ground.cleaned(1, via="BUILTIN", log_switch="NONE", overlap="QUEUE")
    ground.cleaned(1, via="NATIVE", overlap="QUEUE")
    time.sleep(1.5)
    assert (cluster.count(1, old), ground.client.jobs.get(job.id).ended) == (held, False)
    cluster.slons[3].start()
    cluster.catch_up()
    # The oldest SYNC that is left moves by cleaning only.
    ground.cleaned(1, via="BUILTIN", log_switch="NONE", overlap="QUEUE")
    result = succeeded(ground.client, job.id)
    assert (result["outcome"], result["emptied"], cluster.count(1, old)) == ("FINISHED", old, 0)


def test_wait_times_out_while_a_node_is_down_and_succeeds_after(ground: Ground) -> None:
    cluster = ground.cluster
    cluster.slons[3].stop()
    seqno = cluster.sync(1)
    job = ground.ended(ground.wait_for(origin=1, seqno=seqno, timeout="PT2S"))
    assert (job.state, job.raw["error"]["code"]) == ("FAILED", "WAIT_TIMEOUT")
    left = [(item["origin"], item["receiver"], item["why"]) for item in (job.result or {})["outstanding"]]
    assert (1, 3, "BEHIND") in left
    one = ground.ended(ground.wait_for(origin=1, seqno=seqno, confirmed=2, timeout="PT20S"))
    assert one.state == "SUCCEEDED"
    patient = ground.wait_for(origin="ALL", timeout="PT1M")
    cluster.slons[3].start()
    result = succeeded(ground.client, patient.id)
    assert (result["is_satisfied"], result["outstanding"]) == (True, [])
    assert cluster.confirmed(1, 1, 3) >= seqno


@pytest.mark.long  # on catalogs: tests/http/test_slony_native.py, test_slony_wait.py
def test_deleted_confirmations_keep_what_they_confirmed(ground: Ground) -> None:
    cluster = ground.cluster
    cluster.slons[3].stop()
    with cluster.load() as load:
        load.await_committed(20)
    known = cluster.sync(1)  # slon may have made another by the time it is stopped
    cluster.await_confirmed(1, 2, known)
    cluster.slons[1].stop()
    cluster.run(1, "delete from sl_confirm where con_origin = 1 and con_received = 3")
    before = ground.catalog()
    refused = ground.ended(ground.clean(1, via="NATIVE"))
    assert (refused.state, refused.raw["error"]["code"]) == ("FAILED", "UNCONFIRMED_WOULD_GO")
    assert ground.catalog() == before
    vacuous = ground.ended(ground.wait_for(origin=1, seqno=known, timeout="PT1S"))
    assert [(item["receiver"], item["why"]) for item in vacuous.result["outstanding"]] == [
        (3, "NEVER_CONFIRMED")
    ]
    ground.cleaned(1, via="BUILTIN")
    after = ground.catalog()
    assert [row for row in after["sl_event"] if row[0] == 1] == [
        row for row in before["sl_event"] if row[0] == 1
    ]
    assert (after["sl_log_1"], after["sl_log_2"]) == (before["sl_log_1"], before["sl_log_2"])


@pytest.mark.long  # on catalogs: tests/http/test_slony_switches.py
def test_origin_without_a_sync_keeps_its_log(ground: Ground) -> None:
    cluster = ground.cluster
    ground.end_switch()
    cluster.slons[3].stop()
    with cluster.load() as load:
        load.await_committed(10)
        ground.switched(1, "START")
        load.await_committed(10)
    cluster.stop_slons()
    assert min(ground.log_rows().values()) > 0
    cluster.run(1, "delete from sl_event where ev_origin = 1 and ev_type = 'SYNC'")
    before = ground.catalog()
    refused = ground.ended(ground.clean(1, via="NATIVE"))
    assert (refused.state, refused.raw["error"]["code"]) == ("FAILED", "UNCONFIRMED_WOULD_GO")
    assert ground.catalog() == before
    blocked = ground.ended(ground.switch(1, "FINISH", timeout="PT0S"))
    assert (blocked.state, blocked.raw["error"]["code"]) == ("FAILED", "LOG_SWITCH_TIMEOUT")
    ground.cleaned(1, via="BUILTIN")
    after = ground.catalog()
    assert (after["sl_log_1"], after["sl_log_2"]) == (before["sl_log_1"], before["sl_log_2"])


@pytest.mark.long  # on catalogs: tests/http/test_slony_switches.py
def test_open_writer_of_the_old_log_and_an_idle_transaction_block_the_switch_by_name(ground: Ground) -> None:
    cluster = ground.cluster
    ground.end_switch()
    with cluster.load() as load:
        load.await_committed(10)
    with ground.writer() as session:
        pid = session.info.backend_pid
        job = ground.switch(1, "FULL", timeout="PT2M")
        await_job(ground.client, job.id, "WAITING")
        old = ground.client.slony.log_status(store(1))
        [blocker] = [item.raw for item in old.blockers if item.pid == pid]
        assert (blocker["application"], blocker["state"]) == ("open writer", "idle in transaction")
        assert blocker["has_lock"]
        time.sleep(1)
        ended = [ground.client.jobs.get(job.id).ended, ground.log_rows()[old.other] > 0]
        session.commit()
    assert ended == [False, True]
    cluster.catch_up()
    ground.cleaned(1, via="BUILTIN", log_switch="NONE", overlap="QUEUE")
    assert succeeded(ground.client, job.id)["emptied"] == old.other
    assert cluster.run(3, "select owner from account where id = 9000") == [("open",)]


def test_cleaners_of_both_kinds_at_once_leave_one_state(ground: Ground) -> None:
    """The program's own and Lethe's, of both ways, race for the cluster's lock."""
    cluster = ground.cluster
    with cluster.load() as load, ThreadPoolExecutor(3) as pool:
        for _ in range(RACES):
            load.await_committed(10)
            racing = [
                pool.submit(ground.clean_as_slon, 1),
                pool.submit(ground.cleaned, 1, via="NATIVE", overlap="QUEUE"),
                pool.submit(ground.cleaned, 1, via="BUILTIN", overlap="QUEUE"),
            ]
            for each in racing:
                each.result(60)
    status = cluster.log_status(1)
    rows = ground.log_rows()
    assert status in (0, 1, 2, 3)
    assert status > 1 or rows[("sl_log_2", "sl_log_1")[status]] == 0


@pytest.mark.long  # on catalogs: tests/http/test_slony_switches.py
def test_rolled_back_dry_run_is_healed_and_nothing_is_lost(ground: Ground) -> None:
    cluster = ground.cluster
    ground.end_switch()
    with cluster.load() as load:
        load.await_committed(20)
        ground.switched(1, "START")
        load.await_committed(10)
    cluster.catch_up()
    switching = cluster.log_status(1)

    def is_finished() -> bool:
        """The program lets the switch be where a slon reads the old table at that moment."""
        ground.clean_as_slon(1, commit=False)
        return cluster.log_status(1) != switching

    until(is_finished)
    status = cluster.log_status(1)
    assert (switching, status) in ((2, 0), (3, 1)), "the rows came back, the status did not"
    assert min(ground.log_rows().values()) > 0
    assert ground.client.slony.log_status(store(1)).needs_healing
    cluster.slons[3].stop()
    with cluster.load() as load:
        load.await_committed(10)
    before = ground.catalog()
    result = ground.cleaned(1, via="BUILTIN")
    assert "LOG_STATUS_HEALED" in {item["code"] for item in result["warnings"]}

    def is_over() -> bool:
        """One cleanup tries once, and lets the switch be where a slon reads the old table at that moment."""
        if cluster.log_status(1) != switching:
            return True
        ground.cleaned(1, via="BUILTIN")
        return False

    until(is_over)
    after = ground.catalog()
    active = LOG_TABLES[status]
    # What was replicated before the dry run may go; what node 3 lacks may not.
    assert (after["status"], after[active]) == ([(status,)], before[active])
    assert after[LOG_TABLES[1 - status]] == []


def test_kills_of_the_service_while_it_cleans_and_switches_lose_nothing(ground: Ground) -> None:
    source = Random(6)
    slow = {"via": "BUILTIN", "max_rows_in_tx": 5, "rows_per_s": 200, "log_switch": "NONE"}
    with ground.cluster.load() as load:
        load.await_committed(10)
        switch = ground.switch(1, "FULL", timeout="PT5M")
        for number in range(KILLS):
            load.await_committed(10)
            job = ground.clean(1, overlap="QUEUE", **(slow if number % 2 == 0 else {"via": "NATIVE"}))
            time.sleep(source.uniform(0.05, 0.8))
            ground.service.crash()
            succeeded(ground.client, job.id)
    ground.cluster.catch_up()
    ground.cleaned(1, via="BUILTIN", log_switch="NONE", overlap="QUEUE")
    result = succeeded(ground.client, switch.id)
    assert result["outcome"] in {"FINISHED", "FINISHED_ELSEWHERE"}
    assert ground.client.slony.log_status(store(1)).needs_healing is False

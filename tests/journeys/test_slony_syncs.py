"""SYNCs of Lethe at a real cluster whose slons are down: many small pieces, and nobody is lulled."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from tests.journeys.service import succeeded, until
from tests.journeys.slony_ground import Ground, slony_ground, store
from tests.slony_cluster import SlonyCluster

pytestmark = [pytest.mark.journey, pytest.mark.slony]

PIECES = 3
ROWS = 20
PIECE_S = 1.1
COMPONENT_S = 3


@pytest.fixture(scope="module")
def standing(slony: SlonyCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with slony_ground(slony, tmp_path_factory.mktemp("slony-syncs")) as ground:
        yield ground


@pytest.fixture
def ground(standing: Ground) -> Iterator[Ground]:
    """All have caught up: every slon runs again after a test that stopped one, and all are healthy."""
    yield standing
    standing.assert_healthy()


def keep_alive(ground: Ground, node: int = 1) -> dict[str, Any]:
    """What a schedule does each time that it comes."""
    job = ground.client.slony.sync_if_older(store(node), interval="PT1S")
    return succeeded(ground.client, job.id)


def work(cluster: SlonyCluster, number: int) -> None:
    cluster.run(
        1,
        "insert into movement select 1, %s * 1000 + n, 1, 'piece' from generate_series(1, %s) n",
        number,
        ROWS,
    )


def pieces(cluster: SlonyCluster, after: int) -> list[int]:
    """Rows of the log in each SYNC of node 1 above one, as node 2 has received them."""
    syncs = cluster.run(
        2,
        "select ev_seqno, ev_snapshot::text from sl_event where ev_origin = 1 and ev_type = 'SYNC'"
        " and ev_seqno >= %s order by 1",
        after,
    )
    counted = []
    for (_, before), (_, snapshot) in pairwise(syncs):
        [(rows,)] = cluster.run(
            1,
            "select count(*) from (table sl_log_1 union all table sl_log_2) l where log_origin = 1"
            " and txid_visible_in_snapshot(log_txid, %s::txid_snapshot)"
            " and not txid_visible_in_snapshot(log_txid, %s::txid_snapshot)",
            snapshot,
            before,
        )
        counted.append(int(rows))
    return counted


def await_named(ground: Ground, *wanted: tuple[str, int]) -> None:
    """Health names them, once every node could be asked; a machine that is busy may need a second look."""

    def is_named() -> bool:
        found = ground.client.slony.cluster_health(ground.cluster.name).findings
        print([(each.code, each.node, each.detail) for each in found])
        return {*wanted} <= {(each.code, each.node or 0) for each in found}

    until(is_named, timeout_s=60.0)


def test_after_a_weekend_without_slons_the_subscribers_get_many_small_syncs(ground: Ground) -> None:
    cluster = ground.cluster
    cluster.stop_slons()
    start = cluster.sync(1)
    for number in range(1, PIECES + 1):
        work(cluster, number)
        time.sleep(PIECE_S)
        made = keep_alive(ground)
        assert (made["outcome"], made["origin"], made["has_own_slon"]) == ("MADE", 1, False)
    await_named(ground, *(("NO_OWN_SLON", node) for node in cluster.nodes))
    assert cluster.differing() != []
    cluster.start_slons()
    cluster.catch_up()
    assert [rows for rows in pieces(cluster, start) if rows] == [ROWS] * PIECES
    assert cluster.differing() == []


def test_without_them_all_of_it_is_one_piece(ground: Ground) -> None:
    """What the SYNCs are for: the same work, and nobody makes any."""
    cluster = ground.cluster
    cluster.stop_slons()
    start = cluster.sync(1)
    for number in range(101, PIECES + 101):
        work(cluster, number)
    cluster.start_slons()
    cluster.catch_up()
    assert [rows for rows in pieces(cluster, start) if rows] == [ROWS * PIECES]


def test_beside_a_slon_that_makes_its_own_none_is_due(ground: Ground) -> None:
    job = ground.client.slony.sync_if_older(store(1), interval="PT1M")
    found = succeeded(ground.client, job.id)
    assert (found["outcome"], found["seqno"], found["has_own_slon"]) == ("NOT_DUE", None, True)


def test_the_origins_slon_alone_is_down_and_still_named_while_its_syncs_are_applied(ground: Ground) -> None:
    """The other slons fetch events from its database: what it wrote arrives, and nothing comes to it."""
    cluster = ground.cluster
    cluster.slons[1].stop()
    work(cluster, 200)
    time.sleep(PIECE_S)
    made = keep_alive(ground)
    assert made["outcome"] == "MADE"
    until(lambda: (cluster.confirmed(2, 1, 2) or 0) >= made["seqno"])
    assert cluster.differing()[:1] in ([], ["node 3: movement"])
    await_named(ground, ("NO_OWN_SLON", 1))


def test_a_slon_that_hangs_is_named_though_syncs_are_made(ground: Ground) -> None:
    cluster, stores = ground.cluster, ground.client.stores
    limits = {"parameters": {"health.component.age": f"PT{COMPONENT_S}S"}}
    changed = stores.update(stores.get(store(1)), limits)
    with cluster.slons[1].frozen():
        time.sleep(COMPONENT_S + 1)
        assert keep_alive(ground)["outcome"] == "MADE"
        await_named(ground, ("COMPONENT_SILENT", 1))
    stores.update(changed, {"parameters": {}})

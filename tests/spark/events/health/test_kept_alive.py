"""A node kept alive by SYNCs of Lethe is still told to be without its slon, and one that hangs too."""

from __future__ import annotations

from datetime import timedelta

import pytest

from spark.events.catalog import read_catalog
from spark.events.health.judge import judge_node
from spark.events.health.records import Severity, Thresholds
from spark.events.syncing import SyncUnit, make_due_sync
from tests.spark.events.catalogs import Catalogs, LoadedCatalog
from tests.spark.events.health.catalogs_now import freshen, look, slon_of
from tests.spark.events.test_syncing import CREATE_EVENT

OLD = (
    "update sl_event set ev_timestamp = now() - interval '2 hours' where ev_origin = 1",
    # Everybody has all of it: what is left to see is that the node itself is silent.
    "insert into sl_confirm select 1, node, 5000009000, now() from (values (2), (3)) as nodes (node)",
)
UNIT = SyncUnit("job-1", 1, "_lab.sync", timedelta(minutes=5), has_ledger=False)


@pytest.fixture
def node(catalogs: Catalogs) -> LoadedCatalog:
    """Node 1 as if it were well, but for its SYNCs: the newest is two hours old."""
    loaded = catalogs.load("fxc", 1)
    freshen(loaded)
    loaded.execute(*OLD, CREATE_EVENT)
    return loaded


def codes(node: LoadedCatalog) -> set[tuple[str, Severity, int | None]]:
    return {(each.code, each.severity, each.node) for each in judge_node(look(node), Thresholds())}


def keep_alive(node: LoadedCatalog) -> None:
    with node.connect() as conn:
        assert make_due_sync(conn, read_catalog(conn, node.cluster), UNIT).made is not None


def test_a_slon_that_is_not_connected_is_told_as_before(node: LoadedCatalog) -> None:
    gone = ("NO_OWN_SLON", Severity.CRITICAL, 1)
    assert codes(node) == {gone, ("SYNC_OVERDUE", Severity.CRITICAL, 1)}
    keep_alive(node)
    assert codes(node) == {gone}


def test_a_slon_that_hangs_is_told_as_before(node: LoadedCatalog) -> None:
    hangs = ("COMPONENT_SILENT", Severity.WARNING, 1)
    with slon_of(node, 1):
        node.execute("update sl_components set co_starttime = now() - interval '2 hours'")
        assert codes(node) == {hangs, ("SYNC_OVERDUE", Severity.CRITICAL, 1)}
        keep_alive(node)
        assert codes(node) == {hangs}

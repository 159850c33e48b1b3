"""RESENT_AFTER_PURGE: what can no longer be delivered is listed; what was lost before the purge is not."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from spark.purge.reading.inspect import inspect
from spark.purge.reading.stats import TableStats, purge_stats
from spark.purge.resent import ResentBatch, ResentReport, list_resent
from spark.purge.statements import PurgeSpec
from spark.purge.unit import run_unit
from spark.targets.connection import connect
from tests.oracles.symmetricds import CUTOFF, Place, build, session
from tests.spark.purge.outgoing_run import OutgoingRun, target_of

OLD = CUTOFF - timedelta(days=1)


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("postgresql", marks=pytest.mark.postgresql),
        pytest.param("mariadb", marks=pytest.mark.mariadb),
    ]
)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Data 1 to 9 in batches 1 to 4, two rows each; data 20 was lost before and batch 4 waits for it."""
    if request.param == "sqlite":
        found = Place(f"sqlite:///{tmp_path}/sym.db", version="3.x")
    else:
        found = Place(request.getfixturevalue(f"{request.param}_url"), version="3.x")
    data = {"table_name": "item", "event_type": "I", "trigger_hist_id": 1, "create_time": OLD}
    batch = {"node_id": "00001", "status": "OK", "create_time": OLD}
    events = [{"data_id": number, "batch_id": (number + 1) // 2} for number in range(1, 9)]
    build(
        found,
        {
            "node": [
                {"node_id": "00001", "node_group_id": "s", "external_id": "1", "sync_enabled": 1},
            ],
            "data": [{**data, "data_id": number} for number in (*range(1, 9), 30)],
            "data_event": [*events, {"data_id": 20, "batch_id": 4}],
            "outgoing_batch": [
                *({**batch, "batch_id": number} for number in (1, 2, 3, 5)),
                {**batch, "batch_id": 4, "status": "ER"},
            ],
        },
    )
    return found


def _resend(place: Place, *batches: int) -> None:
    with session(place) as peer:
        for batch in batches:
            peer.run(f"update sym_outgoing_batch set status = 'NE' where batch_id = {batch}")


def _list(place: Place, limit: int = 10, baseline: ResentReport | None = None) -> ResentReport:
    with connect(target_of(place), application_name="t") as conn:
        return list_resent(conn, (1, 29), (1, 4), limit, baseline=baseline.items if baseline else ())


def test_batches_resent_between_the_steps_are_listed_and_older_ones_are_not(place: Place) -> None:
    baseline = _list(place)
    assert baseline == ResentReport(1, (ResentBatch(4, "00001", 1, "DATA_REMOVED"),))
    run = OutgoingRun(
        place, PurgeSpec(CUTOFF if place.dialect == "postgresql" else str(CUTOFF)), ledger=False
    )
    with connect(run.target, application_name="t") as conn:
        run_unit(conn, run.unit("DATA", "data-1", 1, 29))
        _resend(place, 1)
        run_unit(conn, run.unit("EVENTS", "events-1", 1, 4))
        _resend(place, 2)
        run_unit(conn, run.unit("BATCHES", "batches-1", 1, 4))
    assert _list(place, baseline=baseline) == ResentReport(
        2, (ResentBatch(1, "00001", 2, "DATA_REMOVED"), ResentBatch(2, "00001", 0, "EVENTS_REMOVED"))
    )
    assert _list(place, limit=1, baseline=baseline).count == 2
    assert len(_list(place, limit=1, baseline=baseline).items) == 1


def test_nothing_resent_is_an_empty_list(place: Place) -> None:
    baseline = _list(place)
    OutgoingRun(place, PurgeSpec(CUTOFF if place.dialect == "postgresql" else str(CUTOFF))).run()
    assert _list(place, baseline=baseline) == ResentReport(0, ())


def test_stats_of_a_store_name_the_oldest_row_left(place: Place) -> None:
    oldest = OLD if place.dialect != "sqlite" else OLD.strftime("%Y-%m-%d %H:%M:%S.%f")
    with connect(target_of(place), application_name="t") as conn:
        found = purge_stats(conn, inspect(conn).layout)
    if place.dialect == "sqlite":
        assert found[0] == TableStats("OUTGOING", "sym_data", 1, 30, oldest, 9)
    assert [(item.table, item.min_id, item.max_id) for item in found] == [
        ("sym_data", 1, 30),
        ("sym_data_event", 1, 4),
        ("sym_outgoing_batch", 1, 5),
        ("sym_incoming_batch", None, None),
        ("sym_data_gap", None, None),
    ]
    assert [item.oldest_row_left for item in found] == [oldest, None, oldest, None, None]

"""Cleanups of a reviewed plan: `max_drift` had no effect on them, because they had none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from tests.http.problem import pointers, problem
from tests.http.service_process import ServiceProcess
from tests.http.shop import accepted, wait_for
from tests.http.slony_cleaning import clean, cleaned, plan
from tests.http.slony_nodes import NodeStore, recorded_nodes
from tests.spark.events.catalogs import Catalogs


@pytest.fixture(scope="session")
def service(sqlite_service: ServiceProcess) -> ServiceProcess:
    """One kind of metadata is enough: what is cleaned lies at the target."""
    return sqlite_service


@pytest.fixture
def node(http: httpx.Client, catalogs: Catalogs) -> NodeStore:
    """Node 1 while node 3 was down."""
    return recorded_nodes(http, catalogs, [1])[1]


@contextmanager
def suspended(node: NodeStore) -> Iterator[None]:
    """Jobs of the store wait."""
    assert node.http.post(f"{node.url}:suspend", json={"reason": "a test"}).status_code == 200
    yield
    assert node.http.post(f"{node.url}:resume").status_code == 200


def cleaned_by_somebody_else(node: NodeStore, events: int) -> None:
    """The oldest events of origin 1 go, as slon's own thread would have them go."""
    node.loaded.execute(
        "delete from sl_event where ev_origin = 1 and ev_seqno in"
        f" (select ev_seqno from sl_event where ev_origin = 1 order by ev_seqno limit {events:d})"
    )


def confirmed_since(node: NodeStore) -> None:
    """What was too young at the review is not any more."""
    node.loaded.execute("update sl_confirm set con_timestamp = con_timestamp - interval '1 day'")


@pytest.mark.parametrize(("max_drift", "holds"), [(9, False), (0.02, False), (10, True), (0.1, True)])
@pytest.mark.parametrize("more", [False, True])
def test_fewer_rows_than_max_drift_allows_are_412(
    node: NodeStore, max_drift: float, holds: bool, more: bool
) -> None:
    """Also where more could go by now than was reviewed: what came since makes up for nothing."""
    reviewed = plan(node).json()
    cleaned_by_somebody_else(node, 10)
    if more:
        confirmed_since(node)
    before = node.loaded.rows()
    asked = {"plan_id": reviewed["plan_id"], "max_drift": max_drift}
    if not holds:
        told = problem(clean(node, **asked), 412, "PLAN_NO_LONGER_HOLDS")
        assert "rows were reviewed" in told["detail"]
        assert ": 10 fewer" in told["detail"]
        assert node.loaded.rows() == before
        return
    result = cleaned(node, **asked)
    assert result["planned"] == reviewed["tables"]
    assert (result["fewer_than_planned"], result["plan_id"]) == (10, reviewed["plan_id"])
    assert result["removed"] == {**reviewed["tables"], "sl_event": reviewed["tables"]["sl_event"] - 10}


def test_the_job_counts_once_more_before_its_first_row(node: NodeStore) -> None:
    reviewed = plan(node).json()
    with suspended(node):
        job_id = accepted(clean(node, plan_id=reviewed["plan_id"], max_drift=0))
        cleaned_by_somebody_else(node, 1)
        before = node.loaded.rows()
    job = wait_for(node.http, job_id)
    assert (job["state"], job["error"]["code"]) == ("FAILED", "PLAN_NO_LONGER_HOLDS")
    assert "max_drift allows 0" in job["error"]["detail"]
    assert node.loaded.rows() == before


def test_rows_of_sessions_that_ended_since_stay(node: NodeStore) -> None:
    reviewed = plan(node).json()
    [(ended,)] = node.loaded.query("select count(*) from sl_nodelock")
    node.loaded.execute(
        "insert into sl_nodelock (nl_nodeid, nl_conncnt, nl_backendpid) values (1, 4711, 2147480000)"
    )
    result = cleaned(node, plan_id=reviewed["plan_id"], max_drift=0)
    assert result["removed"] == {**reviewed["tables"], "sl_nodelock": 0}
    assert node.loaded.query("select count(*) from sl_nodelock") == [(ended + 1,)]


def test_max_drift_is_for_plans(node: NodeStore) -> None:
    assert pointers(problem(clean(node, max_drift=1), 422, "INVALID_REQUEST")) == {"/"}

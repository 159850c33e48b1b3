"""The first few jobs of a batch were made with the stores of its token; the others as if it had no limit."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from app.jobs.family import PIECE
from tests.http.service_process import ServiceProcess
from tests.http.shop import accepted, wait_for

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def service(sqlite_service: ServiceProcess) -> ServiceProcess:
    """One kind of metadata is enough: what is refused is the same on both."""
    return sqlite_service


@pytest.fixture
def register(http: httpx.Client, roots: Path) -> Callable[[], str]:
    """Make a store of kind SQL with one table."""

    def made() -> str:
        name = f"tenant-{next(_numbers)}"
        path = roots / f"{name}.sqlite"
        with closing(sqlite3.connect(path)) as conn:
            conn.execute("create table ticket (id integer primary key, closed text)")
        answer = http.post("/v1/stores", json={"id": name, "kind": "SQL", "url": f"sqlite:///{path}"})
        assert answer.status_code == 201, answer.text
        return name

    return made


def test_no_job_of_a_batch_asks_a_store_of_another_tenant(
    http: httpx.Client,
    service: ServiceProcess,
    register: Callable[[], str],
    make_token: Callable[..., str],
) -> None:
    own, foreign = [register() for _ in range(PIECE + 2)], register()
    rows = {"kind": "ROWS", "table": "ticket", "time_column": "closed", "older_than": "P90D"}
    body = {
        "kind": "PURGE",
        "params": rows | {"replicas": [foreign], "max_replica_lag": "PT1M"},
        "stores": own,
    }
    with service.http(make_token(role="operator", stores=own)) as tenant:
        parent = accepted(tenant.post("/v1/jobs:batch", json=body))
    ended = wait_for(http, parent)
    found = ended["error"] and ended["result"]["stores"]
    assert {name: each["state"] for name, each in found.items()} == dict.fromkeys(own, "REFUSED")
    assert {each["error"]["code"] for each in found.values()} == {"STORE_FORBIDDEN"}

"""A target where another Lethe has worked: `:check` says so before a job is refused, whatever kind it is."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from spark.targets.connection import Target, connect
from spark.targets.fence import raise_fence
from spark.targets.files.control_file import ControlFile
from spark.targets.ledger import ensure_ledger
from tests.http.environments import make_environment_store
from tests.http.service_process import ServiceProcess
from tests.http.slony_nodes import recorded_nodes
from tests.je_data import unpack
from tests.spark.events.catalogs import Catalogs

FOREIGN, OWNER = 1_000_000, "job_of_another"
Made = tuple[str, Callable[[], None]]
"""A store, and what another Lethe does to its target."""


@pytest.fixture
def http(tmp_path: Path, settings: dict[str, str]) -> Iterator[httpx.Client]:
    """Of a service of its own: its epoch is raised here."""
    service = ServiceProcess(tmp_path / "service", settings=settings).start()
    with service.http() as found:
        yield found
    assert service.stop() == 0


def claim(target: Target, resource: str) -> None:
    with connect(target, application_name="test") as conn:
        assert ensure_ledger(conn)
        raise_fence(conn, resource, token=FOREIGN, owner=OWNER)


@pytest.fixture
def sql(http: httpx.Client, roots: Path) -> Made:
    file = roots / "tickets-of-two.db"
    with closing(sqlite3.connect(file)) as target, target:
        target.execute("create table if not exists ticket (id integer primary key)")
    url = f"sqlite:///{file}"
    http.post("/v1/stores", json={"id": "tickets-of-two", "kind": "SQL", "url": url}).raise_for_status()
    return "tickets-of-two", lambda: claim(Target(url), "public.rows")


@pytest.fixture
def slony(http: httpx.Client, catalogs: Catalogs) -> Made:
    node = recorded_nodes(http, catalogs, [1])[1]
    return node.id, lambda: claim(node.loaded.target, f"{node.loaded.schema}.cleanup")


@pytest.fixture
def je(http: httpx.Client, roots: Path, tmp_path: Path) -> Made:
    store = make_environment_store(http, roots, unpack("closed", tmp_path / "sample"))

    def act() -> None:
        with ControlFile.open(store.directory, create=True) as control:
            assert control.change(lambda record: record.claimed(FOREIGN)) is not None

    return store.id, act


def checked(http: httpx.Client, store: str) -> dict[str, Any]:
    found: dict[str, Any] = http.post(f"/v1/stores/{store}:check").raise_for_status().json()
    return found


def said(found: dict[str, Any]) -> list[dict[str, str]]:
    return [each for each in found["findings"] if each["code"] == "EPOCH_AHEAD"]


@pytest.mark.parametrize("kind", ["sql", "je", pytest.param("slony", marks=pytest.mark.postgresql)])
def test_a_check_says_that_another_lethe_was_there_until_the_store_is_recovered(
    http: httpx.Client, request: pytest.FixtureRequest, kind: str
) -> None:
    store, act = request.getfixturevalue(kind)
    before = checked(http, store)
    assert said(before) == []
    act()
    [finding] = said(found := checked(http, store))
    assert (found["ok"], finding["severity"]) == (False, "ERROR")
    assert str(FOREIGN) in finding["detail"]
    assert "another Lethe has worked" in finding["detail"]
    http.post(f"/v1/stores/{store}:recover").raise_for_status()
    after = checked(http, store)
    assert (after["ok"], said(after)) == (before["ok"], [])

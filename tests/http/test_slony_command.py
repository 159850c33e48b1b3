"""`lethe slony` against a service and recorded catalogs of a cluster whose node 3 was down."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from app.cli.main import main
from tests.http.service_process import ServiceProcess
from tests.http.slony_cleaning import fall_behind
from tests.http.slony_nodes import NodeStore, recorded_nodes
from tests.spark.events.catalogs import Catalogs

BASE = 5_000_000_000
Lethe = Callable[..., tuple[int, str]]
EVENT_NODES = ("--event-node", "2", "--previous-event-node", "1")


@pytest.fixture(scope="session")
def service(sqlite_service: ServiceProcess) -> ServiceProcess:
    """One kind of metadata is enough: the command sees the API alone."""
    return sqlite_service


@pytest.fixture
def nodes(http: httpx.Client, catalogs: Catalogs) -> dict[int, NodeStore]:
    return recorded_nodes(http, catalogs, [1, 2])


@pytest.fixture
def lethe(
    service: ServiceProcess, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Lethe:
    """Run a command; its exit code and what it printed on standard output."""
    monkeypatch.setenv("LETHE_URL", service.url)
    monkeypatch.setenv("LETHE_TOKEN", service.token)

    def run(*arguments: str) -> tuple[int, str]:
        code = main(["slony", *arguments])
        return int(code), capsys.readouterr().out

    return run


def cells(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if line.strip()]


def test_status_shows_who_is_behind_and_what_holds_the_logs(
    lethe: Lethe, nodes: dict[int, NodeStore]
) -> None:
    code, text = lethe("status", nodes[1].id)
    assert code == 0
    rows = cells(text)
    [first] = [row for row in rows if row[:3] == ["node", "1", str(BASE + 142)]]
    assert first[3] == "-"
    assert first[4:6] == ["1", "behind,"]
    assert "29" in first
    assert any(row[:2] == ["sl_log_2", "written"] for row in rows)
    assert any(row[:4] == ["sl_log_1", "to", "be", "emptied"] for row in rows)
    code, text = lethe("status", nodes[1].id, "--json")
    shown: dict[str, Any] = json.loads(text)
    assert (code, shown["confirmations"]["local_node"], shown["log_status"]["status"]) == (0, 1, 3)


def test_a_confirmation_ends_what_was_waited_for(lethe: Lethe, nodes: dict[int, NodeStore]) -> None:
    asked = ("wait", nodes[1].id, "--origin", "1", "--confirmed", "2")
    code, text = lethe(*asked, "--timeout", "1")
    assert code == 75
    assert ["1", str(BASE + 142), "2", str(BASE + 141), "BEHIND"] in cells(text)
    seqno = str(BASE + 142)
    code, text = lethe("confirm", nodes[1].id, "--origin", "1", "--receiver", "2", "--seqno", seqno)
    assert (code, ["changed", "yes"] in cells(text)) == (0, True)
    code, text = lethe(*asked, "--timeout", "30")
    assert (code, ["all", "have", "confirmed", "yes"] in cells(text)) == (0, True)
    code, text = lethe("event", nodes[1].id, "1", seqno)
    assert (code, ["outstanding", "3"] in cells(text)) == (0, True)
    code, text = lethe("events", nodes[1].id, "--origin", "1", "--from-seqno", seqno, "--json")
    assert (code, [each["seqno"] for each in json.loads(text)]) == (0, [BASE + 142])


def test_a_cleanup_is_planned_and_run(lethe: Lethe, nodes: dict[int, NodeStore]) -> None:
    node = nodes[1]
    before = node.loaded.rows()
    options = ("--confirmed-before", "2026-11-20T08:10:00Z", "--log-switch", "none")
    code, text = lethe("cleanup", node.id, *options, "--plan", "--json")
    plan = json.loads(text)
    assert (code, node.loaded.rows()) == (0, before)
    assert plan["tables"]["sl_event"] > 0
    code, text = lethe("cleanup", node.id, *options)
    assert code == 0
    assert ["sl_event", f"{plan['tables']['sl_event']:,}"] in cells(text)
    left = len(node.loaded.rows()["sl_event"])
    assert left == len(before["sl_event"]) - plan["tables"]["sl_event"]


def test_a_log_that_is_not_drained_is_not_emptied(lethe: Lethe, nodes: dict[int, NodeStore]) -> None:
    fall_behind(nodes[1])
    code, text = lethe("switch-log", nodes[1].id, "--action", "FINISH", "--timeout", "0")
    assert code == 75
    assert ["log", "switch", "TIMED_OUT"] in cells(text)
    assert nodes[1].loaded.query("select count(*) > 0 from sl_log_1") == [(True,)]


def test_ready_tells_by_its_exit_code_whether_slonik_would_wait(
    lethe: Lethe, nodes: dict[int, NodeStore]
) -> None:
    code, text = lethe("ready", "SUBMIT_TO_OTHER_NODE", nodes[1].id, *EVENT_NODES)
    assert (code, text.strip()) == (0, "READY: SUBMIT_TO_OTHER_NODE may be submitted.")
    code, text = lethe("ready", "SUBSCRIBE_SET", nodes[1].id, "--provider", "2", "--wait", "--timeout", "1")
    assert code == 75
    assert text.startswith("NOT READY")
    assert ["3", "NOT_REGISTERED"] in [row[:2] for row in cells(text)]

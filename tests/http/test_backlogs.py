"""What waits at a SymmetricDS store over HTTP and by the command: as the last check saw it, nobody else's."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import httpx
import pytest

from app.cli.main import main
from tests.http.problem import problem
from tests.http.service_process import ServiceProcess
from tests.http.shop import Shop
from tests.http.slony_nodes import recorded_nodes
from tests.spark.events.catalogs import Catalogs

MakeShop = Callable[..., Shop]


@pytest.fixture(scope="session")
def service(sqlite_service: ServiceProcess) -> ServiceProcess:
    """One kind of metadata is enough: tests/app/purge/test_backlog_looks.py has both."""
    return sqlite_service


def counted(shop: Shop) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(shop.path)) as target:
        return target.execute(
            "select node_id, channel_id, count(*), min(batch_id) from sym_outgoing_batch"
            " where status not in ('OK', 'IG') group by 1, 2 order by 4, 1, 2"
        ).fetchall()


def test_backlog_is_what_the_last_check_saw(
    http: httpx.Client, make_shop: MakeShop, catalogs: Catalogs
) -> None:
    shop = make_shop(parameters={"store.check.period": "PT0S"})
    url = f"/v1/stores/{shop.id}/backlog"
    empty = http.get(url).json()
    assert (empty["status"], empty["checked_at"], empty["pairs"]) == ("UNKNOWN", None, [])
    assert http.post(f"/v1/stores/{shop.id}:check").status_code == 200
    found = http.get(url).json()
    pairs = [
        (each["node"], each["channel"], each["batches"], each["oldest_batch"]) for each in found["pairs"]
    ]
    assert pairs == counted(shop) != []
    assert found["batches"] == sum(each[2] for each in pairs)
    assert [each["batches"] for each in found["samples"]] == [found["batches"]]
    node, channel = pairs[0][:2]
    some = http.get(url, params={"node": node, "channel": channel, "since": "2000-01-01T00:00:00Z"}).json()
    assert [(each["node"], each["channel"]) for each in some["pairs"]] == [(node, channel)]
    assert [each["node"] for each in some["holders"]] == [node]
    unknown = problem(http.get(url, params={"node": "nobody"}), 404, "NODE_NOT_FOUND")
    assert "node nobody is not in sym_node" in unknown["detail"]
    assert node in unknown["detail"]
    problem(http.get(url, params={"since": "yesterday"}), 422, "INVALID_REQUEST")
    problem(http.get("/v1/stores/nobody/backlog"), 404, "STORE_NOT_FOUND")
    slony = recorded_nodes(http, catalogs, [1])[1]
    problem(slony.get("backlog"), 409, "STORE_KIND_WRONG")


def test_backlog_needs_the_scope_and_the_store(
    http: httpx.Client, make_shop: MakeShop, make_token: Callable[..., str], service: ServiceProcess
) -> None:
    shop, others = make_shop(), make_shop()
    with service.http(make_token("jobs:read")) as other:
        problem(other.get(f"/v1/stores/{shop.id}/backlog"), 403, "SCOPE_MISSING")
    with service.http(make_token("stores:read", stores=[others.id])) as other:
        problem(other.get(f"/v1/stores/{shop.id}/backlog"), 403, "STORE_FORBIDDEN")


@pytest.fixture
def commanded(http: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command asks the service of these tests."""
    monkeypatch.setenv("LETHE_URL", str(http.base_url))
    monkeypatch.setenv("LETHE_TOKEN", http.headers["authorization"].removeprefix("Bearer "))


@pytest.mark.usefixtures("commanded")
def test_command_tells_a_monitor_by_its_exit_code(
    http: httpx.Client,
    make_shop: MakeShop,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shop = make_shop(parameters={"store.check.period": "PT0S"})
    assert main(["symmetricds", "backlog", shop.id]) == 3
    assert "BACKLOG UNKNOWN - nobody has looked yet" in capsys.readouterr().out
    http.post(f"/v1/stores/{shop.id}:check")
    status = http.get(f"/v1/stores/{shop.id}/backlog").json()["status"]
    assert main(["symmetricds", "backlog", shop.id]) == {"OK": 0, "WARNING": 1}[status]
    said = capsys.readouterr().out
    assert f"BACKLOG {status} - " in said
    assert "|" in said.splitlines()[0]
    monkeypatch.setenv("LETHE_URL", "http://127.0.0.1:1")
    assert main(["symmetricds", "backlog", shop.id]) == 3


@pytest.mark.usefixtures("commanded")
def test_typo_in_a_check_is_unknown_and_names_what_is_known(
    http: httpx.Client, make_shop: MakeShop, capsys: pytest.CaptureFixture[str]
) -> None:
    shop = make_shop(parameters={"store.check.period": "PT0S"})
    with closing(sqlite3.connect(shop.path)) as target, target:
        target.execute(
            "insert into sym_node (node_id, node_group_id, external_id, sync_enabled)"
            " values ('quiet', 'g', 'q', 1)"
        )
        target.execute("insert into sym_channel (channel_id) values ('spare')")
    http.post(f"/v1/stores/{shop.id}:check")
    command = ["symmetricds", "backlog", shop.id]
    assert main([*command, "--node", "store-17", "--channel", "sails"]) == 3
    said = capsys.readouterr().out
    assert "BACKLOG UNKNOWN - NODE_NOT_FOUND: node store-17 is not in sym_node" in said
    assert "channel sails is not in sym_channel" in said
    assert main([*command, "--channel", "sails"]) == 3
    said = capsys.readouterr().out
    assert "BACKLOG UNKNOWN - CHANNEL_NOT_FOUND: channel sails" in said
    assert "spare" in said
    assert main([*command, "--node", "quiet", "--channel", "spare"]) == 0
    assert main([*command, "--node", "-1"]) in (0, 1)
    assert "BACKLOG UNKNOWN" not in capsys.readouterr().out
    for node, channel, *_ in counted(shop):
        assert main([*command, "--node", node, "--channel", channel]) in (0, 1)

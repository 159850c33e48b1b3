"""The health of nodes and clusters over HTTP: recorded catalogs as if they had been recorded this moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import pytest

from app.cli.main import main
from tests.http.problem import problem
from tests.http.service_process import ServiceProcess
from tests.http.shop import Shop
from tests.http.slony_nodes import NodeStore, new_name, recorded_nodes, register
from tests.spark.events.catalogs import Catalogs, Templates
from tests.spark.events.health.catalogs_now import freshen, slon_of

Cluster = dict[int, NodeStore]
NOBODY = "postgresql+psycopg://nobody@127.0.0.1:9/none"


@pytest.fixture(scope="session")
def service(sqlite_service: ServiceProcess) -> ServiceProcess:
    """One kind of metadata is enough: a look is at the target."""
    return sqlite_service


@pytest.fixture(scope="module")
def nodes(service: ServiceProcess, slony_templates: Templates) -> Iterator[Cluster]:
    """Three nodes that have caught up, their slons connected; whoever changes one takes it back.

    The order of their stores' ids is not that of their numbers.
    """
    catalogs = Catalogs(slony_templates)
    with service.http() as http, ExitStack() as slons:
        slons.callback(catalogs.drop)
        found = recorded_nodes(http, catalogs, nodes=(3, 1, 2), state="fxc")
        for number, node in found.items():
            slons.enter_context(slon_of(node.loaded, number))
        yield found


@pytest.fixture
def cluster(nodes: Cluster) -> Cluster:
    """As if they had been recorded this moment."""
    for node in nodes.values():
        freshen(node.loaded)
    return nodes


@contextmanager
def kept(node: NodeStore, *tables: str) -> Iterator[None]:
    """What becomes of these tables is taken back."""
    node.loaded.execute(*(f"create table kept_{table} as table {table}" for table in tables))
    yield
    node.loaded.execute(
        *(f"delete from {table}" for table in tables),
        *(f"insert into {table} table kept_{table}" for table in tables),
        *(f"drop table kept_{table}" for table in tables),
    )


@contextmanager
def slon_ended(node: NodeStore) -> Iterator[None]:
    """The node's slon is not connected any more."""
    with kept(node, "sl_nodelock", "sl_components"):
        node.loaded.execute("delete from sl_nodelock where nl_conncnt = 0", "delete from sl_components")
        yield


def name_of(cluster: Cluster) -> str:
    return cluster[1].loaded.cluster


def of_cluster(http: httpx.Client, name: str) -> dict[str, Any]:
    answer = http.get("/v1/slony-health", params={"cluster": name})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def codes(found: dict[str, Any]) -> list[tuple[str, str, int | None]]:
    return [(each["code"], each["severity"], each["node"]) for each in found["findings"]]


def gauges(http: httpx.Client, store: str) -> dict[str, float]:
    """The store's gauges of its health: `name{labels}` to value."""
    found = {}
    for line in http.get("/metrics").text.splitlines():
        if line.startswith("lethe_slony_") and f'store="{store}"' in line:
            name, value = line.rsplit(" ", 1)
            found[name.replace(f'store="{store}"', "").replace("{,", "{").replace(",}", "}")] = float(value)
    return found


def test_a_cluster_that_is_well_is_ok(http: httpx.Client, cluster: Cluster) -> None:
    found = of_cluster(http, name_of(cluster))
    assert (found["cluster"], found["status"], found["findings"]) == (name_of(cluster), "OK", [])
    assert [(each["node"], each["status"]) for each in found["nodes"]] == [(1, "OK"), (2, "OK"), (3, "OK")]
    [first, *_] = found["nodes"]
    assert (first["store"], first["as_of"] is not None) == (cluster[1].id, True)
    assert first["lag"].startswith("PT")
    assert {"sl_log_1", "sl_log_2", "sl_seqlog", "sl_event", "sl_confirm"} >= first["table_rows"].keys()
    one = cluster[2].get("slony-health").json()
    assert (one["status"], [each["store"] for each in one["nodes"]]) == ("OK", [cluster[2].id])


def test_each_fault_of_a_cluster_is_told_once_with_all_who_see_it(
    http: httpx.Client, cluster: Cluster
) -> None:
    with kept(cluster[1], "sl_listen"), kept(cluster[2], "sl_listen"), slon_ended(cluster[3]):
        for node in (1, 2):
            cluster[node].loaded.execute("delete from sl_listen where li_origin = 3 and li_receiver = 2")
        before = {number: node.loaded.rows() for number, node in cluster.items()}
        found = of_cluster(http, name_of(cluster))
        assert {number: node.loaded.rows() for number, node in cluster.items()} == before
    assert (found["status"], codes(found)) == (
        "CRITICAL",
        [("NO_OWN_SLON", "CRITICAL", 3), ("LISTEN_MISSING", "WARNING", 2)],
    )
    seen = [each["seen_by"] for each in found["findings"]]
    assert seen == [[cluster[3].id], [cluster[1].id, cluster[2].id]]
    assert [each["status"] for each in found["nodes"]] == ["WARNING", "WARNING", "CRITICAL"]


def test_a_node_that_does_not_answer_is_named(http: httpx.Client, cluster: Cluster) -> None:
    gone = register(http, url=NOBODY, cluster=name_of(cluster))
    found = of_cluster(http, name_of(cluster))
    assert (found["status"], codes(found)) == ("CRITICAL", [("NODE_AWAY", "CRITICAL", None)])
    assert gone.id in found["findings"][0]["detail"]
    far = register(http, url=NOBODY, cluster=name_of(cluster), runs_on=["far"])
    found = of_cluster(http, name_of(cluster))
    assert ("NODE_NOT_ASKED", "UNKNOWN", None) in codes(found)
    assert "RUNS_ON_ELSEWHERE" in str(found["findings"])
    for store in (gone, far):  # nothing is known of a cluster of which nobody answers
        alone = store.get("slony-health").json()
        assert (alone["status"], alone["nodes"][0]["as_of"]) == ("UNKNOWN", None)
    assert gauges(http, gone.id)["lethe_slony_health{}"] == 3.0
    for store in (gone, far):
        remove(http, store)


def remove(http: httpx.Client, store: NodeStore) -> None:
    match = {"If-Match": http.get(store.url).headers["etag"]}
    assert http.delete(store.url, headers=match).status_code == 204


def test_a_node_that_is_no_store_is_named(http: httpx.Client, catalogs: Catalogs) -> None:
    [node] = recorded_nodes(http, catalogs, [1], state="fxc").values()
    with slon_of(node.loaded, 1):
        freshen(node.loaded)
        found = of_cluster(http, node.loaded.cluster)
        alone = node.get("slony-health").json()
    assert (found["status"], codes(found)) == (
        "UNKNOWN",
        [("NODE_WITHOUT_STORE", "UNKNOWN", 2), ("NODE_WITHOUT_STORE", "UNKNOWN", 3)],
    )
    assert alone["status"] == "OK"


def test_a_copy_of_a_node_is_named_and_not_taken_for_it(
    http: httpx.Client, cluster: Cluster, catalogs: Catalogs
) -> None:
    """The paths of these catalogs lead to a server that was thrown away: they do not tell which it is."""
    copied = catalogs.load("fxc", 3, cluster=name_of(cluster))
    copy = register(http, url=copied.url, cluster=name_of(cluster))
    found = of_cluster(http, name_of(cluster))
    remove(http, copy)
    assert {(each["code"], *each["seen_by"]) for each in found["findings"]} == {
        ("NODE_COPIED", copy.id),
        ("NODE_COPIED", cluster[3].id),
    }
    assert [each["as_of"] is None for each in found["nodes"] if each["node"] == 3] == [True, True]


def test_the_limits_are_the_stores_parameters(http: httpx.Client, cluster: Cluster) -> None:
    node = cluster[1]
    node.loaded.execute("analyze sl_log_2")
    assert node.get("slony-health").json()["status"] == "OK"
    store = http.get(node.url)
    limits = {"health.log.rows": 10, "health.sync.age": "PT0S"}
    match = {"If-Match": store.headers["etag"]}
    changed = http.patch(node.url, json={"parameters": limits}, headers=match)
    assert changed.status_code == 200, changed.text
    found = node.get("slony-health").json()
    match = {"If-Match": changed.headers["etag"]}
    assert http.patch(node.url, json={"parameters": {}}, headers=match).status_code == 200
    assert (found["status"], set(codes(found))) == ("WARNING", {("LOG_TABLE_LARGE", "WARNING", 1)})
    for large in found["findings"]:
        assert (large["limit"], large["unit"], large["measured"] > 10) == (10.0, "ROWS", True)


def test_checks_and_metrics_tell_the_same(http: httpx.Client, cluster: Cluster) -> None:
    node = cluster[1]
    with kept(node, "sl_event"):
        node.loaded.execute(
            "update sl_event set ev_timestamp = now() - interval '31 minutes' where ev_origin = 2"
        )
        check = node.check()
        alone = node.get("slony-health").json()
    assert (alone["status"], codes(alone)) == ("WARNING", [("EVENTS_STALE", "WARNING", 2)])
    [found] = [each for each in check["findings"] if each["code"] == "EVENTS_STALE"]
    assert (found["severity"], check["ok"]) == ("WARNING", True)
    assert "from node 2 the newest event is 31 min old" in found["detail"]
    told = gauges(http, node.id)
    assert told["lethe_slony_health{}"] == 1.0
    assert told['lethe_slony_finding{code="EVENTS_STALE",node="2",severity="WARNING"}'] == 1.0
    assert told['lethe_slony_event_age_seconds{origin="2"}'] == pytest.approx(1_860, abs=30)
    assert told["lethe_slony_health_timestamp_seconds{}"] > 1.6e9
    assert node.get("slony-health").json()["status"] == "OK"
    assert [name for name in gauges(http, node.id) if name.startswith("lethe_slony_finding")] == []


def test_who_asks_sees_only_stores_of_its_own(
    service: ServiceProcess,
    http: httpx.Client,
    cluster: Cluster,
    shop: Shop,
    make_token: Callable[..., str],
) -> None:
    name = name_of(cluster)
    with service.http(make_token("stores:read", stores=[cluster[1].id])) as own:
        found = of_cluster(own, name)
        assert ([each["node"] for each in found["nodes"]], found["status"]) == ([1], "OK")
        problem(own.get(f"{cluster[2].url}/slony-health"), 403, "STORE_FORBIDDEN")
    with service.http(make_token("stores:read", stores=["another"])) as other:
        problem(other.get("/v1/slony-health", params={"cluster": name}), 404, "CLUSTER_NOT_FOUND")
    problem(http.get("/v1/slony-health", params={"cluster": new_name()}), 404, "CLUSTER_NOT_FOUND")
    problem(http.get("/v1/slony-health"), 422, "INVALID_REQUEST")
    problem(http.get(f"/v1/stores/{shop.id}/slony-health"), 409, "STORE_KIND_WRONG")


def test_the_command_is_a_plugin_of_monitors(
    service: ServiceProcess,
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("LETHE_URL", service.url)
    monkeypatch.setenv("LETHE_TOKEN", service.token)

    def health(*arguments: str) -> tuple[int, list[str]]:
        code = main(["slony", "health", *arguments])
        return int(code), capsys.readouterr().out.splitlines()

    code, [line] = health("--cluster", name_of(cluster))
    assert (code, line.split(" - ")[0]) == (0, "SLONY OK")
    words, _, figures = line.partition(" | ")
    assert "3 node(s) asked, nothing is wrong" in words
    assert f"{cluster[1].id}_lag=" in figures
    with slon_ended(cluster[3]):
        code, [line, more] = health("--cluster", name_of(cluster))
    assert (code, line.split(" - ")[0]) == (2, "SLONY CRITICAL")
    assert more.startswith(f"CRITICAL NO_OWN_SLON node 3 (seen by {cluster[3].id}): the slon of node 3")
    with kept(cluster[1], "sl_listen"):
        cluster[1].loaded.execute("delete from sl_listen where li_origin = 3 and li_receiver = 2")
        assert health(cluster[1].id)[0] == 1

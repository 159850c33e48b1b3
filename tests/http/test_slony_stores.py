"""Stores of kind SLONY: registered, changed, looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from typing import Any

import httpx
import pytest

from spark.targets.fence import raise_fence
from spark.targets.ledger import ensure_ledger
from tests.http.metadata_rows import MetadataRows
from tests.http.problem import problem
from tests.http.service_process import ServiceProcess
from tests.http.slony_nodes import NodeStore, new_name, recorded_nodes, register
from tests.spark.events.catalogs import Catalogs
from tests.spark.events.health.catalogs_now import freshen

URL = "postgresql+psycopg://slony@127.0.0.1:5432/node1"


@pytest.fixture(scope="session")
def service(sqlite_service: ServiceProcess) -> ServiceProcess:
    """One kind of metadata is enough: a check looks at the target."""
    return sqlite_service


@pytest.fixture
def node(http: httpx.Client, catalogs: Catalogs) -> NodeStore:
    return recorded_nodes(http, catalogs, [1])[1]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"cluster": ...}, "INVALID_REQUEST"),
        ({"cluster": None}, "INVALID_REQUEST"),
        ({"cluster": ""}, "INVALID_REQUEST"),
        ({"cluster": 'a"b'}, "INVALID_REQUEST"),
        ({"cluster": " lab"}, "INVALID_REQUEST"),
        ({"cluster": "x" * 63}, "INVALID_REQUEST"),
        ({"url": ...}, "INVALID_REQUEST"),
        ({"url": "sqlite:////tmp/x.db"}, "INVALID_REQUEST"),
        ({"url": "mysql+pymysql://u@127.0.0.1/x"}, "INVALID_REQUEST"),
        ({"url": "postgresql+psycopg://u:secret@127.0.0.1/x"}, "INVALID_REQUEST"),
        ({"url": "postgresql+psycopg://u@db.example/x"}, "HOST_NOT_ALLOWED"),
        ({"schema": "_lab"}, "INVALID_REQUEST"),
        ({"table_prefix": "sl_"}, "INVALID_REQUEST"),
        ({"rid": 1}, "INVALID_REQUEST"),
        ({"kind": "SYMMETRICDS"}, "INVALID_REQUEST"),
        ({"parameters": {"purge.retention.minutes": 60}}, "PARAMETER_SCOPE_INVALID"),
    ],
)
def test_what_makes_no_node_is_refused(
    http: httpx.Client, metadata: MetadataRows, fields: dict[str, Any], code: str
) -> None:
    body = {"id": "bad-node", "kind": "SLONY", "cluster": "lab", "url": URL} | fields
    with metadata.unchanged():
        answer = http.post("/v1/stores", json={name: value for name, value in body.items() if value != ...})
        problem(answer, 422, code)


def test_a_node_is_shown_with_its_cluster_and_without_other_kinds_fields(http: httpx.Client) -> None:
    node = register(http, url=URL, cluster="My Lab-1")
    body = http.get(node.url).json()
    assert (body["kind"], body["cluster"], body["url"]) == ("SLONY", "My Lab-1", URL)
    assert {body[name] for name in ("schema", "table_prefix", "time_zone", "path", "rid")} == {None}
    assert node.id in [each["id"] for each in http.get("/v1/stores?kind=SLONY&page_size=500").json()["items"]]


def test_the_cluster_of_a_store_is_part_of_its_target(http: httpx.Client, node: NodeStore) -> None:
    assert node.check()["identity"]
    before = http.get(node.url)
    assert before.json()["target_identity"]
    changed = http.patch(node.url, json={"cluster": "another"}, headers={"If-Match": before.headers["etag"]})
    assert (changed.status_code, changed.json()["cluster"]) == (200, "another")
    assert changed.json()["target_identity"] is None
    problem(node.get("events"), 409, "UNKNOWN_CLUSTER")
    match = {"If-Match": changed.headers["etag"]}
    for change in ({"cluster": None}, {"cluster": 'x"'}, {"rid": 7}, {"schema": "_lab"}, {"mode": "LIVE"}):
        problem(http.patch(node.url, json=change, headers=match), 422, "INVALID_REQUEST")
    away = {"url": "mysql+pymysql://u@127.0.0.1/r"}
    problem(http.patch(node.url, json=away, headers=match), 422, "TARGET_URL_INVALID")
    assert http.get(node.url).json() | {"warnings": []} == changed.json()


def test_a_cluster_is_no_field_of_another_kind(http: httpx.Client) -> None:
    body = {"id": "bad-replica", "kind": "REPLICA", "rid": 1, "url": URL, "cluster": "lab"}
    problem(http.post("/v1/stores", json=body), 422, "INVALID_REQUEST")


def codes(check: dict[str, Any]) -> dict[str, str]:
    return {item["code"]: item["severity"] for item in check["findings"]}


def details(check: dict[str, Any], code: str) -> str:
    return next(item["detail"] for item in check["findings"] if item["code"] == code)


def test_a_check_tells_what_a_recorded_catalog_is(http: httpx.Client, node: NodeStore) -> None:
    freshen(node.loaded)  # else it is a cluster that has stood still since it was recorded
    before = node.loaded.rows()
    check = node.check()
    assert (check["ok"], check["reachable"]) == (True, True)
    assert check["layout"] == "Slony-I, functions not installed, node 1 of 3"
    assert codes(check) == {"FUNCTIONS_MISSING": "INFO", "NO_SLON": "WARNING"}
    assert check["can"] == ["READ_EVENTS", "WAIT", "PLAN_CLEANUP", "CONFIRM", "CLEANUP_BUILTIN", "LOG_SWITCH"]
    found = check["slony"]
    assert (found["cluster"], found["version"], found["local_node"]) == (node.loaded.cluster, None, 1)
    assert [(each["id"], each["is_active"], each["has_failed"]) for each in found["nodes"]] == [
        (1, True, False),
        (2, True, False),
        (3, True, False),
    ]
    pairs = [(server, client) for server in (1, 2, 3) for client in (1, 2, 3) if server != client]
    assert [(each["server"], each["client"]) for each in found["paths"]] == pairs
    assert (found["has_functions"], found["slons"], found["log_status"]) == (False, [], 3)
    oldest = min(datetime.fromisoformat(row[2]) for row in before["sl_event"])
    assert datetime.fromisoformat(found["oldest_event_at"]) == oldest
    assert {size["table"] for size in check["sizes"]} >= {"sl_event", "sl_confirm", "sl_log_1", "sl_log_2"}
    assert check["parameters"] == {"local_node": 1}
    assert "conninfo" not in str(check)
    assert "dbname" not in str(check)
    assert http.get(node.url).json()["target_identity"] == check["identity"]
    assert node.loaded.rows() == before


def test_a_check_names_what_holds_events_and_logs_back(node: NodeStore) -> None:
    node.loaded.execute(
        "delete from sl_confirm where con_origin = 1 and con_received = 3",
        "update sl_node set no_active = false where no_id = 2",
        "delete from sl_subscribe",
        "delete from sl_listen",
        "delete from sl_path where pa_client = 3",
        "delete from sl_event where ev_origin = 1 and ev_type = 'SYNC'",
    )
    check = node.check()
    assert check["ok"] is True
    found = codes(check)
    expected = {
        "NEVER_CONFIRMED": "WARNING",
        "NODE_INACTIVE": "INFO",
        "NO_PATH": "WARNING",
        "ORIGIN_WITHOUT_SYNC": "WARNING",
    }
    assert expected.items() <= found.items()
    assert details(check, "NEVER_CONFIRMED").startswith("these nodes have never confirmed any event: 3 of 1;")


def test_a_check_finds_a_log_that_counts_as_clean_and_is_not(node: NodeStore) -> None:
    node.loaded.execute("select setval('sl_log_status', 1)")
    check = node.check()
    assert codes(check)["LOG_STATUS_WRONG"] == "WARNING"
    assert "sl_log_1" in details(check, "LOG_STATUS_WRONG")


@contextmanager
def writing(node: NodeStore) -> Iterator[int]:
    """A session that has written into a log table and stays idle in its transaction; its pid."""
    with closing(node.loaded.raw(autocommit=False)) as raw:
        raw.execute("set application_name = 'forgotten'")
        raw.execute("insert into sl_seqlog values (1, 1, 1, 1)")
        raw.execute("select count(*) from sl_log_1")
        yield raw.info.backend_pid
        raw.rollback()


def test_a_check_shows_who_is_in_a_transaction_and_does_not_blame_the_usual_work(node: NodeStore) -> None:
    with writing(node) as pid:
        check = node.check()
    assert "LOG_SWITCH_HELD_BACK" not in codes(check)  # of so little age it is no fault
    [session] = [each for each in check["slony"]["sessions"] if each["pid"] == pid]
    assert (session["application"], session["state"], session["has_lock"]) == (
        "forgotten",
        "idle in transaction",
        True,
    )


def test_a_check_names_the_rights_that_a_reader_lacks(
    service: ServiceProcess, http: httpx.Client, node: NodeStore, make_token: Callable[..., str]
) -> None:
    role = new_name("reader").replace("-", "_")
    schema = f'"{node.loaded.schema}"'
    url = httpx.URL(node.loaded.url.replace("postgresql+psycopg", "http"))
    node.loaded.execute(f"create role {role} login")
    try:
        place = f"postgresql+psycopg://{role}@{url.host}:{url.port}{url.path}"
        limited = register(http, url=place, cluster=node.loaded.cluster)
        nothing = limited.check()
        assert (nothing["ok"], nothing["can"], nothing["slony"]) == (False, [], None)
        assert codes(nothing)["NO_READ"] == "ERROR"
        node.loaded.execute(
            f"grant usage on schema {schema} to {role}",
            f"grant select on all tables in schema {schema} to {role}",
            f"grant select on all sequences in schema {schema} to {role}",
        )
        reading = limited.check()
        assert (reading["ok"], reading["can"]) == (True, ["READ_EVENTS", "WAIT", "PLAN_CLEANUP"])
        found = codes(reading)
        assert {"NO_CONFIRM", "NO_CLEANUP", "NO_LOG_SWITCH", "SESSIONS_HIDDEN"} <= found.keys()
        assert {"table": "sl_confirm", "right": "INSERT"} in reading["permissions_missing"]
        assert "INSERT on sl_confirm" in details(reading, "NO_CONFIRM")
        node.check()
        assert codes(limited.check())["SAME_NODE"] == "WARNING"
        with service.http(make_token("stores:read", stores=[limited.id])) as reader:
            seen = reader.post(f"/v1/stores/{limited.id}:check").json()
        assert details(seen, "SAME_NODE").startswith("store (not shown to this token) is the same node")
        assert f"store {node.id}" not in str(seen)
    finally:
        node.loaded.execute(f"drop owned by {role}", f"drop role {role}")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ("select setval('sl_local_node_id', -1)", "NODE_UNINITIALISED"),
        ("drop table sl_confirm", "CATALOG_INCOMPLETE"),
    ],
)
def test_a_check_of_half_a_catalog_is_an_error(node: NodeStore, change: str, code: str) -> None:
    node.loaded.execute(change)
    check = node.check()
    assert (check["ok"], check["reachable"], codes(check), check["can"]) == (False, True, {code: "ERROR"}, [])


def test_a_check_of_what_is_no_cluster_is_an_error(
    http: httpx.Client, node: NodeStore, postgresql_url: str
) -> None:
    plain = register(http, url=postgresql_url, cluster="lab").check()
    assert (plain["ok"], plain["reachable"], codes(plain)) == (False, True, {"NOT_A_SLONY_CLUSTER": "ERROR"})
    other = register(http, url=node.loaded.url, cluster="Nobody").check()
    assert codes(other) == {"UNKNOWN_CLUSTER": "ERROR"}
    assert node.loaded.cluster in details(other, "UNKNOWN_CLUSTER")
    gone = register(http, url="postgresql+psycopg://nobody@127.0.0.1:9/none", cluster="lab").check()
    assert (gone["reachable"], codes(gone)) == (False, {"TARGET_UNREACHABLE": "ERROR"})
    elsewhere = register(http, url=URL, cluster="lab", runs_on=["far"]).check()
    assert (elsewhere["ok"], codes(elsewhere)) == (True, {"RUNS_ON_ELSEWHERE": "INFO"})


def test_recovering_a_node_that_nobody_has_written_to_changes_nothing(node: NodeStore) -> None:
    before = node.loaded.rows()
    answer = node.http.post(f"{node.url}:recover")
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert (body["epoch_after"], body["foreign_jobs"]) == (body["epoch_before"], [])
    assert node.loaded.rows() == before


def test_recovering_a_node_raises_our_epoch_above_its_fence(node: NodeStore) -> None:
    ours = node.http.post(f"{node.url}:recover").json()["epoch_after"]
    with node.loaded.connect() as conn:
        assert ensure_ledger(conn)
        # The other tests go on with this epoch: no more than is needed.
        raise_fence(conn, f"{node.loaded.schema}.cleanup", token=ours + 100, owner="job_of_a_lost_future")
    body = node.http.post(f"{node.url}:recover").json()
    assert body["epoch_before"] < ours + 100 <= body["epoch_after"]
    again = node.http.post(f"{node.url}:recover").json()
    assert again["epoch_after"] == again["epoch_before"] >= body["epoch_after"]


@pytest.mark.parametrize(
    ("path", "resource", "body"),
    [
        ("event-cleanups", "cleanup", {"interval": "PT0S"}),
        ("log-switches", "log_switch", {"action": "START", "timeout": "PT0S"}),
    ],
)
def test_a_node_with_a_greater_epoch_is_refused_at_submission_until_recovered(
    node: NodeStore, path: str, resource: str, body: dict[str, Any]
) -> None:
    ours = node.http.post(f"{node.url}:recover").json()["epoch_after"]
    with node.loaded.connect() as conn:
        assert ensure_ledger(conn)
        name = f"{node.loaded.schema}.{resource}"
        raise_fence(conn, name, token=ours + 100, owner="job_of_a_lost_future")
    before = node.loaded.rows()
    refused = problem(node.http.post(f"{node.url}/{path}", json=body), 409, "EPOCH_AHEAD")
    assert f"fence of {name} is at {ours + 100}" in refused["detail"]
    assert "lethe recover" in refused["detail"]
    assert (node.get(path).json()["items"], node.loaded.rows()) == ([], before)
    node.http.post(f"{node.url}:recover")
    assert node.http.post(f"{node.url}/{path}", json=body).status_code == 202


def test_a_plan_writes_nothing_and_needs_no_epoch(node: NodeStore) -> None:
    ours = node.http.post(f"{node.url}:recover").json()["epoch_after"]
    with node.loaded.connect() as conn:
        assert ensure_ledger(conn)
        raise_fence(conn, f"{node.loaded.schema}.cleanup", token=ours + 100, owner="job_of_a_lost_future")
    planned = node.http.post(f"{node.url}/event-cleanups?validate_only=true", json={})
    assert planned.status_code in (200, 202), planned.text
    node.http.post(f"{node.url}:recover")

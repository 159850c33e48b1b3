"""`/slony-changes` of a real cluster: a reader with the feed alone holds what a real subscriber holds."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from typing import Any

import httpx
import pyarrow as pa
import pytest
from lethe_client import Conflict, Lethe

from tests.http.problem import problem
from tests.http.service_process import ServiceProcess
from tests.http.slony_nodes import NodeStore, new_name, register
from tests.slony_cluster import SlonyCluster
from tests.slony_feed import NaiveSubscriber, content

ARROW = "application/vnd.apache.arrow.stream"
SHORT_S = 4.0
HOUR_S = 3_600.0


@pytest.fixture(scope="session")
def service(sqlite_service: ServiceProcess) -> ServiceProcess:
    """One kind of metadata is enough: changes come from the target."""
    return sqlite_service


@pytest.fixture
def node(http: httpx.Client, slony: SlonyCluster) -> NodeStore:
    """Node 1, the origin."""
    return register(http, url=slony.url(1), cluster=slony.name)


def lines(answer: httpx.Response) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def begin(slony: SlonyCluster) -> NaiveSubscriber:
    """A subscriber at a moment at which nothing is under way, with the SYNC of that moment."""
    slony.catch_up()
    found = NaiveSubscriber.at(slony, 1)
    found.after = slony.sync(1)
    return found


def read_page(node: NodeStore, reader: NaiveSubscriber, **params: Any) -> int:
    """Take one answer; how many units it had."""
    asked = {"after": reader.after, "snapshot": reader.snapshot, "copied": reader.copied, **params}
    answer = node.get("slony-changes", **{name: value for name, value in asked.items() if value is not None})
    return reader.take(lines(answer))


def work(slony: SlonyCluster, node: NodeStore, reader: NaiveSubscriber, *, for_s: float) -> None:
    """Writers for a while, and the reader beside them."""
    until = time.monotonic() + for_s
    with slony.load(linger=0.1) as load:
        while time.monotonic() < until:
            read_page(node, reader, limit=3)
            time.sleep(0.2)
        load.await_committed(5)
    slony.run(1, "select nextval('ticket')")
    slony.catch_up()
    read_to_the_end(slony, node, reader)


def read_to_the_end(slony: SlonyCluster, node: NodeStore, reader: NaiveSubscriber) -> None:
    """Take every unit up to a SYNC that is made now."""
    newest = slony.sync(1)
    while (reader.after or 0) < newest:
        assert read_page(node, reader), "the SYNC is there"


def agrees(slony: SlonyCluster, reader: NaiveSubscriber) -> None:
    assert reader.tables == content(slony, 2) == content(slony, 1)
    assert [(reader.ticket,)] == slony.run(2, "select last_value from ticket")


def test_the_feed_is_what_a_real_subscriber_applies(slony: SlonyCluster, node: NodeStore) -> None:
    reader = begin(slony)
    work(slony, node, reader, for_s=SHORT_S)
    agrees(slony, reader)
    assert reader.rows > 50
    assert reader.units > 3


def test_a_first_copy_beside_writers_goes_on_without_gap_or_overlap(
    slony: SlonyCluster, node: NodeStore
) -> None:
    """Transactions are open at the copy, others end between the newest SYNC and the copy."""
    with slony.load(linger=0.3, writers=4, per_s=60) as load:
        for _ in range(2):
            load.await_committed(10)
            reader = NaiveSubscriber()
            reader.take_copy(lines(node.get("slony-copy", set=1)))
        load.await_committed(10)
    slony.run(1, "insert into movement values (900003, 1, 7, E'\\\\N\\t\\\\b''\u00e9\\n')")
    slony.catch_up()
    read_to_the_end(slony, node, reader)
    agrees(slony, reader)
    again = NaiveSubscriber()
    again.take_copy(lines(node.get("slony-copy", set=1)))
    assert again.tables == content(slony, 1)


@pytest.mark.long
@pytest.mark.timeout(HOUR_S * 1.2)
def test_an_hour_of_work(slony: SlonyCluster, node: NodeStore) -> None:
    reader = begin(slony)
    until = time.monotonic() + HOUR_S
    while time.monotonic() < until:
        work(slony, node, reader, for_s=60.0)
        agrees(slony, reader)


def test_truncate_and_a_script_are_records_of_their_own(slony: SlonyCluster, node: NodeStore) -> None:
    reader = begin(slony)
    slony.run(1, "insert into movement values (900001, 1, 5, null)")
    slony.run(1, "truncate movement")
    slony.run(1, "insert into movement values (900002, 1, 7, E'a\\\\b''\"\\u00e9\\n')")
    slony.catch_up()
    found = lines(node.get("slony-changes", after=reader.after))
    kinds = [record["kind"] for record in found if record["kind"] not in ("START", "SYNC", "SEQUENCE")]
    assert kinds == ["INSERT", "TRUNCATE", "INSERT"]
    reader.take(found)
    agrees(slony, reader)
    slony.slonik("execute script (event node = 1, sql = 'comment on table movement is ''x''');")
    slony.catch_up()
    found = lines(node.get("slony-changes", after=reader.after))
    [script] = [record for record in found if record["kind"] == "DDL"]
    assert script["detail"]["statement"].strip() == "comment on table movement is 'x'"
    assert [record["kind"] for record in found if record["kind"].startswith("DDL")] == ["DDL", "DDL_END"]


def test_both_forms_have_the_same_records(slony: SlonyCluster, node: NodeStore) -> None:
    reader = begin(slony)
    slony.run(1, "insert into account values (777001, 'a', 1), (777002, 'b', 2)")
    slony.run(1, "update account set balance = 3 where id = 777001")
    slony.run(1, "delete from account where id in (777001, 777002)")
    slony.sync(1)
    found = lines(node.get("slony-changes", after=reader.after))
    answer = node.http.get(
        f"{node.url}/slony-changes", params={"after": reader.after}, headers={"Accept": ARROW}
    )
    assert answer.headers["content-type"] == ARROW
    with pa.ipc.open_stream(io.BytesIO(answer.content)) as stream:
        assert stream.schema.metadata[b"seqno"] == str(reader.after).encode()
        rows = [row for batch in stream for row in batch.to_pylist()]
    same = [
        {
            name: json.loads(value) if name in ("key", "values", "detail") else value
            for name, value in row.items()
            if value is not None
        }
        for row in rows
    ]
    assert same[: len(found) - 1] == found[1:]
    assert {record["kind"] for record in found} >= {"INSERT", "UPDATE", "DELETE", "SYNC"}


def test_the_command_follows_and_a_cleaned_position_ends_it(
    slony: SlonyCluster, node: NodeStore, service: ServiceProcess
) -> None:
    """Slony-I's own cleanup with both log switches, between two reads."""
    reader = begin(slony)
    old = reader.after
    with Lethe(str(node.http.base_url), service.token) as lethe:
        followed = lethe.slony_changes.follow(node.id, after=old, poll_s=0.1)
        assert next(followed).kind == "START"
        slony.run(1, "insert into account values (888001, 'c', 1)")
        made = slony.sync(1)
        for record in followed:
            if record.kind == "SYNC" and record.seqno >= made:
                break
            assert record.kind in ("SYNC", "SEQUENCE") or record.values == {
                "id": "888001",
                "owner": "c",
                "balance": "1",
            }
        for _ in range(3):
            slony.catch_up()
            slony.run(1, "select cleanupEvent('0 s'::interval)")
        problem(node.get("slony-changes", after=old), 409, "NEEDS_TOTAL")
        with pytest.raises(Conflict, match="cleaned away") as refused:
            list(lethe.slony_changes.page(node.id, after=old))
        assert refused.value.code == "NEEDS_TOTAL"
    command = [
        sys.executable,
        "-m",
        "app.cli.main",
        "slony",
        "changes",
        node.id,
        "--after",
        str(old),
        "--json",
    ]
    environment = os.environ | {"LETHE_URL": str(node.http.base_url), "LETHE_TOKEN": service.token}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert json.loads(done.stdout)["code"] == "NEEDS_TOTAL"


def test_another_nodes_changes_and_bad_questions_are_refused(
    http: httpx.Client, slony: SlonyCluster, node: NodeStore
) -> None:
    receiver = register(http, url=slony.url(2), cluster=slony.name)
    assert lines(receiver.get("slony-changes"))[0]["origin"] == 2
    problem(node.get("slony-changes", set=99), 409, "SET_UNKNOWN")
    problem(node.get("slony-copy", set=99), 409, "SET_UNKNOWN")
    problem(node.get("slony-copy"), 422, "INVALID_REQUEST")
    newest = slony.sync(1)
    problem(node.get("slony-changes", after=newest, copied="5:5:"), 409, "NEEDS_TOTAL")
    for params in (
        {"copied": "9:8:", "after": 1},
        {"copied": "8:9:"},
        {"after": -1},
        {"limit": 0},
        {"limit": 1001},
        {"snapshot": "x"},
        {"rows": 0},
        {"origin": 2},
    ):
        problem(node.get("slony-changes", **params), 422, "INVALID_REQUEST")
    http.post(
        "/v1/stores",
        json={"id": (name := new_name("r")), "kind": "REPLICA", "url": "sqlite:////tmp/no", "rid": 1},
    )
    assert http.get(f"/v1/stores/{name}/slony-changes").status_code in (404, 409)


def test_a_check_of_a_running_cluster_finds_its_slons(node: NodeStore) -> None:
    deadline = time.monotonic() + 30
    while True:
        check = node.check()
        codes = {each["code"]: each["severity"] for each in check["findings"]}
        if check["slony"]["slons"] and "OWN_CLEANUP" in codes:
            break
        assert time.monotonic() < deadline, check
        time.sleep(0.2)
    assert (check["ok"], codes["OWN_CLEANUP"]) == (True, "INFO")
    assert check["layout"].startswith("Slony-I 2.2.")
    assert check["layout"].endswith("node 1 of 3")
    assert {"CREATE_SYNC", "CONFIRM", "CLEANUP_NATIVE", "CLEANUP_BUILTIN", "LOG_SWITCH"} <= set(check["can"])
    assert all(each["application"].startswith("slon.") for each in check["slony"]["slons"])
    assert check["slony"]["has_functions"] is True

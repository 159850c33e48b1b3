"""Agreements that send a part of the keys, over HTTP: what the consumer becomes, and what is refused."""

from __future__ import annotations

import base64
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from spark.formats.csn import Csn
from tests.http.discarding import old_consumer
from tests.http.problem import problem
from tests.http.replica_stores import ConsumerStore, make_replica
from tests.http.service_process import ServiceProcess
from tests.http.shop import accepted, wait_for
from tests.http.supplying import GENERATION, Pair, agree, entries, make_pair, token_file, write

SESSION = "rps_00000000000000000000000001"


def _prefix(prefix: str) -> dict[str, str]:
    return {
        "database": base64.b64encode(b"db").decode(),
        "prefix": base64.b64encode(prefix.encode()).decode(),
    }


KEYS = [_prefix("eu-")]


@pytest.fixture
def pair(http: httpx.Client, service: ServiceProcess, roots: Path) -> Pair:
    """Replica 1 sends a part of its keys to a new replica 2."""
    return make_pair(http, service, roots, generations=(GENERATION, None), keys=KEYS)


@pytest.fixture
def leaf(pair: Pair) -> Pair:
    """The same after the first copy."""
    write(pair.supplier, 5, prefix="eu-")
    write(pair.supplier, 7, prefix="us-")
    pair.run("SUCCEEDED", mode="TOTAL")
    return pair


def _execute(store: ConsumerStore, *statements: str) -> None:
    assert store.path is not None
    with closing(sqlite3.connect(store.path, timeout=10)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def _kinds(store: ConsumerStore) -> dict[str, int]:
    assert store.path is not None
    with closing(sqlite3.connect(store.path, timeout=10)) as connection:
        return dict(connection.execute("select kind, count(*) from replica_changelog group by kind"))


def _part_of(store: ConsumerStore) -> dict[str, str | None]:
    return {key: value for key, value in entries(store).items() if key.startswith("eu-")}


def _agreement(
    pair: Pair, consumer: ConsumerStore, service: ServiceProcess, roots: Path, **more: Any
) -> Pair:
    token = f"file:{token_file(service, roots)}"
    made = agree(pair.http, pair.supplier.id, consumer.id, url=service.url, token=token, **more)
    assert made.status_code == 201, made.text
    return Pair(pair.supplier, consumer, made.json())


@pytest.mark.parametrize("strategy", ["WINDOW", "CLASSIC"])
def test_a_new_consumer_becomes_partial_and_stays_level(leaf: Pair, strategy: str) -> None:
    assert entries(leaf.consumer) == _part_of(leaf.supplier)
    assert (leaf.consumer.ruv()["status"], leaf.consumer.ruv()["part"]) == ("PARTIAL", KEYS)
    write(leaf.supplier, 3, prefix="eu-", value=b"second")
    write(leaf.supplier, 9, prefix="us-", value=b"second")
    session = leaf.session_of(leaf.run("SUCCEEDED", strategy=strategy))
    assert session["outcome"] == "UP_TO_DATE"
    assert entries(leaf.consumer) == _part_of(leaf.supplier)
    assert _kinds(leaf.consumer) == {"CHANGE": 3, "WITHHELD": 9}
    assert leaf.consumer.ruv()["ruv"] == leaf.supplier.ruv()["ruv"]
    assert (leaf.agreement["keys"], leaf.status()["lag_changes"]) == (KEYS, 0)
    topology = leaf.http.get("/v1/replication/topology").json()
    nodes = {each["store"]: (each["status"], each["part"]) for each in topology["nodes"]}
    assert nodes[leaf.consumer.id] == ("PARTIAL", KEYS)
    assert nodes[leaf.supplier.id] == ("ONLINE", None)


def test_an_audit_compares_the_part_and_finds_what_differs_in_it(leaf: Pair) -> None:
    write(leaf.supplier, 3, prefix="eu-", value=b"second")
    write(leaf.supplier, 4, prefix="us-")
    leaf.run("SUCCEEDED")

    def audited() -> dict[str, Any]:
        body = {"agreement_id": leaf.agreement["id"]}
        job = accepted(leaf.http.post(f"{leaf.store}/audits", json=body))
        found: dict[str, Any] = wait_for(leaf.http, job, "SUCCEEDED")["result"]
        return found

    assert (audited()["agrees"], audited()["reason"]) == (True, None)
    _execute(leaf.consumer, "update replica_entries set value = x'00' where key = cast('eu-000001' as blob)")
    assert len(audited()["entries"]["differing"]) == 1


def test_a_partial_replica_takes_no_writes_and_supplies_nobody(
    leaf: Pair, http: httpx.Client, service: ServiceProcess, roots: Path
) -> None:
    change = {"database": KEYS[0]["database"], "key": "ZXUtMQ==", "value": "MQ=="}
    place = f"/v1/stores/{leaf.consumer.id}"
    problem(http.post(f"{place}/changes", json={"changes": [change]}), 409, "REPLICA_PARTIAL")
    extinction = {"databases": [KEYS[0]["database"]], "reason": "a test"}
    answer = http.post(f"{place}/extinctions", json=extinction)
    assert answer.status_code >= 400, answer.text
    third = make_replica(http, rid=3, folder=roots)
    token = f"file:{token_file(service, roots)}"
    made = agree(http, leaf.consumer.id, third.id, url=service.url, token=token)
    problem(made, 409, "REPLICA_PARTIAL")


def test_a_partial_replica_does_not_say_that_what_it_lacks_is_nowhere(leaf: Pair) -> None:
    def place(store: ConsumerStore, key: bytes) -> str:
        names = [base64.urlsafe_b64encode(name).decode().rstrip("=") for name in (b"db", key)]
        return f"/v1/stores/{store.id}/entries/{names[0]}/{names[1]}"

    for more in ("", "/history"):
        assert leaf.http.get(place(leaf.consumer, b"eu-000001") + more).status_code == 200
        assert leaf.http.get(place(leaf.supplier, b"us-000001") + more).status_code == 200
        for key in (b"us-000001", b"nowhere"):
            problem(leaf.http.get(place(leaf.consumer, key) + more), 409, "REPLICA_PARTIAL")
    problem(leaf.http.get(place(leaf.consumer, b"eu-9")), 404, "ENTRY_NOT_FOUND")


def test_a_consumer_of_before_parts_is_asked_for_nothing(
    http: httpx.Client, service: ServiceProcess, roots: Path
) -> None:
    pair = make_pair(http, service, roots, keys=KEYS)
    write(pair.supplier, 3, prefix="eu-")
    token = f"file:{token_file(service, roots)}"
    with old_consumer(generation=GENERATION, rid=7) as (consumer, url):
        made = agree(http, pair.supplier.id, "old", url=url, token=token, keys=KEYS)
        onwards = Pair(pair.supplier, pair.consumer, made.json())
        for mode in ("INCREMENTAL", "TOTAL"):
            assert onwards.run("FAILED", mode=mode)["error"]["code"] == "PART_NOT_SUPPORTED"
        assert {each.partition(" ")[0] for each in consumer.asked} == {"GET"}


def test_an_agreement_from_before_brings_nothing_out_of_a_partial_replica(
    pair: Pair, http: httpx.Client, service: ServiceProcess, roots: Path
) -> None:
    third = make_replica(http, rid=3, folder=roots)
    token = f"file:{token_file(service, roots)}"
    onwards = Pair(
        pair.consumer, third, agree(http, pair.consumer.id, third.id, url=service.url, token=token).json()
    )
    write(pair.supplier, 5, prefix="eu-")
    pair.run("SUCCEEDED", mode="TOTAL")
    for mode in ("INCREMENTAL", "TOTAL"):
        assert onwards.run("FAILED", mode=mode)["error"]["code"] == "REPLICA_PARTIAL"
    assert third.ruv()["status"] == "EMPTY"


def test_other_keys_or_none_are_refused_whatever_is_asked(
    leaf: Pair, http: httpx.Client, service: ServiceProcess, roots: Path
) -> None:
    before = entries(leaf.consumer), leaf.consumer.ruv()
    http.delete(f"{leaf.store}/agreements/{leaf.agreement['id']}", headers={"If-Match": '"1"'})
    etag = http.get(f"{leaf.store}/agreements/{leaf.agreement['id']}")
    if etag.status_code == 200:
        gone = http.delete(
            f"{leaf.store}/agreements/{leaf.agreement['id']}", headers={"If-Match": etag.headers["ETag"]}
        )
        assert gone.status_code == 204, gone.text
    for keys in (None, [_prefix("eu-0")], [_prefix("")]):
        other = _agreement(leaf, leaf.consumer, service, roots, **({} if keys is None else {"keys": keys}))
        for mode in ("INCREMENTAL", "TOTAL"):
            assert other.run("FAILED", mode=mode)["error"]["code"] == "PART_DIFFERS"
        path = f"{other.store}/agreements/{other.agreement['id']}"
        problem(
            http.patch(path, json={"keys": KEYS}, headers={"If-Match": http.get(path).headers["ETag"]}),
            422,
            "INVALID_REQUEST",
        )
        assert http.delete(path, headers={"If-Match": http.get(path).headers["ETag"]}).status_code == 204
    assert (entries(leaf.consumer), leaf.consumer.ruv()) == before


def test_a_replica_that_holds_all_keys_never_becomes_partial(
    http: httpx.Client, service: ServiceProcess, roots: Path
) -> None:
    pair = make_pair(http, service, roots, keys=KEYS)
    write(pair.supplier, 5, prefix="eu-")
    write(pair.consumer, 1, prefix="us-")
    before = entries(pair.consumer), pair.consumer.ruv()
    for mode in ("INCREMENTAL", "TOTAL"):
        assert pair.run("FAILED", mode=mode)["error"]["code"] == "PART_DIFFERS"
    assert (entries(pair.consumer), pair.consumer.ruv()) == before


def test_a_partial_replica_that_claims_to_be_whole_is_still_partial(leaf: Pair) -> None:
    _execute(leaf.consumer, "update replica_replica set status = 'ONLINE'")
    assert leaf.consumer.ruv()["status"] == "PARTIAL"
    _execute(leaf.consumer, "delete from replica_part")
    assert leaf.http.get(f"{leaf.consumer.url}/ruv").status_code == 409
    _execute(leaf.consumer, "update replica_replica set status = 'ONLINE', layout_version = 2")
    write(leaf.supplier, 2, prefix="us-")
    assert leaf.run("FAILED")["error"]["code"] == "PART_DIFFERS"


def test_a_supplier_that_says_it_is_partial_is_refused(http: httpx.Client, roots: Path) -> None:
    store = make_replica(http, rid=3, folder=roots, generation=GENERATION)
    body: dict[str, Any] = {
        "protocol": 1,
        "session_id": SESSION,
        "mode": "INCREMENTAL",
        "supplier": {
            "store": "leaf",
            "rid": 1,
            "generation": GENERATION,
            "ruv": {},
            "csn_now": str(Csn.of(1_700_000_000, 0, 1)),
            "capabilities": [],
            "holds": KEYS,
        },
    }
    answer = http.post(f"{store.url}/sessions", json=body)
    assert answer.status_code == 409, answer.text
    assert answer.json()["code"] in ("SUPPLIER_PARTIAL", "PROOFS_MISSING")


@pytest.mark.parametrize(
    "keys", [[], [{"prefix": ""}], [{"database": "", "prefix": ""}], [{"database": "ZGI"}], "db"]
)
def test_keys_that_name_none_are_refused(pair: Pair, service: ServiceProcess, roots: Path, keys: Any) -> None:
    token = f"file:{token_file(service, roots)}"
    answer = agree(pair.http, pair.supplier.id, "other", url=service.url, token=token, keys=keys)
    problem(answer, 422, "INVALID_REQUEST")

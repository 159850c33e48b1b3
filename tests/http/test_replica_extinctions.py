"""Extinctions of replicas: one record travels, every replica scans for itself, late changes are ignored."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from spark.formats.csn import Csn
from tests.http.discarding import b64, discard, discarded, old_consumer
from tests.http.problem import problem
from tests.http.replica_stores import ConsumerStore, grant_discard, make_replica
from tests.http.service_process import ServiceProcess
from tests.http.shop import wait_for
from tests.http.supplying import GENERATION, Pair, agree, entries, make_pair, token_file, write


@pytest.fixture(scope="session")
def service(sqlite_service: ServiceProcess) -> ServiceProcess:
    """One kind of metadata is enough: extinctions lie in the target."""
    return sqlite_service


@pytest.fixture
def store(http: httpx.Client, roots: Path) -> ConsumerStore:
    """A replica of its own."""
    return make_replica(http, rid=1, folder=roots, generation=GENERATION)


@pytest.fixture
def pair(http: httpx.Client, service: ServiceProcess, roots: Path) -> Pair:
    """Replica 1 supplies replica 2; they have met."""
    found = make_pair(http, service, roots)
    write(found.supplier, 1, prefix="a")
    found.run("SUCCEEDED")
    return found


def _rows(store: ConsumerStore, sql: str) -> list[tuple[Any, ...]]:
    assert store.path is not None
    with closing(sqlite3.connect(store.path, timeout=10)) as connection:
        return connection.execute(sql).fetchall()


def _change(store: ConsumerStore, *keys: bytes) -> httpx.Response:
    changes = [{"database": b64(b"db"), "key": b64(key), "value": b64(b"x")} for key in keys]
    return store.http.post(f"/v1/stores/{store.id}/changes", json={"changes": changes})


def _done(store: ConsumerStore, extinction_id: str) -> dict[str, Any]:
    """An extinction that this replica has found and scanned by itself."""
    deadline = time.monotonic() + 60
    while True:
        answer = store.http.get(f"/v1/stores/{store.id}/extinctions/{extinction_id}")
        if answer.status_code == 200 and answer.json()["state"] == "DONE":
            found: dict[str, Any] = answer.json()
            return found
        assert time.monotonic() < deadline, answer.text
        time.sleep(0.2)


def test_its_entries_go_and_the_changelog_grows_by_one(store: ConsumerStore) -> None:
    write(store, 500, prefix="k", value=b"v" * 10)
    write(store, 3, prefix="z")
    [(before,)] = _rows(store, "select count(*) from replica_changelog")
    found = discarded(store, start_key=b64(b"k"), end_key=b64(b"l"))
    assert (found["state"], found["records"], found["bytes"]) == ("DONE", 500, 500 * 17)
    assert sorted(entries(store)) == ["z000000", "z000001", "z000002"]
    assert _rows(store, "select count(*) from replica_changelog") == [(before + 1,)]
    assert _rows(store, "select state, records, tombstones, late from replica_extinctions") == [
        ("DONE", 500, 0, 0)
    ]
    assert _rows(store, "select count(*) from replica_extinction_slices") == [(0,)]


def test_a_write_to_an_extinct_key_is_refused_with_its_place(store: ConsumerStore) -> None:
    write(store, 3)
    found = discarded(store, start_key=b64(b"k"), end_key=b64(b"l"))
    answer = _change(store, b"a", b"k000007")
    told = problem(answer, 409, "KEY_EXTINCT")
    assert (told["extinction_id"], told["row"]) == (found["id"], 1)
    assert entries(store) == {}
    assert _change(store, b"a").status_code == 200


def test_a_consumer_gets_one_record_and_scans_for_itself(pair: Pair) -> None:
    write(pair.supplier, 200)
    pair.run("SUCCEEDED")
    found = discarded(pair.supplier, start_key=b64(b"k"), end_key=b64(b"l"))
    session = pair.session_of(pair.run("SUCCEEDED"))
    assert session["counters"]["1"]["acknowledged"] == 1
    theirs = _done(pair.consumer, found["id"])
    assert (theirs["origin"], theirs["records"], theirs["label"]) == ("REPLICATED", 200, "old ones")
    assert entries(pair.consumer) == entries(pair.supplier) == {"a000000": "v" * 50}
    told = problem(_change(pair.consumer, b"k1"), 409, "KEY_EXTINCT")
    assert told["extinction_id"] == found["id"]


def test_late_changes_are_acknowledged_ignored_and_counted(pair: Pair) -> None:
    """The consumer says that the keys are extinct; its supplier has not heard of it and writes on."""
    found = discarded(pair.consumer, start_key=b64(b"k"), end_key=b64(b"l"))
    write(pair.supplier, 40)
    write(pair.supplier, 2, prefix="z")
    session = pair.session_of(pair.run("SUCCEEDED"))
    counted = session["counters"]["1"]
    assert (counted["acknowledged"], counted["extinct"]) == (42, 40)
    assert sorted(entries(pair.consumer)) == ["a000000", "z000000", "z000001"]
    assert pair.consumer.ruv()["ruv"]["1"] == pair.supplier.ruv()["ruv"]["1"]
    assert _rows(pair.consumer, "select late from replica_extinctions") == [(40,)]
    assert found["state"] == "DONE"


def test_a_total_copy_brings_extinctions_and_nothing_extinct(
    http: httpx.Client, service: ServiceProcess, roots: Path
) -> None:
    pair = make_pair(http, service, roots, generations=(GENERATION, None))
    write(pair.supplier, 20)
    write(pair.supplier, 2, prefix="z")
    pair.run("SUCCEEDED", mode="TOTAL")
    found = discarded(pair.supplier, start_key=b64(b"k"), end_key=b64(b"l"))
    grant_discard(pair.consumer, supplier_rid=1)
    session = pair.session_of(pair.run("SUCCEEDED", mode="TOTAL", discard_consumer_changes=True))
    assert session["outcome"] == "UP_TO_DATE"
    assert session["total"]["entries_sent"] == 2
    assert _done(pair.consumer, found["id"])["records"] == 0
    assert sorted(entries(pair.consumer)) == ["z000000", "z000001"]
    problem(_change(pair.consumer, b"k9"), 409, "KEY_EXTINCT")


def test_a_supplier_without_the_capability_makes_extinctions_unavailable(pair: Pair) -> None:
    store = pair.consumer
    fields = {"generation": GENERATION, "csn_now": Csn.of(int(time.time()), 0, 7), "rid": 7}
    assert store.acquire(session_id="rps_old", **fields).status_code == 201
    told = problem(discard(store), 409, "EXTINCTION_NOT_AVAILABLE")
    assert [(each["peer"], each["rid"]) for each in told["lacking"]] == [("supplier-7/7", 7)]
    store.release("rps_old", epoch=store.acquire(session_id="rps_old", **fields).json()["epoch"])
    taking = {"capabilities": ("CHANGE", "EXTINCTION")}
    epoch = store.acquire(session_id="rps_new", **fields, **taking).json()["epoch"]
    store.release("rps_new", epoch=epoch)
    assert discard(store).status_code == 202


@pytest.mark.parametrize("mode", ["INCREMENTAL", "TOTAL"])
def test_no_extinction_is_sent_to_a_consumer_that_takes_none(
    store: ConsumerStore, service: ServiceProcess, roots: Path, mode: str
) -> None:
    """Not passed over either: the session ends, and a consumer is not emptied for a copy without them."""
    write(store, 3)
    discarded(store, start_key=b64(b"k"), end_key=b64(b"l"))
    with old_consumer(generation=GENERATION, rid=2) as (consumer, url):
        token = f"file:{token_file(service, roots)}"
        made = agree(store.http, store.id, "old", url=url, token=token)
        assert made.status_code == 201, made.text
        asked = store.http.post(
            f"/v1/stores/{store.id}/replication-sessions",
            json={"agreement_id": made.json()["id"], "mode": mode},
        )
        job = wait_for(store.http, asked.json()["id"], "FAILED")
    assert job["error"]["code"] == "EXTINCTION_NOT_SUPPORTED"
    sent = [each for each in consumer.asked if each.startswith("POST")]
    assert sent == (["POST sessions"] if mode == "INCREMENTAL" else [])


def test_an_extinction_that_a_supplier_has_announced_makes_keys_maybe_extinct(pair: Pair) -> None:
    store = pair.consumer
    at = Csn.of(int(time.time()), 5, 7)
    body = {
        "store": "supplier-7",
        "rid": 7,
        "generation": GENERATION,
        "ruv": {"7": str(at)},
        "csn_now": str(Csn.of(int(time.time()), 9, 7)),
        "capabilities": ["CHANGE", "EXTINCTION"],
        "extinctions": {"7": str(at)},
    }
    answer = store.http.post(
        f"{store.url}/sessions",
        json={"protocol": 1, "session_id": "rps_announcing", "mode": "INCREMENTAL", "supplier": body},
    )
    assert answer.status_code == 201, answer.text
    store.release("rps_announcing", epoch=answer.json()["epoch"])
    query = {"database": b64(b"db"), "dups": False, "keys": [b64(b"k1")]}
    found = store.http.post(f"/v1/stores/{store.id}/extinction-status:query", json=query).json()
    assert found["statuses"] == ["MAYBE_EXTINCT"]


def test_a_consumer_that_was_put_back_scans_again(pair: Pair, tmp_path: Path) -> None:
    """Its service remembers the extinction as DONE; its target has the entries again, and knows nothing."""
    write(pair.supplier, 30)
    pair.run("SUCCEEDED")
    _copy(pair.consumer.path, tmp_path / "before.db")
    found = discarded(pair.supplier, start_key=b64(b"k"), end_key=b64(b"l"))
    pair.run("SUCCEEDED")
    _done(pair.consumer, found["id"])
    _copy(tmp_path / "before.db", pair.consumer.path)
    assert len(entries(pair.consumer)) == 31
    pair.run("SUCCEEDED")
    deadline = time.monotonic() + 60
    while _rows(pair.consumer, "select state, records from replica_extinctions") != [("DONE", 30)]:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert entries(pair.consumer) == {"a000000": "v" * 50}
    assert _done(pair.consumer, found["id"])["records"] == 30


def _copy(source: Path | None, target: Path | None) -> None:
    """Everything of one database, in one transaction of the other."""
    assert source is not None
    assert target is not None
    with closing(sqlite3.connect(source)) as one, closing(sqlite3.connect(target, timeout=10)) as other:
        one.backup(other)


def test_the_scan_keeps_the_parameters_of_its_store(http: httpx.Client, roots: Path) -> None:
    slow = {"je.cleaner.extinctScanBatchSize": 10, "je.cleaner.extinctScanBatchDelay": "PT0.2S"}
    store = make_replica(http, rid=1, folder=roots, generation=GENERATION, parameters=slow)
    write(store, 60)
    began = time.monotonic()
    found = discarded(store, start_key=b64(b"k"), end_key=b64(b"l"))
    assert found["records"] == 60
    assert time.monotonic() - began >= 6 * 0.2


@pytest.mark.postgresql
def test_a_replica_on_postgresql_is_scanned_over_its_own_connection(
    http: httpx.Client, postgresql_url: str
) -> None:
    store = make_replica(http, rid=1, url=postgresql_url, generation=GENERATION)
    write(store, 25_000, value=b"v")
    answer = discard(
        store,
        start_key=b64(b"k"),
        end_key=b64(b"l"),
        filter={"field": {"offset": 1, "width": 6, "op": "LT", "value": b64(b"020000")}},
    )
    job = wait_for(http, answer.json()["id"], "SUCCEEDED")
    assert job["engine"] == "INLINE"
    assert job["result"] == {
        "extinction_id": job["subject"]["id"],
        "records": 20_000,
        "bytes": 20_000 * 8,
        "tombstones": 0,
    }
    assert len(entries(store)) == 5_000

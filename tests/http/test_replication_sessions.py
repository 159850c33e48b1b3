"""Sessions over HTTP: two replicas of one service, which is supplier and consumer over its own loopback."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from spark.formats.csn import Csn
from spark.replication.proofs.history_points import fill_chains
from spark.targets.connection import Target, connect
from tests.http.problem import problem
from tests.http.replica_stores import ConsumerStore, grant_discard, make_replica
from tests.http.service_process import ServiceProcess
from tests.http.shop import wait_for
from tests.http.supplying import GENERATION, Pair, agree, entries, make_pair, token_file, write

OTHER_GENERATION = "65000000000000010000"


@pytest.fixture
def pair(http: httpx.Client, service: ServiceProcess, roots: Path) -> Pair:
    """Replica 1 supplies replica 2; both of one generation."""
    return make_pair(http, service, roots)


def _counters(session: dict[str, Any], rid: int = 1) -> dict[str, int]:
    counted: dict[str, int] = session["counters"][str(rid)]
    return {name: value for name, value in counted.items() if value}


def _execute(store: ConsumerStore, *statements: str) -> None:
    """Change a replica behind the service's back."""
    assert store.path is not None
    with closing(sqlite3.connect(store.path, timeout=10)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def _supplies(store: ConsumerStore) -> str | None:
    assert store.path is not None
    with closing(sqlite3.connect(store.path, timeout=10)) as connection:
        [(found,)] = connection.execute("select supplies from replica_session")
    return None if found is None else str(found)


# -- what a session brings


@pytest.mark.parametrize("strategy", ["WINDOW", "CLASSIC"])
def test_a_session_brings_what_is_missing_once(pair: Pair, strategy: str) -> None:
    write(pair.supplier, 30, value=b"first")
    write(pair.supplier, 3, value=b"second")
    assert pair.compare()["missing"] == {"1": 33}
    job = pair.run("SUCCEEDED", strategy=strategy)
    session = pair.session_of(job)
    assert (session["state"], session["outcome"], session["problem"]) == ("ENDED", "UP_TO_DATE", None)
    assert _counters(session) == {"read": 33, "sent": 33, "acknowledged": 33}
    assert session["rows_read"] == 33
    assert entries(pair.consumer) == entries(pair.supplier)
    assert pair.consumer.ruv()["ruv"] == pair.supplier.ruv()["ruv"]
    assert (job["progress"]["unit"], job["progress"]["done"], job["progress"]["total"]) == ("changes", 33, 33)
    again = pair.session_of(pair.run("SUCCEEDED", strategy=strategy))
    assert (again["outcome"], again["counters"], again["batches_sent"]) == ("UP_TO_DATE", {}, 0)
    assert bool(session["anchors"]) == (strategy == "CLASSIC")


def test_an_agreement_shows_lag_and_389s_words(pair: Pair) -> None:
    before = pair.status()
    assert before["last_update_status"] == "Error (0) No replication sessions started since server startup"
    assert (before["changes_sent"], before["last_update"]) == ("", {"start": None, "end": None})
    last = write(pair.supplier, 5)["last_csn"]
    lagging = pair.status()
    assert (lagging["lag_changes"], lagging["acknowledged"]) == (5, {})
    assert lagging["oldest_unsent"]["csn"] < last
    pair.run("SUCCEEDED")
    write(pair.supplier, 2, prefix="m")
    pair.run("SUCCEEDED")
    status = pair.status()
    assert (status["lag_changes"], status["lag"], status["oldest_unsent"]) == (0, "PT0S", None)
    assert status["acknowledged"] == pair.supplier.ruv()["ruv"]
    assert status["changes_sent"] == "1:7/0 "
    assert status["last_update_status"] == (
        "Error (0) Replica acquired successfully: Incremental update succeeded"
    )
    document = status["last_update_status_json"]
    assert list(document) == [
        "state",
        "ldap_rc",
        "ldap_rc_text",
        "repl_rc",
        "repl_rc_text",
        "date",
        "message",
    ]
    assert (document["state"], document["repl_rc"]) == ("green", "0")
    assert status["last_update"]["start"] < status["last_update"]["end"]


def test_changes_of_several_replicas_travel_through_one(
    http: httpx.Client, service: ServiceProcess, roots: Path, pair: Pair
) -> None:
    third = make_replica(http, rid=3, folder=roots, generation=GENERATION)
    token = f"file:{token_file(service, roots)}"
    made = agree(http, pair.consumer.id, third.id, url=service.url, token=token).json()
    onwards = Pair(pair.consumer, third, made)
    write(pair.supplier, 20, prefix="a")
    write(pair.consumer, 10, prefix="b")
    pair.run("SUCCEEDED")
    session = onwards.session_of(onwards.run("SUCCEEDED"))
    assert {rid: each["acknowledged"] for rid, each in session["counters"].items()} == {"1": 20, "2": 10}
    assert entries(third) == entries(pair.consumer)
    assert len(entries(third)) == 30
    assert onwards.status()["changes_sent"] == "1:20/0 2:10/0 "


def test_a_window_is_sent_in_batches_of_bounded_rows_and_bytes(
    http: httpx.Client, service: ServiceProcess, roots: Path
) -> None:
    pair = make_pair(http, service, roots, batch_rows=7, in_flight=4)
    write(pair.supplier, 100)
    session = pair.session_of(pair.run("SUCCEEDED"))
    assert session["batches_sent"] == 15
    assert _counters(session) == {"read": 100, "sent": 100, "acknowledged": 100}
    small = make_pair(http, service, roots, batch_bytes=65_536)
    write(small.supplier, 40, value=b"x" * 10_000)
    assert small.session_of(small.run("SUCCEEDED"))["batches_sent"] >= 7
    assert entries(small.consumer) == entries(small.supplier)


def test_a_session_yields_after_so_many_changes_and_the_next_one_goes_on(pair: Pair) -> None:
    write(pair.supplier, 25)
    for acknowledged, outcome in ((10, "YIELDED"), (10, "YIELDED"), (5, "UP_TO_DATE")):
        session = pair.session_of(pair.run("SUCCEEDED", max_changes=10))
        assert (session["outcome"], _counters(session)["acknowledged"]) == (outcome, acknowledged)
    assert entries(pair.consumer) == entries(pair.supplier)


def test_a_session_yields_after_its_time(http: httpx.Client, service: ServiceProcess, roots: Path) -> None:
    pair = make_pair(http, service, roots, batch_rows=50, max_duration="PT1S")
    write(pair.supplier, 5_000)
    session = pair.session_of(pair.run("SUCCEEDED", throttle={"rows_per_s": 500}))
    assert (session["outcome"], session["max_duration"]) == ("YIELDED", "PT1S")
    assert 0 < _counters(session)["acknowledged"] < 5_000


# -- total initialisation


def _hook(http: httpx.Client) -> str:
    """A webhook that nobody answers: what it was to be told is seen by its deliveries."""
    events = [f"lethe.replication.{name}" for name in ("halted", "needs_total", "dead_letter")]
    answer = http.post("/v1/webhooks", json={"url": "https://127.0.0.1:1/", "events": events})
    return f"/v1/webhooks/{answer.json()['id']}"


def _told(http: httpx.Client, hook: str) -> dict[str, list[tuple[str, str, list[int]]]]:
    found: dict[str, list[tuple[str, str, list[int]]]] = {}
    for row in http.get(f"{hook}/deliveries").json()["items"]:
        data = http.get(f"{hook}/deliveries/{row['id']}").json()["event"]["data"]
        found.setdefault(row["type"], []).append((data["store"], data["direction"], data["rids"]))
    http.delete(hook, headers={"If-Match": "*"})
    return found


def test_a_total_initialisation_makes_a_copy_and_changes_follow(
    http: httpx.Client, service: ServiceProcess, roots: Path
) -> None:
    pair = make_pair(http, service, roots, generations=(GENERATION, None), batch_rows=50)
    write(pair.supplier, 400)
    pair.http.post(f"{pair.store}/changes", json={"database": "ZGI=", "key": "azAwMDAwMA==", "value": None})
    hook = _hook(http)
    refused = pair.run("FAILED")
    assert refused["error"]["code"] == "NEEDS_TOTAL"
    assert refused["error"]["retryable"] is False
    assert [store for store, _, _ in _told(http, hook)["lethe.replication.needs_total"]] == [pair.supplier.id]
    assert pair.session_of(refused)["problem"]["reason"] == "NO_RUV"
    assert pair.status()["last_update_status_json"]["repl_rc"] == "19"
    job = pair.run("SUCCEEDED", mode="TOTAL")
    session = pair.session_of(job)
    assert (session["outcome"], session["total"]["is_complete"]) == ("UP_TO_DATE", True)
    assert session["total"]["entries_sent"] == 400
    # The row kept that the consumer had nothing when it was acquired: 56 years behind, right after its copy.
    assert session["consumer"]["ruv"] == session["total"]["ruv"]
    [look] = http.get("/v1/overview", params={"store": pair.supplier.id}).json()["stores"]
    assert look["lag"] is None or look["lag"]["seconds"] == 0
    found = pair.consumer.ruv()
    assert (found["status"], found["generation"]) == ("ONLINE", GENERATION)
    assert found["ruv"] == pair.supplier.ruv()["ruv"]
    assert entries(pair.consumer) == entries(pair.supplier)
    document = pair.status()["last_update_status_json"]
    assert (document["message"], document["conn_rc_text"]) == (
        "Error (0) Total update succeeded",
        "operation success",
    )
    write(pair.supplier, 5, prefix="later")
    assert pair.session_of(pair.run("SUCCEEDED"))["outcome"] == "UP_TO_DATE"
    assert entries(pair.consumer) == entries(pair.supplier)


def test_a_consumer_with_changes_of_its_own_is_emptied_only_by_an_admins_word(
    http: httpx.Client, service: ServiceProcess, roots: Path
) -> None:
    pair = make_pair(http, service, roots, generations=(GENERATION, OTHER_GENERATION))
    write(pair.supplier, 10)
    write(pair.consumer, 3, prefix="own")
    mismatch = pair.session_of(pair.run("FAILED"))
    assert (mismatch["outcome"], mismatch["problem"]["reason"]) == ("NEEDS_TOTAL", "GENERATION_MISMATCH")
    assert pair.compare()["reason"] == "GENERATION_MISMATCH"
    assert pair.status()["needs_total"] is True
    refused = pair.run("FAILED", mode="TOTAL")
    assert refused["error"]["code"] == "CONSUMER_AHEAD"
    assert len(entries(pair.consumer)) == 3
    grant_discard(pair.consumer, supplier_rid=1)
    pair.run("SUCCEEDED", mode="TOTAL", discard_consumer_changes=True)
    assert entries(pair.consumer) == entries(pair.supplier)


def test_a_replica_that_is_about_to_be_copied_is_emptied_later(pair: Pair) -> None:
    """Two total initialisations that cross would each empty what the other one is to copy."""
    write(pair.supplier, 10)
    pair.run("SUCCEEDED")
    until = time.time() + 600
    _execute(pair.consumer, f"""update replica_session set supplies = '{{"rps_other": {until}}}'""")
    grant_discard(pair.consumer, supplier_rid=1)
    job_id = pair.begin(mode="TOTAL")
    job = wait_for(pair.http, job_id, "WAITING")
    [waiting] = job["waiting_on"]
    assert (waiting["kind"], waiting["ref"].split(": ")[-1]) == ("PEER", "REPLICA_SUPPLIES")
    assert len(entries(pair.consumer)) == 10
    assert _supplies(pair.supplier) is None
    _execute(pair.consumer, "update replica_session set supplies = null")
    assert wait_for(pair.http, job_id)["state"] == "SUCCEEDED"
    assert entries(pair.consumer) == entries(pair.supplier)


def test_two_replicas_that_initialise_each_other_at_once_keep_everything(
    http: httpx.Client, service: ServiceProcess, roots: Path, pair: Pair
) -> None:
    write(pair.supplier, 100)
    pair.run("SUCCEEDED")
    before = entries(pair.supplier)
    answer = agree(
        http,
        pair.consumer.id,
        pair.supplier.id,
        url=service.url,
        token=f"file:{token_file(service, roots)}",
    )
    back = Pair(pair.consumer, pair.supplier, answer.json())
    for consumer, supplier_rid in ((pair.consumer, 1), (pair.supplier, 2)):
        grant_discard(consumer, supplier_rid=supplier_rid)
    jobs = [each.begin(mode="TOTAL") for each in (pair, back)]
    assert [wait_for(http, job)["state"] for job in jobs] == ["SUCCEEDED", "SUCCEEDED"]
    assert entries(pair.supplier) == entries(pair.consumer) == before


# -- what cannot be brought


@pytest.mark.parametrize("strategy", ["WINDOW", "CLASSIC"])
def test_changes_that_were_trimmed_end_as_needs_total_with_the_rids_that_prove_it(
    pair: Pair, strategy: str
) -> None:
    written = write(pair.supplier, 10)
    purged = Csn.of(Csn(written["first_csn"]).timestamp, Csn(written["first_csn"]).sequence + 2, 1)
    _execute(
        pair.supplier,
        f"delete from replica_changelog where csn <= '{purged}'",
        f"update replica_ruv set purged_csn = '{purged}' where rid = 1",
    )
    job = pair.run("FAILED", strategy=strategy)
    assert (job["error"]["code"], job["error"]["retryable"]) == ("NEEDS_TOTAL", False)
    session = pair.session_of(job)
    assert (session["outcome"], session["problem"]["rids"]) == ("NEEDS_TOTAL", [1])
    assert session["problem"]["reason"] == "PURGED"
    assert session["batches_sent"] == 0
    assert (pair.consumer.ruv()["ruv"], entries(pair.consumer)) == ({}, {})
    status = pair.status()
    assert (status["needs_total"], status["purge_headroom"]) == (True, "PT0S")
    assert status["last_update_status_json"]["state"] == "red"


def test_a_record_that_has_vanished_is_found_by_the_link_to_it(pair: Pair) -> None:
    """A hole that no purge vector tells of: both RUVs would become equal, and the change be lost."""
    written = write(pair.supplier, 10)
    lost = Csn.of(Csn(written["first_csn"]).timestamp, Csn(written["first_csn"]).sequence + 4, 1)
    _execute(pair.supplier, f"delete from replica_changelog where csn = '{lost}'")
    job = pair.run("FAILED")
    assert job["error"]["code"] == "NEEDS_TOTAL"
    assert pair.session_of(job)["problem"]["rids"] == [1]
    assert pair.consumer.ruv()["ruv"] == {}


def test_replicas_of_one_rid_never_exchange_changes(
    http: httpx.Client, service: ServiceProcess, roots: Path
) -> None:
    pair = make_pair(http, service, roots, rids=(1, 1))
    write(pair.supplier, 1)
    assert pair.run("FAILED")["error"]["code"] == "DUPLICATE_RID"
    assert pair.status()["last_update_status_json"]["repl_rc"] == "11"


def test_an_empty_replica_supplies_nothing(http: httpx.Client, service: ServiceProcess, roots: Path) -> None:
    pair = make_pair(http, service, roots, generations=(None, GENERATION))
    assert pair.run("FAILED")["error"]["code"] == "REPLICA_NOT_ONLINE"


def test_a_consumer_that_claims_own_changes_of_its_supplier_without_its_signature_is_not_believed(
    pair: Pair,
) -> None:
    """It made the supplier RESTORED and read-only; a signed claim still does (test_histories.py)."""
    write(pair.supplier, 5)
    pair.run("SUCCEEDED")
    last = pair.supplier.ruv()["ruv"]["1"]
    earlier = Csn.of(Csn(last).timestamp, Csn(last).sequence - 2, 1)
    ahead = Csn.of(Csn(last).timestamp, Csn(last).sequence + 9, 1)
    _execute(pair.consumer, f"update replica_ruv set max_csn = '{ahead}' where rid = 1")
    assert earlier < last < ahead
    job = pair.run("FAILED")
    assert job["error"]["code"] == "HISTORY_UNPROVEN"
    assert pair.supplier.ruv()["status"] == "ONLINE"


# -- troubles that pass


def test_a_busy_consumer_is_waited_for(pair: Pair) -> None:
    write(pair.supplier, 3)
    held = pair.consumer.acquire(
        session_id="rps_another", generation=GENERATION, csn_now=Csn.of(int(time.time()), 0, 7), rid=7
    )
    assert held.status_code == 201, held.text
    job_id = pair.begin()
    job = wait_for(pair.http, job_id, "WAITING")
    [waiting] = job["waiting_on"]
    assert (waiting["kind"], waiting["ref"]) == ("PEER", f"{pair.consumer.id}: REPLICA_BUSY")
    assert waiting["until"] is not None
    status = pair.status()
    assert status["last_update_status_json"]["repl_rc_text"] == "replica busy"
    assert (status["last_update_status_json"]["state"], status["update_in_progress"]) == ("amber", True)
    assert pair.consumer.release("rps_another", epoch=held.json()["epoch"]).status_code == 200
    wait_for(pair.http, job_id, "SUCCEEDED")
    assert entries(pair.consumer) == entries(pair.supplier)


def test_a_lease_that_an_ended_session_could_not_give_back_is_given_back_by_the_next(pair: Pair) -> None:
    """A consumer that dies just before the release held its own supplier up for a minute."""
    write(pair.supplier, 3)
    ended = pair.session_of(pair.run("SUCCEEDED"))
    left = f"session_id = '{ended['id']}', epoch = {ended['epoch']}, expires_at_s = {time.time() + 60}"
    _execute(pair.consumer, f"update replica_session set {left}, last_session_id = null")
    write(pair.supplier, 2, prefix="more")
    begun = time.monotonic()
    assert pair.session_of(pair.run("SUCCEEDED"))["outcome"] == "UP_TO_DATE"
    assert time.monotonic() - begun < 30
    assert entries(pair.consumer) == entries(pair.supplier)


def test_a_session_that_is_aborted_while_it_waits_has_ended(pair: Pair) -> None:
    write(pair.supplier, 1)
    path = f"{pair.store}/agreements/{pair.agreement['id']}"
    nobody = {"consumer": {"url": "http://127.0.0.1:1"}}
    assert pair.http.patch(path, json=nobody, headers={"If-Match": "*"}).status_code == 200
    job_id = pair.begin()
    job = wait_for(pair.http, job_id, "WAITING")
    assert job["waiting_on"][0]["ref"].endswith("PEER_UNANSWERED")
    assert pair.status()["last_update_status_json"]["state"] == "red"
    pair.http.post(f"/v1/jobs/{job_id}:abort", json={})
    session = pair.session_of(wait_for(pair.http, job_id, "ABORTED"))
    assert (session["state"], session["outcome"]) == ("ENDED", "ABORTED")
    status = pair.status()
    assert (status["last_update_status_json"]["state"], status["update_in_progress"]) == ("amber", False)
    assert status["last_update"]["end"] is not None


def test_one_session_of_an_agreement_at_a_time(pair: Pair) -> None:
    write(pair.supplier, 2_000)
    first = pair.begin(throttle={"rows_per_s": 100})
    found = problem(pair.ask(), 409, "CONFLICTING_JOB")
    assert found["job_id"] == first
    path = f"{pair.store}/agreements/{pair.agreement['id']}"
    problem(pair.http.delete(path, headers={"If-Match": "*"}), 409, "AGREEMENT_IN_USE")
    pair.http.post(f"/v1/jobs/{first}:abort", json={})
    wait_for(pair.http, first, "ABORTED")


def test_a_pause_gives_the_lease_back_and_a_resume_goes_on(
    http: httpx.Client, service: ServiceProcess, roots: Path
) -> None:
    pair = make_pair(http, service, roots, batch_rows=20)
    write(pair.supplier, 400)
    job_id = pair.begin(throttle={"rows_per_s": 200})
    deadline = time.monotonic() + 30
    while not pair.consumer.ruv()["ruv"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    http.post(f"/v1/jobs/{job_id}:pause", json={})
    paused = wait_for(http, job_id, "PAUSED")
    held = pair.consumer.ruv()["ruv"]
    session = pair.session_of(paused)
    assert (session["state"], session["outcome"]) == ("PENDING", None)
    other = pair.consumer.acquire(
        session_id="rps_other", generation=GENERATION, csn_now=Csn.of(int(time.time()), 0, 7), rid=7
    )
    assert other.status_code == 201, "the lease was not given back"
    pair.consumer.release("rps_other", epoch=other.json()["epoch"])
    time.sleep(0.3)
    assert pair.consumer.ruv()["ruv"] == held, "something was written after PAUSED"
    http.patch(f"/v1/jobs/{job_id}/throttle", json={})
    http.post(f"/v1/jobs/{job_id}:resume", json={})
    done = wait_for(http, job_id, "SUCCEEDED")
    assert _counters(pair.session_of(done))["acknowledged"] == 400
    assert entries(pair.consumer) == entries(pair.supplier)


def test_after_an_abort_nothing_is_written(http: httpx.Client, service: ServiceProcess, roots: Path) -> None:
    pair = make_pair(http, service, roots, batch_rows=20)
    write(pair.supplier, 600)
    job_id = pair.begin(throttle={"rows_per_s": 200})
    deadline = time.monotonic() + 30
    while not pair.consumer.ruv()["ruv"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    http.post(f"/v1/jobs/{job_id}:abort", json={})
    aborted = wait_for(http, job_id, "ABORTED")
    held = pair.consumer.ruv()["ruv"]
    session = pair.session_of(aborted)
    assert (session["state"], session["outcome"]) == ("ENDED", "ABORTED")
    assert 0 < _counters(session)["acknowledged"] < 600
    time.sleep(0.3)
    assert pair.consumer.ruv()["ruv"] == held
    pair.run("SUCCEEDED")
    assert entries(pair.consumer) == entries(pair.supplier)


# -- dead letters


def _write_kind(store: ConsumerStore, csn: Csn, kind: str) -> None:
    """Let a record be of another kind, as if its replica had written it so."""
    _execute(
        store,
        f"update replica_changelog set kind = '{kind}' where csn = '{csn}'",
        f"update replica_changelog set chain = null where rid = {csn.rid} and csn >= '{csn}'",
    )
    target = Target(f"sqlite:///{store.path}", table_prefix="replica_")
    with connect(target, application_name="test") as conn:
        fill_chains(conn)


def test_a_refused_record_halts_its_rid_and_no_other(
    http: httpx.Client, service: ServiceProcess, roots: Path
) -> None:
    pair = make_pair(http, service, roots)
    third = make_replica(http, rid=3, folder=roots, generation=GENERATION)
    made = agree(
        http, third.id, pair.supplier.id, url=service.url, token=f"file:{token_file(service, roots)}"
    ).json()
    write(third, 4, prefix="c")
    Pair(third, pair.supplier, made).run("SUCCEEDED")
    written = write(pair.supplier, 10)
    bad = Csn.of(Csn(written["first_csn"]).timestamp, Csn(written["first_csn"]).sequence + 5, 1)
    _write_kind(pair.supplier, bad, "UNHEARD_OF")
    hook = _hook(http)
    job = pair.run("SUCCEEDED")
    session = pair.session_of(job)
    assert (session["outcome"], session["problem"]["rids"]) == ("HALTED", [1])
    told = _told(http, hook)
    assert told["lethe.replication.halted"] == [(pair.supplier.id, "SENT", [1])]
    letters = [(pair.supplier.id, "SENT", [1]), (pair.consumer.id, "RECEIVED", [1])]
    assert sorted(told["lethe.replication.dead_letter"]) == sorted(letters)
    assert job["result"]["warnings"][0]["code"] == "HALTED"
    assert session["counters"]["3"]["acknowledged"] == 4
    counted = session["counters"]["1"]
    assert (counted["acknowledged"], counted["rejected"]) == (5, 1)
    assert len(entries(pair.consumer)) == 9
    letters = http.get(f"{pair.store}/dead-letters").json()["items"]
    assert [each["csn"] for each in letters if each["direction"] == "SENT"] == [bad]
    assert pair.status()["changes_sent"] == "1:5/1 3:4/0 "
    _write_kind(pair.supplier, bad, "CHANGE")
    assert pair.session_of(pair.run("SUCCEEDED"))["outcome"] == "UP_TO_DATE"
    assert entries(pair.consumer) == entries(pair.supplier)
    [letter] = [
        each for each in http.get(f"{pair.store}/dead-letters").json()["items"] if each["direction"] == "SENT"
    ]
    assert letter["resolved_at"] is not None


# -- by itself


def test_an_interval_begins_sessions_when_something_is_unsent(
    http: httpx.Client, service: ServiceProcess, roots: Path
) -> None:
    pair = make_pair(http, service, roots, interval="PT1S")
    write(pair.supplier, 6)
    deadline = time.monotonic() + 30
    while entries(pair.consumer) != entries(pair.supplier):
        assert time.monotonic() < deadline, http.get(pair.sessions).json()
        time.sleep(0.1)
    begun = http.get(pair.sessions).json()["items"]
    time.sleep(2.5)
    assert len(http.get(pair.sessions).json()["items"]) == len(begun), "a session with nothing to send"
    path = f"{pair.store}/agreements/{pair.agreement['id']}"
    assert http.patch(path, json={"interval": None}, headers={"If-Match": "*"}).status_code == 200


def test_comparing_asks_the_consumer_and_begins_nothing(pair: Pair) -> None:
    write(pair.supplier, 4)
    write(pair.consumer, 2, prefix="own")
    found = pair.compare()
    assert (found["outcome"], found["missing"], found["missing_total"]) == ("SEND", {"1": 4}, 4)
    assert found["consumer_ahead"] == pair.consumer.ruv()["ruv"]
    assert found["anchor"] is None
    assert pair.compare(strategy="CLASSIC")["anchor"]["inclusive"] is True
    assert pair.http.get(pair.sessions).json()["items"] == []
    path = f"{pair.store}/agreements/{pair.agreement['id']}"
    nobody = {"consumer": {"url": "http://127.0.0.1:1"}}
    assert pair.http.patch(path, json=nobody, headers={"If-Match": "*"}).status_code == 200
    answer = pair.http.post(f"{pair.sessions}:compare", json={"agreement_id": pair.agreement["id"]})
    problem(answer, 503, "CONSUMER_UNREACHABLE")


def test_sessions_are_listed_newest_first(pair: Pair) -> None:
    jobs = [pair.run("SUCCEEDED") for _ in range(3)]
    ids = [job["subject"]["id"] for job in jobs]
    page = pair.http.get(pair.sessions, params={"page_size": 2}).json()
    assert [each["id"] for each in page["items"]] == ids[:0:-1]
    rest = pair.http.get(pair.sessions, params={"page_size": 2, "page_token": page["next_page_token"]}).json()
    assert [each["id"] for each in rest["items"]] == ids[:1]
    mine = {"agreement_id": pair.agreement["id"], "state": "ENDED"}
    assert len(pair.http.get(pair.sessions, params=mine).json()["items"]) == 3
    problem(pair.http.get(f"{pair.sessions}/rps_{'0' * 26}"), 404, "REPLICATION_SESSION_NOT_FOUND")

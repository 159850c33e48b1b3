"""Audits over HTTP: two replicas that are equal, that lag, that were trimmed, and that differ by one byte."""

from __future__ import annotations

import base64
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from sqlalchemy.engine import make_url

from app.replication.audits import service as audits
from spark.formats.csn import Csn
from tests.http.problem import pointers, problem
from tests.http.replica_stores import ConsumerStore, make_replica
from tests.http.service_process import ServiceProcess, run_to_end
from tests.http.shop import accepted, wait_for
from tests.http.supplying import GENERATION, Pair, agree, make_pair, token_file, write

UNKNOWN = f"agr_{'0' * 26}"


@pytest.fixture(scope="session")
def service(sqlite_service: ServiceProcess) -> ServiceProcess:
    """One kind of metadata is enough: what is compared lies in the targets."""
    return sqlite_service


@pytest.fixture
def pair(http: httpx.Client, service: ServiceProcess, roots: Path) -> Pair:
    """Replica 1 with 40 changes, which replica 2 has too."""
    made = make_pair(http, service, roots)
    write(made.supplier, 40)
    made.run("SUCCEEDED")
    return made


def _ask(pair: Pair, **fields: Any) -> httpx.Response:
    return pair.http.post(f"{pair.store}/audits", json={"agreement_id": pair.agreement["id"]} | fields)


def _audit(pair: Pair, **fields: Any) -> dict[str, Any]:
    job = wait_for(pair.http, accepted(_ask(pair, **fields)))
    assert job["state"] == "SUCCEEDED", job
    result: dict[str, Any] = job["result"]
    return result


def _execute(store: ConsumerStore, statement: str, *parameters: Any) -> list[Any]:
    """Change a replica behind the service's back."""
    assert store.path is not None
    with closing(sqlite3.connect(store.path, timeout=10)) as connection, connection:
        return connection.execute(statement, parameters).fetchall()


def _csns(store: ConsumerStore) -> list[str]:
    return [csn for (csn,) in _execute(store, "select csn from replica_changelog order by csn")]


def test_equal_replicas_agree_completely(pair: Pair) -> None:
    found = _audit(pair)
    assert (found["agrees"], found["complete"], found["reason"]) == (True, True, None)
    [row] = found["rids"]
    assert row["supplier"] == row["consumer"]
    assert (row["rid"], row["supplier"]["count"], row["after"]) == (1, 40, None)
    assert (found["entries"]["agrees"], found["entries"]["supplier"]["count"]) == (True, 40)
    assert (found["differing"], found["truncated"]) == ([], False)
    [job] = pair.http.get(f"{pair.store}/audits").json()["items"]
    assert (job["kind"], job["state"]) == ("AUDIT", "SUCCEEDED")


def test_a_consumer_that_lags_agrees_as_far_as_it_is(pair: Pair) -> None:
    write(pair.supplier, 5, prefix="later")
    found = _audit(pair)
    assert (found["agrees"], found["complete"]) == (True, False)
    assert found["rids"][0]["supplier"]["count"] == 40
    assert (found["entries"]["agrees"], found["entries"]["not_compared"]) == (None, "RUVS_DIFFER")


def test_what_one_side_has_trimmed_is_left_out(pair: Pair) -> None:
    bound = _csns(pair.supplier)[9]
    _execute(pair.supplier, "delete from replica_changelog where csn <= ?", bound)
    _execute(pair.supplier, "update replica_ruv set purged_csn = ? where rid = 1", bound)
    found = _audit(pair)
    assert (found["agrees"], found["complete"]) == (True, True)
    assert (found["rids"][0]["after"], found["rids"][0]["supplier"]["count"]) == (bound, 30)


@pytest.mark.parametrize(
    ("statement", "kind", "counts"),
    [
        ("update replica_changelog set payload = x'00' where csn = ?", "DIFFERENT", (1, 1)),
        ("update replica_changelog set payload = null where csn = ?", "DIFFERENT", (1, 1)),
        ("delete from replica_changelog where csn = ?", "MISSING_AT_CONSUMER", (1, 0)),
    ],
)
@pytest.mark.parametrize("number", [0, 17, 39])
def test_one_change_that_differs_is_found(
    pair: Pair, statement: str, kind: str, counts: tuple[int, int], number: int
) -> None:
    csn = _csns(pair.supplier)[number]
    _execute(pair.consumer, statement, csn)
    found = _audit(pair, entries=False)
    assert (found["agrees"], found["rids"][0]["agrees"]) == (False, False)
    [difference] = found["differing"]
    assert (difference["kind"], difference["csn"]) == (kind, csn)
    assert (difference["supplier"], difference["consumer"]) == counts
    assert found["entries"]["not_compared"] == "NOT_ASKED_FOR"


def test_a_change_that_only_the_consumer_has_is_found_between_its_neighbours(pair: Pair) -> None:
    csns = _csns(pair.supplier)
    _execute(pair.supplier, "delete from replica_changelog where csn = ?", csns[20])
    found = _audit(pair, entries=False)
    [difference] = found["differing"]
    assert (difference["kind"], difference["csn"]) == ("MISSING_AT_SUPPLIER", None)
    assert difference["after"] < csns[20] <= difference["upto"]
    assert [csn for csn in csns if difference["after"] < csn <= difference["upto"]] == [csns[20]]


def test_many_differences_are_all_named_or_cut_off_with_a_word(pair: Pair) -> None:
    csns = _csns(pair.supplier)
    for number in (3, 4, 19, 38):
        _execute(pair.consumer, "update replica_changelog set key = x'ff' where csn = ?", csns[number])
    found = _audit(pair, entries=False)
    assert [item["csn"] for item in found["differing"]] == [csns[number] for number in (3, 4, 19, 38)]
    write(pair.supplier, 65, prefix="many")
    pair.run("SUCCEEDED")
    _execute(pair.consumer, "update replica_changelog set payload = x'01'")
    found = _audit(pair, entries=False)
    assert (found["truncated"], len(found["differing"])) == (True, 100)


def test_an_entry_that_differs_is_found_by_its_key(pair: Pair) -> None:
    _execute(pair.consumer, "update replica_entries set value = x'00' where key = ?", b"k000017")
    found = _audit(pair)
    assert (found["agrees"], found["rids"][0]["agrees"], found["entries"]["agrees"]) == (False, True, False)
    [difference] = found["entries"]["differing"]
    assert difference["kind"] == "DIFFERENT"
    assert base64.b64decode(difference["after"]["key"]) == b"k000016"
    assert base64.b64decode(difference["upto"]["key"]) == b"k000017"


def test_an_entry_that_is_missing_is_found(pair: Pair) -> None:
    _execute(pair.consumer, "delete from replica_entries where key = ?", b"k000000")
    [difference] = _audit(pair)["entries"]["differing"]
    assert (difference["kind"], difference["after"]) == ("MISSING_AT_CONSUMER", None)
    assert base64.b64decode(difference["upto"]["key"]) == b"k000000"


def test_a_range_is_compared_alone(pair: Pair) -> None:
    csns = _csns(pair.supplier)
    _execute(pair.consumer, "delete from replica_changelog where csn = ?", csns[30])
    found = _audit(pair, range={"1": [csns[3], csns[20]]}, entries=False)
    assert (found["agrees"], found["complete"]) == (True, False)
    assert found["rids"][0]["supplier"]["count"] == 17
    assert _audit(pair, range={"1": [csns[20], csns[39]]}, entries=False)["agrees"] is False
    [row] = _audit(pair, range={"7": [None, str(Csn.of(1, 0, 7))]}, entries=False)["rids"]
    assert (row["agrees"], row["not_compared"]) == (None, "ONLY_CONSUMER")


def test_another_generation_does_not_agree(http: httpx.Client, service: ServiceProcess, roots: Path) -> None:
    pair = make_pair(http, service, roots, generations=(GENERATION, "65000000000000020000"))
    write(pair.supplier, 1)
    write(pair.consumer, 1)
    found = _audit(pair)
    assert (found["agrees"], found["reason"], found["rids"]) == (False, "GENERATION_MISMATCH", [])


def test_a_range_that_is_none_is_refused(pair: Pair) -> None:
    csns = _csns(pair.supplier)
    for value in (
        {"0": [None, csns[0]]},
        {"1": [csns[0]]},
        {"1": [csns[1], csns[0]]},
        {"2": [None, csns[0]]},
        [],
    ):
        body = problem(_ask(pair, range=value), 422, "INVALID_REQUEST")
        assert pointers(body) == {"/range"}


def test_an_agreement_that_is_not_there_and_stores_of_other_kinds(pair: Pair) -> None:
    problem(_ask(pair, agreement_id=UNKNOWN), 404, "AGREEMENT_NOT_FOUND")
    body = {"id": f"je-{time.time_ns()}", "kind": "SYMMETRICDS", "url": f"sqlite:///{pair.supplier.path}"}
    assert pair.http.post("/v1/stores", json=body).status_code == 201
    for method, path in (("POST", "audits"), ("GET", "audits"), ("GET", "dead-letters")):
        json = {"agreement_id": UNKNOWN} if method == "POST" else None
        answer = pair.http.request(method, f"/v1/stores/{body['id']}/{path}", json=json)
        problem(answer, 409, "STORE_KIND_WRONG")


def test_a_consumer_that_is_away_is_waited_for(
    http: httpx.Client, service: ServiceProcess, roots: Path
) -> None:
    supplier = make_replica(http, rid=1, folder=roots, generation=GENERATION)
    token = f"file:{token_file(service, roots)}"
    made = agree(http, supplier.id, "nowhere", url="http://127.0.0.1:1", token=token).json()
    job_id = accepted(_ask(Pair(supplier, supplier, made)))
    job = wait_for(http, job_id, "WAITING")
    assert job["waiting_on"][0]["kind"] == "PEER"
    assert http.post(f"/v1/jobs/{job_id}:abort").status_code in (200, 202)
    assert wait_for(http, job_id)["state"] == "ABORTED"


@pytest.mark.postgresql
def test_replicas_on_two_kinds_of_databases_agree(
    http: httpx.Client, service: ServiceProcess, roots: Path, postgresql_url: str
) -> None:
    supplier = make_replica(http, rid=1, url=postgresql_url, generation=GENERATION)
    consumer = make_replica(http, rid=2, folder=roots, generation=GENERATION)
    token = f"file:{token_file(service, roots)}"
    pair = Pair(
        supplier, consumer, agree(http, supplier.id, consumer.id, url=service.url, token=token).json()
    )
    write(supplier, 100, value=bytes(range(256)))
    pair.run("SUCCEEDED")
    found = _audit(pair)
    assert (found["agrees"], found["complete"]) == (True, True)
    conninfo = make_url(postgresql_url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(conninfo) as connection:
        connection.execute(r"update replica_changelog set payload = '\x00' where key = 'k000050'")
    [difference] = _audit(pair)["differing"]
    assert difference["kind"] == "DIFFERENT"


@pytest.mark.long
def test_a_long_changelog_is_compared_in_pieces(pair: Pair) -> None:
    for prefix in ("a", "b"):
        write(pair.supplier, 40_000, prefix=prefix, value=b"v")
    pair.run("SUCCEEDED")
    found = _audit(pair)
    assert (found["agrees"], found["complete"]) == (True, True)
    assert found["rids"][0]["supplier"]["count"] == 80_040
    csns = _csns(pair.consumer)
    broken = [csns[100], csns[50_040], csns[80_039]]
    for csn in broken:
        _execute(pair.consumer, "update replica_changelog set payload = x'00' where csn = ?", csn)
    _execute(pair.consumer, "delete from replica_entries where key = ?", b"b039999")
    found = _audit(pair)
    assert [item["csn"] for item in found["differing"]] == broken
    [difference] = found["entries"]["differing"]
    assert difference["kind"] == "MISSING_AT_CONSUMER"


# -- the command


def test_the_command_ends_with_the_verdict(service: ServiceProcess, pair: Pair) -> None:
    arguments = ["replication", "audit", pair.supplier.id, pair.agreement["id"]]
    settings = {"LETHE_URL": service.url, "LETHE_TOKEN": service.token}
    run = run_to_end(arguments, settings=settings)
    assert run.returncode == 0, run.stderr
    assert "agrees" in run.stdout
    csn = _csns(pair.consumer)[11]
    _execute(pair.consumer, "delete from replica_changelog where csn = ?", csn)
    _execute(pair.consumer, "delete from replica_entries where key = ?", b"k000011")
    run = run_to_end(arguments, settings=settings)
    assert run.returncode == 1, run.stderr
    assert "MISSING_AT_CONSUMER" in run.stdout
    assert csn in run.stdout
    assert "k000011" in run.stdout
    run = run_to_end(
        [*arguments, "--range", f"1=..{_csns(pair.supplier)[5]}", "--no-entries"], settings=settings
    )
    assert run.returncode == 0, run.stderr
    run = run_to_end([*arguments, "--range", "nonsense"], settings=settings)
    assert run.returncode == 64


# -- the peer's route


def test_digests_are_a_peers_and_count_what_was_asked_for(pair: Pair) -> None:
    csns = _csns(pair.consumer)
    url = f"{pair.consumer.url}/digests"
    answer = pair.http.post(url, json={"ranges": {"1": [csns[4], csns[9]]}})
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert (body["rids"]["1"]["count"], body["rids"]["1"]["whole"], body["entries"]) == (5, True, None)
    assert body["ruv"] == {"1": csns[-1]}
    beyond = str(Csn.of(Csn(csns[-1]).timestamp + 5, 0, 1))
    body = pair.http.post(url, json={"ranges": {"1": [None, beyond]}, "entries": True}).json()
    assert (body["rids"]["1"]["count"], body["rids"]["1"]["whole"]) == (40, False)
    assert (body["entries"]["count"], body["entries"]["quiet"]) == (40, True)
    problem(pair.http.post(url, json={"ranges": {"1": [None, "xyz"]}}), 422, "INVALID_REQUEST")


def test_a_replica_under_total_initialisation_shows_no_digests(pair: Pair) -> None:
    _execute(pair.consumer, "update replica_replica set status = 'INITIALIZING'")
    answer = pair.http.post(f"{pair.consumer.url}/digests", json={"ranges": {}})
    problem(answer, 409, "REPLICA_INITIALIZING")
    found = _audit(pair)
    assert (found["agrees"], found["reason"]) == (False, "NO_RUV")


def test_the_greatest_csn_below_another_leaves_no_room() -> None:
    for csn in (Csn.of(5, 3, 1, 2), Csn.of(5, 3, 1), Csn.of(5, 0, 1), Csn.of(1, 0, 65_534)):
        below = audits.just_below(csn)
        assert below is not None
        assert below.rid == csn.rid
        assert below < csn
    assert audits.just_below(Csn.of(5, 3, 1, 2)) == Csn.of(5, 3, 1, 1)
    assert audits.just_below(Csn.of(0, 0, 1)) is None

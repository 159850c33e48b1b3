"""Dead letters over HTTP: in pages, cut to what a page can carry, and of replicas only."""

from __future__ import annotations

import base64
from pathlib import Path

import httpx
import pytest

from spark.formats.csn import Csn
from spark.replication.dead_letters import Direction, Refused, put_dead_letters, resolve_dead_letters
from spark.targets.connection import Target
from tests.http.problem import problem
from tests.http.replica_stores import ConsumerStore, make_replica
from tests.http.service_process import ServiceProcess, run_to_end
from tests.http.shop import Shop
from tests.spark.replication.replica_tables import opened

AT_S = 1_700_000_000


@pytest.fixture(scope="session")
def service(sqlite_service: ServiceProcess) -> ServiceProcess:
    """One kind of metadata is enough: the letters lie in the target."""
    return sqlite_service


@pytest.fixture
def replica(http: httpx.Client, roots: Path) -> ConsumerStore:
    """A replica that was written to, with letters of both directions."""
    store = make_replica(http, rid=1, folder=roots)
    change = {"database": "ZGI=", "key": "a2V5", "value": "dg=="}
    assert http.post(f"/v1/stores/{store.id}/changes", json=change).status_code == 200
    with opened(Target(f"sqlite:///{store.path}", table_prefix="replica_")) as conn:
        long = Refused(
            _csn(9), "CHANGE", b"db", b"\x00" * 9_000, b"v" * 100_000, "RECORD_TOO_LONG", "too long"
        )
        put_dead_letters(conn, Direction.RECEIVED, "paris/2", [long], now_s=AT_S)
        sent = [
            Refused(_csn(number), "NOVELTY", b"db", b"k", None, "KIND_UNKNOWN", "") for number in range(3)
        ]
        put_dead_letters(conn, Direction.SENT, "agr_a", sent, now_s=AT_S)
        put_dead_letters(conn, Direction.SENT, "agr_a", sent[2:], now_s=AT_S + 60)
        resolve_dead_letters(conn, Direction.SENT, {2: _csn(0)}, now_s=AT_S + 5)
    return store


def _csn(number: int) -> Csn:
    return Csn.of(AT_S + number, 0, 2)


def test_letters_come_in_pages_in_their_order(http: httpx.Client, replica: ConsumerStore) -> None:
    path = f"/v1/stores/{replica.id}/dead-letters"
    found, token = [], ""
    for _ in range(9):
        page = http.get(path, params={"page_size": 2, "page_token": token}).json()
        found += page["items"]
        token = page["next_page_token"]
        if not token:
            break
    assert [(each["direction"], each["csn"]) for each in found] == [
        ("RECEIVED", _csn(9)),
        ("SENT", _csn(0)),
        ("SENT", _csn(1)),
        ("SENT", _csn(2)),
    ]
    last = found[-1]
    assert (last["attempts"], last["first_at"], last["last_at"]) == (
        2,
        "2023-11-14T22:13:20Z",
        "2023-11-14T22:14:20Z",
    )
    assert (last["rid"], last["payload"], last["payload_bytes"]) == (2, None, None)
    opened_ones = http.get(path, params={"open_only": True}).json()["items"]
    assert [each["csn"] for each in opened_ones] == [_csn(9), _csn(1), _csn(2)]
    problem(http.get(path, params={"page_token": token or "x"}), 400, "INVALID_PAGE_TOKEN")


def test_what_was_refused_for_its_length_is_cut_and_its_length_told(
    http: httpx.Client, replica: ConsumerStore
) -> None:
    letter = http.get(f"/v1/stores/{replica.id}/dead-letters").json()["items"][0]
    assert len(base64.b64decode(letter["key"])) == 4_096
    assert (letter["key_bytes"], letter["payload"], letter["payload_bytes"]) == (9_000, None, 100_000)


def test_a_replica_that_was_never_used_has_none_and_stays_unmade(http: httpx.Client, roots: Path) -> None:
    store = make_replica(http, rid=1, folder=roots)
    assert http.get(f"/v1/stores/{store.id}/dead-letters").json() == {"items": [], "next_page_token": ""}
    assert store.path is not None
    assert not store.path.exists()


def test_stores_of_other_kinds_have_none(http: httpx.Client, shop: Shop) -> None:
    problem(http.get(f"/v1/stores/{shop.id}/dead-letters"), 409, "STORE_KIND_WRONG")
    problem(http.get("/v1/stores/nowhere/dead-letters"), 404, "STORE_NOT_FOUND")


def test_the_command_lists_them(service: ServiceProcess, replica: ConsumerStore) -> None:
    settings = {"LETHE_URL": service.url, "LETHE_TOKEN": service.token}
    run = run_to_end(["replication", "dead-letters", replica.id, "--open"], settings=settings)
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    assert len([line for line in lines if "KIND_UNKNOWN" in line]) == 2
    assert len([line for line in lines if "RECORD_TOO_LONG" in line]) == 1

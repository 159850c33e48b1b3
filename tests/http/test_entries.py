"""Entries by key and in pages, and the changelog as it is shown."""

from __future__ import annotations

import time
from pathlib import Path

import httpx
import pytest

from spark.formats.csn import Csn
from spark.formats.replica import DATABASE_MAX_BYTES, KEY_MAX_BYTES
from tests.http.problem import pointers, problem
from tests.http.replica_stores import acquire_body, grant_discard
from tests.http.service_process import ServiceProcess
from tests.http.writers import WrittenStore, change, make_written, text64, url64

LARGE = 1_048_576


@pytest.fixture(scope="session")
def service(sqlite_service: ServiceProcess) -> ServiceProcess:
    """One kind of metadata is enough: entries come from the target."""
    return sqlite_service


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def store(request: pytest.FixtureRequest, http: httpx.Client, roots: Path) -> WrittenStore:
    if request.param == "sqlite":
        return make_written(http, folder=roots)
    return make_written(http, url=request.getfixturevalue("postgresql_url"))


@pytest.fixture
def plain_store(http: httpx.Client, roots: Path) -> WrittenStore:
    return make_written(http, folder=roots)


def test_pages_go_through_all_keys_in_the_order_of_their_bytes(store: WrittenStore) -> None:
    keys = [b"\x00", b"\x00\x00", b"a", b"a\xff", b"a\xff\x00", b"b", b"\xc3\xa9", b"\xff", b"\xff\xff"]
    store.put_bulk({key: b"v" + key for key in reversed(keys)})
    for size in (1, 2, 4, 9, 500):
        assert list(store.entries(page_size=size)) == keys
    path = f"/v1/stores/{store.id}/entries"
    assert len(store.http.get(path, params={"page_size": 9}).json()["items"]) == 9
    assert store.http.get(path, params={"page_size": 9}).json()["next_page_token"] == ""


def test_a_database_and_a_prefix_narrow_the_list(store: WrittenStore) -> None:
    changes = [
        change(key, b"v", database=database)
        for database in (b"a", b"ab", b"b")
        for key in (b"k1", b"k2", b"k\xff", b"l")
    ]
    store.post({"changes": changes})
    assert len(list(store.pages(f"/v1/stores/{store.id}/entries", page_size=5))) == 12
    assert list(store.entries(database=url64(b"a"))) == [b"k1", b"k2", b"k\xff", b"l"]
    assert list(store.entries(database=url64(b"a"), prefix=url64(b"k"), page_size=2)) == [
        b"k1",
        b"k2",
        b"k\xff",
    ]
    assert list(store.entries(database=url64(b"a"), prefix=url64(b"k\xff"))) == [b"k\xff"]
    assert list(store.entries(database=text64(b"ab"), prefix="bA==")) == [b"l"]
    assert store.entries(database=url64(b"none")) == {}
    assert store.entry(b"l", database=b"ab").json()["database"] == text64(b"ab")


def test_large_values_end_a_page_early_and_lose_nothing(plain_store: WrittenStore) -> None:
    values: dict[bytes, bytes | None] = {b"k%02d" % number: bytes([number]) * LARGE for number in range(30)}
    for start in range(0, 30, 10):
        part = dict(list(values.items())[start : start + 10])
        assert plain_store.put_bulk(part).status_code == 200
    path = f"/v1/stores/{plain_store.id}/entries"
    page = plain_store.http.get(path, params={"page_size": 500}).json()
    assert 1 <= len(page["items"]) < 30
    assert page["next_page_token"]
    assert plain_store.entries(page_size=500) == values
    assert len(plain_store.records(page_size=500)) == 30


def test_an_entry_has_the_tag_of_its_change(store: WrittenStore) -> None:
    csn = store.put(b"k", b"v").json()["last_csn"]
    found = store.entry(b"k")
    assert found.headers["etag"] == f'"{csn}"'
    path = found.request.url.path
    same = store.http.get(path, headers={"If-None-Match": found.headers["etag"]})
    assert (same.status_code, same.content) == (304, b"")
    store.put(b"k", b"w")
    assert store.http.get(path, headers={"If-None-Match": found.headers["etag"]}).status_code == 200


def test_keys_of_any_bytes_have_a_path(store: WrittenStore) -> None:
    for key in (b"/", b"..", b"\x00", b"%2f", bytes(range(256)), bytes(2000), b">>>?"):
        assert store.put(key, b"v").status_code == 200
        assert store.entry(key).json()["key"] == text64(key)
    problem(store.entry(b"absent"), 404, "ENTRY_NOT_FOUND")


def test_the_changelog_is_listed_by_replica_and_from_a_csn(store: WrittenStore) -> None:
    csns = [store.put(b"k", b"%d" % number).json()["last_csn"] for number in range(5)]
    assert [item["csn"] for item in store.records(page_size=2)] == csns
    assert [item["csn"] for item in store.records(rid=1, after=csns[1], page_size=2)] == csns[2:]
    assert store.records(rid=2) == []
    assert store.records(after=csns[-1]) == []
    assert store.records()[0]["logged_at"].endswith("Z")


@pytest.mark.parametrize(
    ("path", "params", "pointer"),
    [
        ("entries", {"database": "!"}, "query:database"),
        ("entries", {"database": url64(bytes(256))}, "query:database"),
        ("entries", {"prefix": "ZA"}, "query:prefix"),
        ("entries", {"database": "ZA", "prefix": "Z"}, "query:prefix"),
        ("entries", {"page_size": "501"}, "query:page_size"),
        ("entries/!/ZA", {}, "path:database"),
        ("entries/ZA/Z", {}, "path:key"),
        ("changes", {"rid": "0"}, "query:rid"),
        ("changes", {"rid": "65535"}, "query:rid"),
        ("changes", {"after": "6B00af53000000010000"}, "query:after"),
        ("changes", {"rid": "2", "after": "6b00af53000000010000"}, "query:after"),
    ],
)
def test_what_names_nothing_is_refused_by_its_place(
    plain_store: WrittenStore, path: str, params: dict[str, str], pointer: str
) -> None:
    answer = plain_store.http.get(f"/v1/stores/{plain_store.id}/{path}", params=params)
    assert pointer in pointers(problem(answer, 422, "INVALID_REQUEST"))


def test_a_token_of_another_list_is_refused(store: WrittenStore) -> None:
    store.put_bulk({b"a": b"v", b"b": b"v"})
    path = f"/v1/stores/{store.id}/entries"
    token = store.http.get(path, params={"page_size": 1}).json()["next_page_token"]
    other = {"page_size": 1, "page_token": token, "tombstones": "true"}
    problem(store.http.get(path, params=other), 400, "INVALID_PAGE_TOKEN")
    problem(store.http.get(store.url, params={"page_token": token}), 400, "INVALID_PAGE_TOKEN")
    problem(store.http.get(path, params={"page_token": "e30"}), 400, "INVALID_PAGE_TOKEN")


def test_a_replica_that_was_never_written_shows_nothing_and_is_not_made(plain_store: WrittenStore) -> None:
    assert plain_store.entries() == {}
    assert plain_store.records() == []
    problem(plain_store.entry(b"k"), 404, "ENTRY_NOT_FOUND")
    assert plain_store.path is not None
    assert not plain_store.path.exists()


def test_a_replica_that_is_being_made_anew_shows_nothing_and_takes_nothing(store: WrittenStore) -> None:
    store.put(b"k", b"v")
    generation = "6afffdfc000000010000"
    now = Csn.of(int(time.time()), 0, 2)
    body = acquire_body("rps_total", generation=generation, csn_now=now, mode="TOTAL", rid=2)
    sessions = f"/v1/replicas/{store.id}/sessions"
    grant_discard(store, supplier_rid=2)
    begun = store.http.post(sessions, json=body | {"discard_consumer_changes": True})
    assert begun.status_code == 201, begun.text
    problem(store.http.get(f"/v1/stores/{store.id}/entries"), 409, "REPLICA_INITIALIZING")
    problem(store.http.get(store.url), 409, "REPLICA_INITIALIZING")
    problem(store.entry(b"k"), 409, "REPLICA_INITIALIZING")
    problem(store.put(b"k", b"w"), 409, "REPLICA_INITIALIZING")
    check = store.http.post(f"/v1/stores/{store.id}:check").json()
    assert [item["code"] for item in check["findings"]] == ["REPLICA_INITIALIZING"]
    assert check["can"] == ["CONSUME"]


def test_the_longest_keys_have_pages_too(plain_store: WrittenStore) -> None:
    keys = [bytes([number]) * KEY_MAX_BYTES for number in (7, 8, 9)]
    changes = [change(key, b"v", database=b"\xff" * DATABASE_MAX_BYTES) for key in keys]
    plain_store.post({"changes": changes})
    database = url64(b"\xff" * DATABASE_MAX_BYTES)
    assert list(plain_store.entries(page_size=1, database=database, prefix="")) == keys
    assert list(plain_store.entries(database=database, prefix=url64(keys[1]))) == keys[1:2]

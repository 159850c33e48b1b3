"""Local writes over HTTP: one, many, from many clients at once, on both kinds of target and of metadata."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from spark.formats.changes.batch import ARROW_MEDIA_TYPE, NDJSON_MEDIA_TYPE, encode_arrow
from spark.formats.replica import VALUE_MAX_BYTES
from tests.http.metadata_rows import MetadataRows
from tests.http.problem import pointers, problem
from tests.http.service_process import ServiceProcess
from tests.http.writers import WrittenStore, change, check_chain, local_batch, make_written, text64

WRITERS = 12
EACH = 15
BULK_ROWS = 3_000


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def store(request: pytest.FixtureRequest, http: httpx.Client, roots: Path) -> WrittenStore:
    if request.param == "sqlite":
        return make_written(http, folder=roots)
    return make_written(http, url=request.getfixturevalue("postgresql_url"))


@pytest.fixture
def plain_store(sqlite_service: ServiceProcess, http: httpx.Client, roots: Path) -> WrittenStore:
    return make_written(http, folder=roots)


def test_a_change_has_a_csn_an_entry_and_a_record(store: WrittenStore, metadata: MetadataRows) -> None:
    first = store.put(b"1001", b"a")
    assert first.status_code == 200, first.text
    written = first.json()
    assert (written["rid"], written["changes"]) == (1, 1)
    assert written["first_csn"] == written["last_csn"]
    second = store.put(b"1001", b"b").json()
    assert second["first_csn"] > written["last_csn"]
    entry = store.entry(b"1001")
    assert entry.json() == change(b"1001", b"b") | {
        "csn": second["last_csn"],
        "rid": 1,
        "is_tombstone": False,
    }
    records = store.records()
    check_chain(records)
    assert [(item["kind"], item["payload"]) for item in records] == [
        ("CHANGE", text64(b"a")),
        ("CHANGE", text64(b"b")),
    ]
    actions = metadata.query(
        f"select count(*) from audit_events where action = 'changes.write' and store = '{store.id}'",
        f"select own_max_csn from replicas where store = '{store.id}'",
    )
    assert [tuple(row) for row in actions] == [(2,), (second["last_csn"],)]


def test_a_null_deletes(store: WrittenStore) -> None:
    store.put(b"gone", b"a")
    deleted = store.put(b"gone", None).json()
    problem(store.entry(b"gone"), 404, "ENTRY_NOT_FOUND")
    assert store.entries() == {}
    shown = store.entry(b"gone", tombstones=True).json()
    assert (shown["value"], shown["is_tombstone"], shown["csn"]) == (None, True, deleted["last_csn"])
    assert store.entries(tombstones=True) == {b"gone": None}


@pytest.mark.parametrize("form", ["json", "arrow", "ndjson"])
def test_a_bulk_is_one_run_of_csns_in_its_order(store: WrittenStore, form: str) -> None:
    changes: dict[bytes, bytes | None] = {b"k%04d" % number: b"v%d" % number for number in range(700)}
    if form == "json":
        answer = store.post({"changes": [change(key, value) for key, value in changes.items()]})
    else:
        answer = store.put_bulk(changes, form=form)
    assert answer.status_code == 200, answer.text
    records = store.records(page_size=500)
    check_chain(records)
    assert [record["key"] for record in records] == [text64(key) for key in changes]
    assert (answer.json()["first_csn"], answer.json()["last_csn"]) == (records[0]["csn"], records[-1]["csn"])
    assert store.entries(page_size=300) == changes


def test_a_body_without_changes_writes_nothing(store: WrittenStore, metadata: MetadataRows) -> None:
    for answer in (store.post({"changes": []}), store.put_bulk({}), store.put_bulk({}, form="ndjson")):
        assert answer.status_code == 200, answer.text
        assert answer.json() == {"rid": 1, "changes": 0, "first_csn": None, "last_csn": None}
    assert store.records() == []
    audited = metadata.query(
        f"select count(*) from audit_events where action = 'changes.write' and store = '{store.id}'"
    )
    assert [tuple(row) for row in audited] == [(0,)]


def test_many_writers_at_once_lose_nothing_and_break_no_chain(
    store: WrittenStore, service: ServiceProcess
) -> None:
    def write(number: int) -> dict[bytes, str]:
        with service.http() as http:
            mine = WrittenStore(http, store.id)
            answers = {
                b"w%d-%d" % (number, turn): mine.put(b"w%d-%d" % (number, turn), b"x") for turn in range(EACH)
            }
        assert {answer.status_code for answer in answers.values()} == {200}, answers
        return {key: answer.json()["first_csn"] for key, answer in answers.items()}

    with ThreadPoolExecutor(WRITERS) as pool:
        written = {key: csn for part in pool.map(write, range(WRITERS)) for key, csn in part.items()}
    records = store.records(page_size=500)
    check_chain(records)
    assert {record["key"]: record["csn"] for record in records} == {text64(k): c for k, c in written.items()}
    assert store.entries(page_size=500) == dict.fromkeys(written, b"x")


@pytest.mark.postgresql
def test_two_instances_write_to_one_replica(
    postgresql_service: ServiceProcess, second_service: ServiceProcess, postgresql_url: str
) -> None:
    with postgresql_service.http() as http:
        store = make_written(http, url=postgresql_url)

        def write(number: int) -> list[str]:
            service = (postgresql_service, second_service)[number % 2]
            with service.http(postgresql_service.token) as client:
                mine = WrittenStore(client, store.id)
                answers = [mine.put(b"i%d-%d" % (number, turn), b"x") for turn in range(EACH)]
            assert {answer.status_code for answer in answers} == {200}, [answer.text for answer in answers]
            return [answer.json()["first_csn"] for answer in answers]

        with ThreadPoolExecutor(WRITERS) as pool:
            csns = sorted(csn for part in pool.map(write, range(WRITERS)) for csn in part)
        records = store.records(page_size=500)
        check_chain(records)
        assert [record["csn"] for record in records] == csns
        noted = MetadataRows(postgresql_service).query(
            f"select own_max_csn from replicas where store = '{store.id}'"
        )
        assert [tuple(row) for row in noted] == [(csns[-1],)]


def test_a_key_answers_the_same_again_and_writes_once(store: WrittenStore) -> None:
    first = store.put(b"k", b"a", idempotency="once")
    again = store.put(b"k", b"a", idempotency="once")
    assert (again.status_code, again.json()) == (200, first.json())
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    problem(store.put(b"k", b"b", idempotency="once"), 422, "IDEMPOTENCY_KEY_REUSED")
    assert len(store.records()) == 1


def test_a_key_belongs_to_its_token(
    store: WrittenStore, service: ServiceProcess, make_token: Callable[..., str]
) -> None:
    store.put(b"k", b"a", idempotency="shared")
    with service.http(make_token("changes:write")) as http:
        other = WrittenStore(http, store.id).put(b"k", b"b", idempotency="shared")
    assert (other.status_code, "idempotency-replayed" in other.headers) == (200, False)


def test_a_bulk_with_a_key_is_replayed_in_its_form(store: WrittenStore) -> None:
    changes: dict[bytes, bytes | None] = {b"k%d" % number: b"v" for number in range(50)}
    for form in ("arrow", "ndjson"):
        first = store.put_bulk(changes, form=form, idempotency=form)
        again = store.put_bulk(changes, form=form, idempotency=form)
        assert again.json() == first.json()
        assert again.headers["idempotency-replayed"] == "true"
    assert len(store.records(page_size=500)) == 100


def test_one_bad_request_among_many_fails_alone(store: WrittenStore, service: ServiceProcess) -> None:
    for number in range(WRITERS):
        store.put(b"seen", b"a", idempotency=f"taken-{number}")

    def write(number: int) -> int:
        with service.http() as http:
            mine = WrittenStore(http, store.id)
            if number % 3 == 0:
                return mine.put(b"seen", b"other", idempotency=f"taken-{number // 3}").status_code
            if number % 3 == 1:
                return mine.post({"database": "ZA==", "key": "", "value": None}).status_code
            return mine.put(b"good%d" % number, b"x").status_code

    with ThreadPoolExecutor(WRITERS) as pool:
        codes = list(pool.map(write, range(WRITERS * 3)))
    assert codes == [422, 422, 200] * WRITERS
    assert len(store.entries()) == WRITERS + 1


BAD_JSON = [
    ({"database": "ZA==", "key": "aw=="}, "/value"),
    ({"database": "ZA==", "key": "", "value": None}, "/key"),
    ({"database": "", "key": "aw==", "value": None}, "/database"),
    ({"database": "ZA", "key": "aw==", "value": None}, "/database"),
    ({"database": "ZA==", "key": "aw=", "value": None}, "/key"),
    ({"database": "ZA==", "key": "ax==", "value": None}, "/key"),
    ({"database": "ZA==", "key": "a-_=", "value": None}, "/key"),
    ({"database": "ZA==", "key": 7, "value": None}, "/key"),
    ({"database": "ZA==", "key": None, "value": None}, "/key"),
    ({"database": text64(bytes(256)), "key": "aw==", "value": None}, "/database"),
    ({"database": "ZA==", "key": text64(bytes(2001)), "value": None}, "/key"),
    ({"database": "ZA==", "key": "aw==", "value": text64(bytes(VALUE_MAX_BYTES + 1))}, "/value"),
    ({"database": "ZA==", "key": "aw==", "value": None, "kind": "CHANGE"}, "/kind"),
    ({"changes": [change(b"a", b"a"), {"database": "ZA==", "key": "*", "value": None}]}, "/changes/1/key"),
    ({"changes": [change(b"a", b"a")] * 1001}, "/changes"),
    ({"changes": None}, "/changes"),
]


@pytest.mark.parametrize(("body", "pointer"), BAD_JSON, ids=range(len(BAD_JSON)))
def test_bad_json_names_the_field_and_writes_nothing(
    plain_store: WrittenStore, body: object, pointer: str
) -> None:
    found = problem(plain_store.post(body), 422, "INVALID_REQUEST")
    assert pointer in pointers(found)
    assert plain_store.records() == []


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff", b"[" * 100_000], ids=["empty", "cut", "utf8", "deep"]
)
def test_what_is_no_json_is_refused(plain_store: WrittenStore, content: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    answer = plain_store.http.post(plain_store.url, content=content, headers=headers)
    problem(answer, 400, "INVALID_JSON")


ARROW = encode_arrow(local_batch({b"k": b"v"}))
BAD_BATCHES = [
    (ARROW_MEDIA_TYPE, ARROW[: len(ARROW) // 2]),
    (ARROW_MEDIA_TYPE, b""),
    (ARROW_MEDIA_TYPE, b"no arrow at all"),
    (ARROW_MEDIA_TYPE, encode_arrow(local_batch({b"k": b"v"}).select(["database", "key"]))),
    (ARROW_MEDIA_TYPE, encode_arrow(local_batch({b"": b"v"}))),
    (ARROW_MEDIA_TYPE, encode_arrow(local_batch({b"good": b"v", bytes(2001): b"v"}))),
    (NDJSON_MEDIA_TYPE, b'{"database":"ZA==","key":"aw==","value":null}\n{"database":"ZA=="}\n'),
    (NDJSON_MEDIA_TYPE, b'{"database":"ZA==","key":"aw==","value":null}\n{'),
    (NDJSON_MEDIA_TYPE, b'{"database":"ZA==","key":"aw==","value":"!"}\n'),
]


@pytest.mark.parametrize(("media_type", "content"), BAD_BATCHES, ids=range(len(BAD_BATCHES)))
def test_a_bulk_with_a_fault_is_refused_whole(
    plain_store: WrittenStore, media_type: str, content: bytes
) -> None:
    headers = {"Content-Type": media_type}
    answer = plain_store.http.post(plain_store.url, content=content, headers=headers)
    problem(answer, 422, "BATCH_UNREADABLE")
    assert plain_store.records() == []
    assert plain_store.entries() == {}


def test_other_media_types_are_refused(plain_store: WrittenStore) -> None:
    for media_type in ("text/csv", "application/octet-stream", "multipart/form-data; boundary=x"):
        headers = {"Content-Type": media_type}
        problem(
            plain_store.http.post(plain_store.url, content=b"x", headers=headers),
            415,
            "UNSUPPORTED_MEDIA_TYPE",
        )


def test_a_bulk_above_the_bound_is_refused(plain_store: WrittenStore) -> None:
    headers = {"Content-Type": NDJSON_MEDIA_TYPE}
    answer = plain_store.http.post(plain_store.url, content=b"\n" * 33_554_433, headers=headers)
    problem(answer, 413, "BODY_TOO_LARGE")


def test_a_bulk_that_decodes_to_more_than_the_bound_is_refused(plain_store: WrittenStore) -> None:
    zeros = bytes(VALUE_MAX_BYTES)
    answer = plain_store.put_bulk({b"k%d" % number: zeros for number in range(40)})
    problem(answer, 413, "BATCH_TOO_LARGE")
    assert plain_store.records() == []


def test_other_kinds_take_no_changes(http: httpx.Client, roots: Path) -> None:
    body = {"id": "no-replica", "kind": "SYMMETRICDS", "url": f"sqlite:///{roots}/no-replica.sqlite"}
    http.post("/v1/stores", json=body)
    store = WrittenStore(http, "no-replica")
    problem(store.put(b"k", b"v"), 409, "STORE_KIND_WRONG")
    problem(http.get("/v1/stores/no-replica/entries"), 409, "STORE_KIND_WRONG")
    problem(WrittenStore(http, "nowhere").put(b"k", b"v"), 404, "STORE_NOT_FOUND")


def test_writing_wants_its_scope_and_its_store(
    plain_store: WrittenStore, service: ServiceProcess, make_token: Callable[..., str]
) -> None:
    with service.http(make_token("stores:read")) as reader:
        problem(WrittenStore(reader, plain_store.id).put(b"k", b"v"), 403, "SCOPE_MISSING")
        for kind in ("entries", "changes"):
            refused = problem(reader.get(f"/v1/stores/{plain_store.id}/{kind}"), 403, "SCOPE_MISSING")
            assert refused["scope"] == "data:read"
    with service.http(make_token("data:read")) as reader:
        problem(WrittenStore(reader, plain_store.id).put(b"k", b"v"), 403, "SCOPE_MISSING")
        assert WrittenStore(reader, plain_store.id).entries() == {}
        assert WrittenStore(reader, plain_store.id).records() == []
    with service.http(make_token("changes:write", stores=["elsewhere"])) as stranger:
        problem(WrittenStore(stranger, plain_store.id).put(b"k", b"v"), 403, "STORE_FORBIDDEN")
    with service.http(make_token("changes:write", stores=[plain_store.id])) as writer:
        assert WrittenStore(writer, plain_store.id).put(b"k", b"v").status_code == 200


def test_a_typo_in_the_query_is_refused(plain_store: WrittenStore) -> None:
    answer = plain_store.http.post(plain_store.url, json=change(b"k", b"v"), params={"validate_only": "true"})
    problem(answer, 422, "INVALID_REQUEST")
    assert plain_store.records() == []


def test_a_target_that_cannot_be_written_is_a_problem(http: httpx.Client, roots: Path) -> None:
    store = make_written(http, url=f"sqlite:///{roots}/no/such/folder/r.db")
    problem(store.put(b"k", b"v"), 502, "TARGET_DATABASE_MISSING")
    away = make_written(http, url="postgresql+psycopg://lethe@127.0.0.1:1/none")
    problem(away.put(b"k", b"v"), 503, "TARGET_UNREACHABLE")

"""What a peer may send by mistake or malice: a clear problem, and a replica that is row for row as it was."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from app.kit.ids import new_id
from spark.formats.changes.batch import ARROW_MEDIA_TYPE, NDJSON_MEDIA_TYPE, encode_arrow, encode_ndjson
from spark.formats.csn import Csn
from spark.replication.proofs.values import PROOF_MAX_BYTES
from spark.targets.connection import Target
from tests.http.problem import pointers, problem
from tests.http.replica_stores import ConsumerStore, acquire_body, make_replica
from tests.http.service_process import ServiceProcess
from tests.spark.replication.consumer_side import HELD, ConsumerSide, Row, change, records
from tests.spark.replication.consumer_side import chain as chain_of
from tests.spark.replication.replica_tables import opened, postgresql_target

GENERATION = Csn.of(1_700_000_000, 0, 1)
PAST_S = 1_750_000_000
DAY_S = 86_400
BATCH_MAX_BYTES = 8_388_608

Corrupt = Callable[[bytes], bytes]


def past(number: int, rid: int) -> Csn:
    """A CSN that the service's clock has passed."""
    return Csn.of(PAST_S + number, 0, rid)


def chain(rid: int, numbers: list[int], *, after: Csn | None = None) -> list[Row]:
    """Linked changes of the past."""
    return chain_of(rid, numbers, after=after, csn_of=past)


def now_csn(*, ahead_s: int = 0, rid: int = 1) -> Csn:
    """What a supplier's generator would give now."""
    return Csn.of(int(time.time()) + ahead_s, 0, rid)


class Opened:
    """A consumer in a session that has brought one change, and its tables."""

    def __init__(self, store: ConsumerStore, target: Target) -> None:
        self.store = store
        self.target = target
        self.session = new_id("rps")
        granted = store.acquire(
            session_id=self.session, generation=GENERATION, csn_now=now_csn(), lease="PT1H"
        )
        assert granted.status_code == 201, granted.text
        self.epoch = int(granted.json()["epoch"])
        assert self.send(records(chain(1, [1])), seq=1).status_code == 200

    def send(
        self, body: bytes | pa.RecordBatch, *, seq: int = 2, media_type: str = ARROW_MEDIA_TYPE, **fields: Any
    ) -> httpx.Response:
        """One batch, by default the one whose turn it is."""
        epoch = fields.get("epoch", self.epoch)
        session = fields.get("session_id", self.session)
        return self.store.send(session, body, epoch=epoch, seq=seq, media_type=media_type)

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Every row of every table stays, and the next good batch is taken."""
        before = self._rows()
        yield
        assert self._rows() == before

    def _rows(self) -> dict[str, list[tuple[Any, ...]]]:
        with opened(self.target) as conn:
            side = ConsumerSide(conn)
            return {table: side.rows(table) for table in (*HELD, "session")}


@pytest.fixture(scope="session")
def service(sqlite_service: ServiceProcess) -> ServiceProcess:
    """One kind of metadata is enough: nothing of this is written there."""
    return sqlite_service


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def open_session(
    request: pytest.FixtureRequest, sqlite_service: ServiceProcess, roots: Path
) -> Iterator[Opened]:
    """A session on either kind of target; every test leaves it as it was."""
    with sqlite_service.http() as http:
        if request.param == "sqlite":
            store = make_replica(http, rid=9, folder=roots, generation=GENERATION)
            yield Opened(store, Target(f"sqlite:///{store.path}", table_prefix="replica_"))
            return
        server = request.getfixturevalue("postgresql_server")
        name = new_id("h").replace("-", "_")
        server.execute(f"create database {name}")
        url = server.url(name)
        yield Opened(make_replica(http, rid=9, url=url, generation=GENERATION), postgresql_target(url))
        server.execute(f"drop database if exists {name} with (force)")


def good() -> list[Row]:
    """What would be applied."""
    return chain(1, [2, 3], after=past(1, 1))


def as_text(name: str, value: str) -> Callable[[], bytes]:
    """An Arrow body whose last row has another text in one column."""

    def body() -> bytes:
        batch = records(good())
        texts = batch.column(name).to_pylist()
        texts[-1] = value
        columns = [
            pa.array(texts) if field.name == name else batch.column(field.name) for field in batch.schema
        ]
        return encode_arrow(pa.RecordBatch.from_arrays(columns, schema=batch.schema))

    return body


def corrupt(change_bytes: Corrupt) -> Callable[[], bytes]:
    """A good Arrow body, broken."""
    return lambda: change_bytes(encode_arrow(records(good())))


def wrong_zstd() -> bytes:
    """Buffers that are said to be zstd and are not."""
    body = bytearray(encode_arrow(records(good() + chain(3, list(range(1, 200))))))
    magic = b"\x28\xb5\x2f\xfd"
    assert magic in body
    while magic in body:
        at = body.index(magic)
        body[at : at + 4] = b"\x00\x11\x22\x33"
    return bytes(body)


def other_schema() -> bytes:
    """Columns of something else."""
    return encode_arrow(pa.RecordBatch.from_pydict({"csn": ["x"], "colour": ["red"]}))


UNREADABLE = {
    "nothing": lambda: b"",
    "garbage": lambda: b"\x00" * 500,
    "json": lambda: b'{"csn": 1}',
    "cut-off": corrupt(lambda body: body[: len(body) // 2]),
    "without-its-end": corrupt(lambda body: body[:-200]),
    "first-byte-lost": corrupt(lambda body: body[1:]),
    "wrong-zstd": wrong_zstd,
    "other-schema": other_schema,
    "csn-in-capitals": as_text("csn", "6B3A8FC10000000100AB"),
    "csn-too-short": as_text("csn", "6b3a8fc1"),
    "csn-of-replica-65535": as_text("csn", "6b3a8fc10000ffff0000"),
    "csn-not-after-the-one-before": as_text("csn", str(past(1, 1))),
    "prev-malformed": as_text("prev", "x" * 20),
    "prev-of-another-replica": as_text("prev", str(past(1, 3))),
    "prev-after-its-csn": as_text("prev", str(past(9, 1))),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_a_body_that_is_no_batch_is_refused(open_session: Opened, case: str) -> None:
    body = UNREADABLE[case]()
    with open_session.unchanged():
        refused = problem(open_session.send(body), 422, "BATCH_UNREADABLE")
    assert refused["detail"]


@pytest.mark.parametrize(
    "line",
    [b"{", b"[]", b"\xff\xfe", b'{"csn": "x"}', b'{"csn": 1, "csn": 2}', b"[" * 10_000],
    ids=["cut-off", "list", "no-utf-8", "lacks-fields", "twice", "deep"],
)
def test_lines_that_are_no_records_are_refused(open_session: Opened, line: bytes) -> None:
    body = encode_ndjson(records(good())) + line + b"\n"
    with open_session.unchanged():
        problem(open_session.send(body, media_type=NDJSON_MEDIA_TYPE), 422, "BATCH_UNREADABLE")


@pytest.mark.parametrize("media_type", ["application/json", "text/plain", ""])
def test_another_media_type_is_refused(open_session: Opened, media_type: str) -> None:
    with open_session.unchanged():
        problem(open_session.send(records(good()), media_type=media_type), 415, "UNSUPPORTED_MEDIA_TYPE")


def test_more_rows_than_agreed_are_refused(open_session: Opened) -> None:
    rows = chain(3, list(range(1, 10_002)))
    with open_session.unchanged():
        problem(open_session.send(records(rows)), 413, "BATCH_TOO_LARGE")


def test_a_small_body_that_decodes_to_more_than_agreed_is_refused(open_session: Opened) -> None:
    rows = [change(past(number, 3), None, value=b"\x00" * 1_000_000) for number in range(1, 11)]
    body = encode_arrow(records(rows))
    assert len(body) < 100_000
    with open_session.unchanged():
        problem(open_session.send(body), 413, "BATCH_TOO_LARGE")


def test_a_body_larger_than_agreed_is_refused_before_it_is_read(open_session: Opened) -> None:
    most = BATCH_MAX_BYTES + PROOF_MAX_BYTES

    def chunks() -> Iterator[bytes]:
        for _ in range(most // 65_536 + 2):
            yield b"\x00" * 65_536

    with open_session.unchanged():
        problem(open_session.send(b"\x00" * (most + 1)), 413, "BATCH_TOO_LARGE")
        answer = open_session.store.http.post(
            f"{open_session.store.url}/sessions/{open_session.session}/batches",
            params={"epoch": open_session.epoch, "batch_seq": 2},
            content=chunks(),
            headers={"Content-Type": ARROW_MEDIA_TYPE},
        )
        problem(answer, 413, "BATCH_TOO_LARGE")


def test_a_body_of_a_size_that_other_requests_may_not_have_is_taken(open_session: Opened) -> None:
    rows = [change(past(1, 2), past(0, 2), value=b"\x01" * 1_048_000), change(past(1, 3), past(0, 3))]
    body = encode_ndjson(records(rows))
    assert len(body) > 1_048_576
    with open_session.unchanged():  # read whole, and refused for what it says
        problem(open_session.send(body, media_type=NDJSON_MEDIA_TYPE), 409, "PREV_GAP")


def test_a_hole_is_refused(open_session: Opened) -> None:
    with open_session.unchanged():
        refused = problem(open_session.send(records(chain(1, [3], after=past(2, 1)))), 409, "PREV_GAP")
    assert {name: refused[name] for name in ("rid", "csn", "prev", "ruv")} == {
        "rid": 1,
        "csn": past(3, 1),
        "prev": past(2, 1),
        "ruv": past(1, 1),
    }
    assert refused["retryable"] is False


def test_a_batch_of_a_foreign_session_or_epoch_is_refused(open_session: Opened) -> None:
    body = records(good())
    with open_session.unchanged():
        problem(open_session.send(body, session_id=new_id("rps")), 404, "SESSION_NOT_FOUND")
        problem(open_session.send(body, session_id="bks_1"), 404, "SESSION_NOT_FOUND")
        stale = problem(open_session.send(body, epoch=open_session.epoch + 5), 409, "STALE_EPOCH")
    assert stale["epoch"] == open_session.epoch


@pytest.mark.parametrize(
    "params", [{"epoch": 0}, {"epoch": 2**70}, {"batch_seq": 0}, {"batch_seq": "x"}, {"more": 1}]
)
def test_numbers_that_are_none_are_refused(open_session: Opened, params: dict[str, Any]) -> None:
    store = open_session.store
    with open_session.unchanged():
        answer = store.http.post(
            f"{store.url}/sessions/{open_session.session}/batches",
            params={"epoch": open_session.epoch, "batch_seq": 2} | params,
            content=encode_arrow(records(good())),
            headers={"Content-Type": ARROW_MEDIA_TYPE},
        )
        problem(answer, 422, "INVALID_REQUEST")


def test_a_replayed_batch_is_answered_again(open_session: Opened) -> None:
    before = open_session.store.ruv()
    answer = open_session.send(records(chain(1, [1])), seq=1)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert (found["replayed"], found["applied"], found["covered"]) == (True, 0, 1)
    assert open_session.store.ruv() == before


def _acquire(**fields: Any) -> dict[str, Any]:
    return acquire_body(
        **({"session_id": new_id("rps"), "generation": GENERATION, "csn_now": now_csn()} | fields)
    )


def _without(name: str) -> dict[str, Any]:
    body = _acquire()
    del body["supplier"][name]
    return body


@pytest.mark.parametrize(
    ("make", "pointer"),
    [
        pytest.param(lambda: _acquire(csn_now="6B"), "/supplier/csn_now", id="csn"),
        pytest.param(lambda: _acquire(csn_now=5), "/supplier/csn_now", id="csn-a-number"),
        pytest.param(lambda: _acquire(ruv={1: "x"}), "/supplier/ruv", id="ruv-csn"),
        pytest.param(lambda: _acquire(ruv={0: past(1, 1)}), "/supplier/ruv", id="ruv-rid"),
        pytest.param(lambda: _acquire(ruv={2: past(1, 1)}), "/supplier/ruv", id="ruv-of-another"),
        pytest.param(lambda: _acquire(generation="abc"), "/supplier/generation", id="generation"),
        pytest.param(lambda: _acquire(rid=65_535), "/supplier/rid", id="rid"),
        pytest.param(lambda: _acquire(lease="PT0S"), "/lease", id="lease"),
        pytest.param(lambda: _acquire(lease="PT2H"), "/lease", id="long-lease"),
        pytest.param(lambda: _acquire(session_id="rps-1"), "/session_id", id="session"),
        pytest.param(lambda: _acquire(mode="PARTIAL"), "/mode", id="mode"),
        pytest.param(lambda: _without("ruv"), "/supplier/ruv", id="no-ruv"),
        pytest.param(lambda: _acquire(protocol="1"), "/protocol", id="protocol-a-text"),
    ],
)
def test_an_acquire_that_cannot_be_read_is_refused(
    open_session: Opened, make: Callable[[], dict[str, Any]], pointer: str
) -> None:
    with open_session.unchanged():
        answer = open_session.store.http.post(
            f"{open_session.store.url}/sessions",
            content=json.dumps(make(), default=str),
            headers={"Content-Type": "application/json"},
        )
        assert pointer in pointers(problem(answer, 422, "INVALID_REQUEST"))


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        pytest.param({"protocol": 2}, 422, "PROTOCOL_UNKNOWN", id="protocol"),
        pytest.param({"csn_now": now_csn(ahead_s=2 * DAY_S)}, 409, "CLOCK_SKEW", id="clock"),
        pytest.param(
            {"ruv": {3: now_csn(ahead_s=2 * DAY_S, rid=3)}}, 409, "CLOCK_SKEW", id="ruv-of-the-future"
        ),
        pytest.param({"rid": 9}, 409, "DUPLICATE_RID", id="rid"),
        pytest.param({"rid": 2}, 409, "REPLICA_BUSY", id="busy"),
    ],
)
def test_an_acquire_that_is_refused_changes_nothing(
    open_session: Opened, fields: dict[str, Any], status: int, code: str
) -> None:
    body = {"session_id": new_id("rps"), "generation": GENERATION, "csn_now": now_csn()} | fields
    with open_session.unchanged():
        refused = problem(open_session.store.acquire(**body), status, code)
    if code == "REPLICA_BUSY":
        assert refused["supplier_rid"] == 1
        assert open_session.session not in str(refused)
        assert (refused["supplier_store"], refused["retryable"]) == ("supplier-1", True)
        assert refused["expires_at"].endswith("Z")


def test_the_protocol_is_looked_at_before_everything_else(open_session: Opened) -> None:
    answer = open_session.store.http.post(
        "/v1/replicas/no-such-store/sessions", json={"protocol": 3, "new": []}
    )
    problem(answer, 422, "PROTOCOL_UNKNOWN")


def test_a_store_that_is_missing_or_of_another_kind_is_refused(open_session: Opened, shop: Any) -> None:
    http = open_session.store.http
    for request in (
        lambda name: http.post(f"/v1/replicas/{name}/sessions", json=_acquire(generation=GENERATION)),
        lambda name: http.get(f"/v1/replicas/{name}/ruv"),
        lambda name: http.delete(f"/v1/replicas/{name}/sessions/{new_id('rps')}?epoch=1"),
    ):
        problem(request("none"), 404, "STORE_NOT_FOUND")
        problem(request(shop.id), 409, "STORE_KIND_WRONG")


def test_a_token_needs_the_scope_and_the_store(
    open_session: Opened, sqlite_service: ServiceProcess, make_token: Callable[..., str]
) -> None:
    store = open_session.store
    tokens = {
        "SCOPE_MISSING": make_token("replication:write", "stores:read", "changes:write"),
        "STORE_FORBIDDEN": make_token("replication:peer", stores=["another"]),
    }
    body = _acquire(generation=GENERATION)
    for code, secret in tokens.items():
        with sqlite_service.http(secret) as peer, open_session.unchanged():
            other = ConsumerStore(http=peer, id=store.id, path=None)
            problem(peer.post(f"{store.url}/sessions", json=body), 403, code)
            batch = other.send(open_session.session, records(good()), epoch=open_session.epoch, seq=2)
            problem(batch, 403, code)
            problem(peer.get(f"{store.url}/ruv"), 403, code)
            problem(other.release(open_session.session, epoch=open_session.epoch), 403, code)
    allowed = make_token("replication:peer", stores=[store.id])
    with sqlite_service.http(allowed) as peer:
        assert peer.get(f"{store.url}/ruv").status_code == 200
        problem(peer.get("/v1/stores"), 403, "SCOPE_MISSING")

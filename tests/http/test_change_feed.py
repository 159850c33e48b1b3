"""The change feed of real services: pages, polls, streams and Arrow, their limits, kills among readers."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from lethe_client import AsyncLethe, Lethe, LetheError, RetryPolicy

from app.kit.ids import new_id
from app.kit.pagination import encode_token
from spark.formats.changes.batch import ARROW_MEDIA_TYPE
from spark.formats.csn import Csn
from tests.http.problem import pointers, problem
from tests.http.replica_stores import ConsumerStore
from tests.http.service_process import ServiceProcess
from tests.http.writers import WrittenStore, make_written, text64, url64
from tests.spark.replication.consumer_side import chain, records

PATIENCE_S = 60.0


@pytest.fixture(scope="session")
def service(sqlite_service: ServiceProcess) -> ServiceProcess:
    """One kind of metadata is enough: the feed lies in the target."""
    return sqlite_service


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def written(request: pytest.FixtureRequest, http: httpx.Client, roots: Path) -> WrittenStore:
    """A replica on either kind of target."""
    if request.param == "sqlite":
        return make_written(http, folder=roots)
    return make_written(http, url=request.getfixturevalue("postgresql_url"))


def page(store: WrittenStore, **params: Any) -> dict[str, Any]:
    """One page of the feed."""
    answer = store.http.get(f"{store.url}/feed", params=params)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def keys_of(found: dict[str, Any]) -> list[bytes]:
    return [base64.b64decode(item["key"]) for item in found["items"]]


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, "it never was"
        time.sleep(0.02)


def test_pages_polls_and_arrow_tell_the_same(written: WrittenStore) -> None:
    # An empty replica has an empty page, and a cursor that goes on.
    begin = page(written)
    assert (begin["items"], begin["more"]) == ([], False)
    assert page(written, cursor=begin["cursor"])["items"] == []
    for number in range(5):
        written.put(b"k%d" % number, None if number == 3 else b"v")
    first = page(written, cursor=begin["cursor"], page_size=2)
    assert (keys_of(first), first["more"]) == ([b"k0", b"k1"], True)
    rest = page(written, cursor=first["cursor"])
    assert (keys_of(rest), rest["more"]) == ([b"k2", b"k3", b"k4"], False)
    assert first["items"] + rest["items"] == written.records()
    # From now on, and what a filter passes over is behind the cursor as well.
    latest = page(written, starting="latest")
    assert latest["items"] == []
    narrowed = {"database": url64(b"orders"), "prefix": url64(b"k4")}
    assert keys_of(page(written, **narrowed)) == [b"k4"]
    none = page(written, database=url64(b"other"))
    assert (none["items"], none["more"], none["cursor"]) == ([], False, rest["cursor"])
    # Arrow: the same records, the cursor beside them.
    accept = {"Accept": ARROW_MEDIA_TYPE}
    arrow = written.http.get(f"{written.url}/feed", params={"page_size": 4}, headers=accept)
    assert arrow.headers["content-type"] == ARROW_MEDIA_TYPE
    assert arrow.headers["lethe-more"] == "true"
    table = pa.ipc.open_stream(arrow.content).read_all()
    assert table.column("csn").to_pylist() == [item["csn"] for item in written.records()[:4]]
    assert table.column("payload").to_pylist() == [b"v", b"v", b"v", None]
    assert keys_of(page(written, cursor=arrow.headers["lethe-cursor"])) == [b"k4"]
    # A poll that waits hears of a write of this process, and of a session's batch, long before its end.
    for key, write in ((b"later", _put), (b"9/1", _bring)):
        heard: list[tuple[list[bytes], float]] = []
        cursor = page(written, starting="latest")["cursor"]
        thread = threading.Thread(target=_poll, args=(written, cursor, heard))
        thread.start()
        time.sleep(0.3)
        write(written, key)
        thread.join(PATIENCE_S)
        [(keys, took_s)] = heard
        assert keys == [key]
        assert 0.2 < took_s < 20


def _put(store: WrittenStore, key: bytes) -> None:
    assert store.put(key, b"v").status_code == 200


def _bring(store: WrittenStore, key: bytes) -> None:
    """A supplier brings a change of its own."""
    now_s, session_id = int(time.time()), new_id("rps")
    replica = ConsumerStore(store.http, store.id, store.path)
    generation = store.http.get(f"/v1/replicas/{store.id}/ruv").json()["generation"]
    granted = replica.acquire(
        session_id=session_id, generation=generation, csn_now=Csn.of(now_s, 0, 9), rid=9
    )
    assert granted.status_code == 201, granted.text
    rows = chain(9, [1], csn_of=lambda number, rid: Csn.of(now_s - 100 + number, 0, rid))
    assert rows[0][4] == key
    epoch = granted.json()["epoch"]
    sent = replica.send(session_id, records(rows), epoch=epoch, seq=1)
    assert sent.json()["applied"] == 1, sent.text
    replica.release(session_id, epoch=epoch)


def _poll(store: WrittenStore, cursor: str, heard: list[tuple[list[bytes], float]]) -> None:
    begun_s = time.monotonic()
    params, headers = {"cursor": cursor}, {"Prefer": "wait=25"}
    answer = store.http.get(f"{store.url}/feed", params=params, headers=headers, timeout=40)
    heard.append((keys_of(answer.json()), time.monotonic() - begun_s))


def test_what_cannot_be_served_is_refused(written: WrittenStore, http: httpx.Client, roots: Path) -> None:
    for key in (b"a", b"b"):
        written.put(key, b"v")
    cursor = page(written)["cursor"]
    for bad in ("A", "AQAA", cursor[:-4], cursor[:20] + ("A" if cursor[20] != "A" else "B") + cursor[21:]):
        answer = http.get(f"{written.url}/feed", params={"cursor": bad})
        assert pointers(problem(answer, 422, "INVALID_REQUEST")) == {"query:cursor"}
    answer = http.get(f"{written.url}/feed", headers={"Last-Event-ID": "x"})
    assert pointers(problem(answer, 422, "INVALID_REQUEST")) == {"header:Last-Event-ID"}
    answer = http.get(f"{written.url}/feed", params={"prefix": url64(b"a")})
    assert pointers(problem(answer, 422, "INVALID_REQUEST")) == {"query:prefix"}
    # Another topology's replica, and one that holds nothing.
    other = make_written(http, folder=roots)
    found = problem(http.get(f"{other.url}/feed", params={"cursor": cursor}), 409, "CURSOR_AHEAD")
    assert found["rids"] == [1]
    time.sleep(1.1)  # a CSN of a later second than the cursor's
    other.put(b"x", b"v")
    problem(http.get(f"{other.url}/feed", params={"cursor": cursor}), 410, "CURSOR_GENERATION")
    # A stream is refused as a page is: before it begins.
    headers = {"Accept": "text/event-stream", "Last-Event-ID": cursor}
    problem(http.get(f"{other.url}/feed", headers=headers), 410, "CURSOR_GENERATION")


def test_a_page_token_that_was_made_up_is_refused(written: WrittenStore, http: httpx.Client) -> None:
    written.put(b"a", b"v")
    key, database = url64(b"a"), url64(b"d")
    for path, filters in (
        (
            f"/v1/stores/{written.id}/entries/{database}/{key}/history",
            {"list": "history", "store": written.id, "of": [database, key]},
        ),
        (
            f"{written.url}/overwritten",
            {"list": "overwritten", "store": written.id, "of": [None, ["CONCURRENT", "UNCERTAIN"], ""]},
        ),
    ):
        for made_up in ("x", "\0", "zz" * 10):
            token = encode_token([made_up], filters)
            problem(http.get(path, params={"page_token": token}), 400, "INVALID_PAGE_TOKEN")
        assert http.get(path, params={"page_token": encode_token(["0" * 20], filters)}).status_code == 200


def test_a_file_that_was_put_back_refuses_who_is_ahead(http: httpx.Client, roots: Path) -> None:
    store = make_written(http, folder=roots)
    store.put(b"kept", b"v")
    assert store.path is not None
    behind = page(store)["cursor"]
    time.sleep(0.5)  # its connections are closed, and the file is whole
    shutil.copy(store.path, f"{store.path}.kept")
    store.put(b"lost", b"v")
    ahead = page(store)["cursor"]
    time.sleep(0.5)
    for suffix in ("-wal", "-shm"):
        Path(f"{store.path}{suffix}").unlink(missing_ok=True)
    shutil.copy(f"{store.path}.kept", store.path)
    problem(http.get(f"{store.url}/feed", params={"cursor": ahead}), 409, "CURSOR_AHEAD")
    assert page(store, cursor=behind)["items"] == []


class Ears:
    """A reader of a stream, in a thread of its own, that cuts its connections as often as it likes."""

    def __init__(
        self, service: ServiceProcess, store_id: str, token: str | None = None, **asked: Any
    ) -> None:
        self.heard: list[tuple[int, str, bytes]] = []
        self.error: Exception | None = None
        self.cuts = 0
        self.cut_every: int | None = asked.pop("cut_every", None)
        self.is_closed = False
        self._client = Lethe(service.url, token or service.token, retries=RetryPolicy(total_s=PATIENCE_S))
        self._thread = threading.Thread(target=self._listen, args=(store_id, asked), daemon=True)
        self._thread.start()

    def _listen(self, store_id: str, asked: dict[str, Any]) -> None:
        cursor: str | None = None
        draw = random.Random(store_id)
        try:
            while not self.is_closed:
                with closing(self._client.changes.follow(store_id, cursor, **asked)) as stream:
                    wanted = None if self.cut_every is None else draw.randint(1, self.cut_every)
                    for change in itertools.islice(stream, wanted):
                        self.heard.append((change.rid, change.csn, change.key))
                        cursor = change.cursor
                self.cuts += 1
        except (LetheError, RuntimeError) as error:  # httpx says so of a client that was closed
            self.error = None if self.is_closed else error

    def close(self) -> None:
        self.is_closed = True
        self._client.close()


def test_a_stream_goes_on_where_it_was_and_ends_with_its_token(
    written: WrittenStore, service: ServiceProcess, http: httpx.Client
) -> None:
    body = {"name": "reader", "scopes": ["data:read"], "stores": [written.id]}
    token = http.post("/v1/tokens", json=body).json()
    ears = Ears(service, written.id, token["token"], prefix=b"a", database=b"orders")
    for key in (b"a1", b"b1", b"a2"):
        written.put(key, b"v")
    wait_until(lambda: len(ears.heard) == 2)
    assert [key for _, _, key in ears.heard] == [b"a1", b"a2"]
    assert http.post(f"/v1/tokens/{token['id']}:revoke").status_code == 200
    wait_until(lambda: ears.error is not None)  # the stream ends, and the next connection is refused
    assert getattr(ears.error, "status", None) == 401
    ears.close()
    # What the raw stream says: where it begins, then each change behind Last-Event-ID.
    cursor = page(written, page_size=1)["cursor"]
    headers = {"Accept": "text/event-stream", "Last-Event-ID": cursor}
    with http.stream("GET", f"{written.url}/feed", headers=headers) as answer:
        lines = answer.iter_lines()
        taken = list(itertools.islice(lines, 9))
    assert taken[:3] == ["retry: 1000", f"id: {cursor}", "event: ready"]
    assert taken[6] == "event: change"
    assert json.loads(taken[7].removeprefix("data: "))["key"] == text64(b"b1")


def test_the_client_that_waits_follows_too(written: WrittenStore, service: ServiceProcess) -> None:
    for key in (b"a", b"b", b"c"):
        written.put(key, b"v")

    async def follow() -> list[bytes]:
        async with AsyncLethe(service.url, service.token) as client:
            page = await client.changes.feed(written.id, page_size=1)
            found = [item.key for item in page.items]
            async for change in client.changes.follow(written.id, page.cursor):
                found.append(change.key)
                if len(found) == 3:
                    return found
        return found

    assert asyncio.run(follow()) == [b"a", b"b", b"c"]


def test_whose_token_is_of_other_stores_learns_nothing(
    written: WrittenStore,
    service: ServiceProcess,
    http: httpx.Client,
    roots: Path,
    make_token: Callable[..., str],
) -> None:
    other = make_written(http, folder=roots)
    for token, code in (
        (make_token("data:read", stores=[other.id]), "STORE_FORBIDDEN"),
        (make_token("stores:read"), "SCOPE_MISSING"),
    ):
        with service.http(token) as client:
            for accept in ("application/json", "text/event-stream", ARROW_MEDIA_TYPE):
                problem(client.get(f"{written.url}/feed", headers={"Accept": accept}), 403, code)


@pytest.fixture
def own_service(tmp_path: Path) -> Iterator[ServiceProcess]:
    """One that may be killed, with room for few readers."""
    settings = {"LETHE_CHANGE_FEEDS_PER_TOKEN_MAX": "5", "LETHE_SSE_KEEPALIVE_S": "1"}
    service = ServiceProcess(tmp_path, settings=settings).start()
    yield service
    service.kill9()


def _write(service: ServiceProcess, store_id: str, stopping: threading.Event, answered: list[str]) -> None:
    with service.http() as http:
        store = WrittenStore(http, store_id)
        for number in itertools.count():
            while not stopping.is_set():
                with suppress(httpx.TransportError):
                    answer = store.put(b"%c%d" % (b"ab"[number % 2], number), b"v", idempotency=f"w{number}")
                    if answer.status_code == 200:
                        answered.append(answer.json()["last_csn"])
                        break
                time.sleep(0.05)
            if stopping.is_set():
                return
            time.sleep(0.01)


@pytest.mark.parametrize("kills", [3, pytest.param(50, marks=pytest.mark.long)])
def test_readers_miss_nothing_over_kills_and_cuts(
    own_service: ServiceProcess, tmp_path: Path, kills: int
) -> None:
    with own_service.http() as http:
        store = make_written(http, folder=tmp_path)
    everything, narrowed = (
        Ears(own_service, store.id),
        Ears(own_service, store.id, database=b"orders", prefix=b"a"),
    )
    cutting = Ears(own_service, store.id, cut_every=7)
    stopping, answered = threading.Event(), list[str]()
    writer = threading.Thread(target=_write, args=(own_service, store.id, stopping, answered))
    writer.start()
    for _ in range(kills):
        time.sleep(0.4)
        own_service.kill9()
        own_service.start()
    wait_until(lambda: len(answered) > 10 * kills)
    stopping.set()
    writer.join(PATIENCE_S)
    with own_service.http() as http:
        logged = WrittenStore(http, store.id).records(page_size=500)
    wanted = [(item["rid"], item["csn"], base64.b64decode(item["key"])) for item in logged]
    assert {csn for _, csn, _ in wanted} >= set(answered)
    wait_until(lambda: len(everything.heard) >= len(wanted) and len(cutting.heard) >= len(wanted))
    few = [each for each in wanted if each[2].startswith(b"a")]
    wait_until(lambda: len(narrowed.heard) >= len(few))
    assert (everything.heard, cutting.heard, narrowed.heard) == (wanted, wanted, few)
    assert cutting.cuts > kills
    for ears in (everything, narrowed, cutting):
        assert ears.error is None
        ears.close()


def test_a_token_has_so_many_readers_and_no_more(own_service: ServiceProcess, tmp_path: Path) -> None:
    with own_service.http() as http:
        store = make_written(http, folder=tmp_path)
        store.put(b"k", b"v")
        ears = [Ears(own_service, store.id) for _ in range(5)]
        wait_until(lambda: all(each.heard for each in ears))
        problem(http.get(f"{store.url}/feed"), 429, "TOO_MANY_FEEDS")
        shown = http.get("/metrics").text
        assert 'lethe_change_feeds_open{form="SSE"} 5.0' in shown
        # Readers that wait hold no thread for each of them, nor the file.
        time.sleep(1.0)
        assert store.path is not None
        assert own_service.open_files(store.path.name) <= 1
        for each in ears:
            each.close()

"""The service is killed among requests that discard: what the target has is never NOT_EXTINCT again."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from spark.replication.consumer.extinctions import read_extinctions
from spark.targets.connection import connect
from spark.targets.target import Target
from tests.http.service_process import ServiceProcess
from tests.http.writers import WrittenStore, make_written, text64

KILLS = 2
KILLS_LONG = 40
RUN_S = 0.6
DISCARDERS = 2


class Discarder(threading.Thread):
    """Discards one key after another; each request has a key, and is repeated until it is answered."""

    def __init__(self, service: ServiceProcess, store_id: str, name: bytes) -> None:
        super().__init__(daemon=True)
        self.service, self.store_id, self.prefix = service, store_id, name
        self.asked: list[bytes] = []
        self.answered: dict[bytes, str] = {}
        self.faults: list[str] = []
        self.stopping = threading.Event()

    def run(self) -> None:
        with self.service.http() as http:
            while not self.stopping.is_set():
                key = b"%s-%d" % (self.prefix, len(self.asked))
                self.asked.append(key)
                answer = self._discarded(http, key)
                if answer is None:
                    return
                if answer.status_code != 202:
                    self.faults.append(answer.text)
                    return
                self.answered[key] = answer.json()["subject"]["id"]

    def _discarded(self, http: httpx.Client, key: bytes) -> httpx.Response | None:
        body = {
            "databases": [text64(b"orders")],
            "start_key": text64(key),
            "end_key": text64(key + b"\x00"),
            "label": key.decode(),
            "confirm_keys_never_reused": True,
        }
        while not self.stopping.is_set():
            try:
                answer = http.post(
                    f"/v1/stores/{self.store_id}/extinctions",
                    json=body,
                    headers={"Idempotency-Key": key.decode()},
                )
            except httpx.TransportError:
                answer = None
            if answer is not None and answer.status_code not in (409, 503):
                return answer
            time.sleep(0.02)
        return None


@pytest.fixture
def own_service(tmp_path: Path) -> Iterator[ServiceProcess]:
    service = ServiceProcess(tmp_path).start()
    yield service
    service.kill9()


def _there(store: WrittenStore) -> dict[bytes, str]:
    """What the target has, read past the service: key to id."""
    with connect(Target(f"sqlite:///{store.path}", table_prefix="replica_"), application_name="t") as conn:
        return {each.extinction.start_key or b"": each.extinction.id for each in read_extinctions(conn)}


def _check(http: httpx.Client, store: WrittenStore, asked: list[bytes]) -> dict[bytes, str]:
    """No key that was discarded is NOT_EXTINCT, and none that was never asked for EXTINCT; what each is."""
    discarded = _there(store)
    keys = [*asked, b"never asked for"]
    body = {"database": text64(b"orders"), "keys": [text64(key) for key in keys]}
    answer = http.post(f"/v1/stores/{store.id}/extinction-status:query", json=body)
    assert answer.status_code == 200, answer.text
    found = dict(zip(keys, answer.json()["statuses"], strict=True))
    assert [key for key in discarded if found.get(key) == "NOT_EXTINCT"] == []
    assert found[b"never asked for"] in ("NOT_EXTINCT", "MAYBE_EXTINCT")
    return found


@pytest.mark.parametrize(
    "kills", [KILLS, pytest.param(KILLS_LONG, marks=(pytest.mark.long, pytest.mark.timeout(3_600)))]
)
def test_kill_among_discards_leaves_no_discarded_key_not_extinct(
    own_service: ServiceProcess, tmp_path: Path, kills: int
) -> None:
    with own_service.http() as http:
        store = make_written(http, folder=tmp_path)
        assert store.put(b"a", b"v").status_code == 200
    discarders = [Discarder(own_service, store.id, b"d%d" % number) for number in range(DISCARDERS)]
    for discarder in discarders:
        discarder.start()
    for _ in range(kills):
        time.sleep(RUN_S)
        own_service.kill9()
        own_service.start()
        with own_service.http() as http:
            _check(http, store, [key for discarder in discarders for key in list(discarder.asked)])
    time.sleep(RUN_S)
    for discarder in discarders:
        discarder.stopping.set()
    for discarder in discarders:
        discarder.join(30)
    assert [discarder.faults for discarder in discarders] == [[]] * DISCARDERS
    answered = {key: name for discarder in discarders for key, name in discarder.answered.items()}
    there = _there(store)
    assert len(answered) >= DISCARDERS
    assert {key: there.get(key) for key in answered} == answered  # once each, by the id that was answered
    with own_service.http() as http:
        found = _check(http, store, [key for discarder in discarders for key in discarder.asked])
        kinds = [record["kind"] for record in store_of(http, store).records(page_size=500)]
    assert kinds.count("EXTINCTION") == len(there)
    assert {found[key] for key in answered} == {"EXTINCT"}
    assert found[b"never asked for"] == "NOT_EXTINCT"


def store_of(http: httpx.Client, store: WrittenStore) -> WrittenStore:
    """The same store, asked by another client."""
    return WrittenStore(http, store.id, store.path)

"""The service is killed among writers: what was answered is there, once; a repeated key writes once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from sqlalchemy.engine import make_url

from tests.conftest import SharedServer
from tests.http.service_process import ServiceProcess
from tests.http.writers import WrittenStore, check_chain, make_written, text64

WRITERS = 6
RUN_S = 1.2
KILLS = 2


class PersistentWriter(threading.Thread):
    """Writes one change after another, each with a key, and repeats what got no answer until it gets one."""

    def __init__(self, service: ServiceProcess, store_id: str, number: int) -> None:
        super().__init__(daemon=True)
        self.service, self.store_id, self.number = service, store_id, number
        self.answered: dict[bytes, str] = {}
        self.repeated = 0
        self.replayed = 0
        self.faults: list[str] = []
        self.stopping = threading.Event()

    def run(self) -> None:
        turn = 0
        with self.service.http() as http:
            store = WrittenStore(http, self.store_id)
            while not self.stopping.is_set():
                key = b"w%d-%d" % (self.number, turn)
                answer = self.written(store, key)
                if answer.status_code != 200:
                    self.faults.append(answer.text)
                    return
                self.replayed += answer.headers.get("idempotency-replayed") == "true"
                self.answered[key] = answer.json()["first_csn"]
                turn += 1

    def written(self, store: WrittenStore, key: bytes) -> httpx.Response:
        while True:
            try:
                answer = store.put(key, b"x", idempotency=key.decode())
            except httpx.TransportError:
                answer = None
            if answer is not None and answer.status_code not in (409, 503):
                return answer
            self.repeated += 1
            time.sleep(0.02)


@pytest.fixture
def own_service(
    request: pytest.FixtureRequest, tmp_path: Path, postgresql_server: SharedServer
) -> Iterator[ServiceProcess]:
    url = request.getfixturevalue("postgresql_url") if request.param == "postgresql" else None
    service = ServiceProcess(tmp_path, metadata_url=url).start()
    yield service
    service.kill9()


@pytest.mark.parametrize(
    ("own_service", "target"),
    [
        ("sqlite", "sqlite"),
        pytest.param("postgresql", "postgresql", marks=pytest.mark.postgresql),
    ],
    indirect=["own_service"],
)
def test_kill_among_writers(
    own_service: ServiceProcess, target: str, tmp_path: Path, postgresql_server: SharedServer
) -> None:
    with own_service.http() as http:
        if target == "sqlite":
            store = make_written(http, folder=tmp_path)
        else:
            name = make_url(str(own_service.metadata_url)).database
            postgresql_server.execute(f"create database {name}_replica")
            store = make_written(http, url=postgresql_server.url(f"{name}_replica"))
    writers = [PersistentWriter(own_service, store.id, number) for number in range(WRITERS)]
    for writer in writers:
        writer.start()
    for _ in range(KILLS):
        time.sleep(RUN_S)
        own_service.kill9()
        own_service.start()
    time.sleep(RUN_S)
    for writer in writers:
        writer.stopping.set()
    for writer in writers:
        writer.join(30)
    assert [writer.faults for writer in writers] == [[]] * WRITERS
    answered = {text64(key): csn for writer in writers for key, csn in writer.answered.items()}
    assert len(answered) > WRITERS * (KILLS + 1)
    assert sum(writer.repeated for writer in writers) >= WRITERS * KILLS, "the kills hit nobody"
    with own_service.http() as http:
        found = WrittenStore(http, store.id)
        records = found.records(page_size=500)
        check_chain(records)
        # A key whose request was repeated stands there once, with the CSN of whichever answer came.
        assert {record["key"]: record["csn"] for record in records} == answered
        assert len(records) == len(answered)
        assert found.put(b"after", b"x").status_code == 200  # and no kill looks like a restore
    if target == "postgresql":
        postgresql_server.execute(f"drop database {name}_replica with (force)")

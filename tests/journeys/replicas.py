"""Two services with a replica each, the wire between them, and what must be true in the end."""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa

from spark.formats.changes.batch import ARROW_MEDIA_TYPE, encode_arrow
from spark.replication.records import local_schema
from spark.targets.connection import Connection, Target, connect
from spark.targets.errors import TargetDatabaseMissing, TargetTablesMissing
from tests.http.service_process import NO_TLS
from tests.journeys.service import Service, serving
from tests.journeys.tcp_proxy import TcpProxy

SETTINGS = {"LETHE_SPARK__ENABLED": "false", "LETHE_JOB_RETRY_BACKOFF_MAX_S": "1"}
GENERATION = "64000000000000010000"
SESSION_MAX_S = 120.0
_numbers = itertools.count(1)
TERMINAL = {"SUCCEEDED", "FAILED", "ABORTED"}
METHODS = (b"GET ", b"POST ", b"DELETE ")


class ReplyLosingProxy(TcpProxy):
    """Forwards everything; the answers that `loses` names die on the way, with their connection.

    Args:
        loses: asked with the number of the answer, counted from 1, of all connections, and with the beginning
            of its request.
    """

    def __init__(self, port: int, loses: Callable[[int, bytes], bool]) -> None:
        self._loses = loses
        self.answers = 0
        self.lost = 0
        super().__init__(port)

    def _request_of(self, data: bytes, asked: bytes) -> bytes:
        return data if data.startswith(METHODS) else asked

    def _server_said(self, client: socket.socket, data: bytes, asked: bytes) -> bool:
        return not self._is_lost(data, asked) and super()._server_said(client, data, asked)

    def _is_lost(self, data: bytes, asked: bytes) -> bool:
        if not data.startswith(b"HTTP/1.1 "):
            return False
        with self._guard:
            self.answers += 1
            is_lost = self._loses(self.answers, asked)
            self.lost += is_lost
        return is_lost


@dataclass
class Site:
    """A service with one replica."""

    service: Service
    store: str
    url: str

    @property
    def path(self) -> str:
        return f"/v1/stores/{self.store}"

    def call(self, method: str, path: str, **more: Any) -> httpx.Response:
        """One request; again while the service is being started."""
        deadline = time.monotonic() + 60
        while True:
            headers = {"Authorization": f"Bearer {self.service.token}"} | more.get("headers", {})
            try:
                return httpx.request(
                    method,
                    f"{self.service.url}{path}",
                    timeout=30,
                    verify=NO_TLS,
                    **(more | {"headers": headers}),
                )
            except httpx.TransportError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def done(self, method: str, path: str, *statuses: int, **more: Any) -> Any:
        """One request that succeeds; its document."""
        answer = self.call(method, path, **more)
        assert answer.status_code in (statuses or (200,)), f"{answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    def write(self, count: int, *, prefix: str = "k", value: bytes = b"v" * 60) -> None:
        """Local changes of so many keys."""
        keys = [f"{prefix}{number:07}".encode() for number in range(count)]
        batch = pa.record_batch([[b"db"] * count, keys, [value] * count], schema=local_schema())
        self.done(
            "POST",
            f"{self.path}/changes",
            content=encode_arrow(batch),
            headers={"Content-Type": ARROW_MEDIA_TYPE},
        )

    def rows(self, sql: str) -> list[Any]:
        """Rows of the replica itself, past the service; tables have no prefix but `replica_`."""
        target = Target(url=self.url, table_prefix="replica_")
        with connect(target, application_name="journey", read_only=True) as conn:
            return conn.execute(sql)

    def execute(self, sql: str) -> None:
        """Change the replica behind the service's back."""
        with self.open() as conn:
            conn.execute(sql)

    @contextmanager
    def open(self) -> Iterator[Connection]:
        target = Target(url=self.url, table_prefix="replica_")
        with connect(target, application_name="journey") as conn:
            yield conn

    def count(self, table: str) -> int:
        """How many rows a table has; none where neither file nor tables are."""
        try:
            return int(self.rows(f"select count(*) from replica_{table}")[0][0])
        except (TargetDatabaseMissing, TargetTablesMissing):
            return 0

    def ruv(self) -> dict[str, str]:
        """Its RUV, read past the service."""
        found = self.rows("select rid, max_csn from replica_ruv where max_csn is not null order by rid")
        return {str(rid): csn for rid, csn in found}

    def entries(self) -> list[Any]:
        """All entries, tombstones too."""
        return self.rows("select database, key, value, csn, is_tombstone from replica_entries order by 1, 2")

    def changelog(self) -> list[Any]:
        """All records."""
        return self.rows(
            "select rid, csn, prev, kind, database, key, payload from replica_changelog order by 1, 2"
        )


@dataclass
class Pair:
    """A supplier and a consumer."""

    supplier: Site
    consumer: Site
    agreement_id: str

    def begin(self, **fields: Any) -> str:
        """Begin a session; its job."""
        body = {"agreement_id": self.agreement_id} | fields
        job = self.supplier.done("POST", f"{self.supplier.path}/replication-sessions", 202, json=body)
        return str(job["id"])

    def wait(self, job_id: str, *states: str, timeout_s: float = SESSION_MAX_S) -> dict[str, Any]:
        """Wait until a job is in one of the states, by default: has ended."""
        deadline = time.monotonic() + timeout_s
        while True:
            job: dict[str, Any] = self.supplier.done("GET", f"/v1/jobs/{job_id}")
            if job["state"] in (states or TERMINAL):
                return job
            assert job["state"] not in TERMINAL, job
            assert time.monotonic() < deadline, job
            time.sleep(0.1)

    def session(self, job: dict[str, Any]) -> dict[str, Any]:
        """The session of a job."""
        found: dict[str, Any] = self.supplier.done("GET", job["subject"]["href"])
        return found

    def assert_level(self) -> None:
        """Both hold the same: records, entries and RUVs."""
        assert self.consumer.ruv() == self.supplier.ruv()
        assert self.consumer.entries() == self.supplier.entries()
        assert self.consumer.changelog() == self.supplier.changelog()

    def until_some_arrived(self, count: int) -> None:
        """Wait until the consumer has so many records."""
        deadline = time.monotonic() + 60
        while self.consumer.count("changelog") < count:
            assert time.monotonic() < deadline
            time.sleep(0.05)


@contextmanager
def two_services(directory: Path) -> Iterator[tuple[Service, Service]]:
    """Two services; they end with the block, however they stand then."""
    with serving(directory / "east", SETTINGS) as east, serving(directory / "west", SETTINGS) as west:
        yield east, west


def register(service: Service, store: str, url: str, rid: int, **fields: Any) -> Site:
    """Register a replica."""
    site = Site(service, store, url)
    site.done(
        "POST", "/v1/stores", 201, json={"id": store, "kind": "REPLICA", "url": url, "rid": rid} | fields
    )
    return site


def agree(supplier: Site, consumer: Site, *, port: int | None = None, **fields: Any) -> Pair:
    """Let one replica supply another, over another port where one is given."""
    folder = supplier.service.secrets
    folder.mkdir(mode=0o700, exist_ok=True)
    (folder / f"{consumer.service.data_dir.name}.token").write_text(consumer.service.token)
    name = f"{supplier.store}-{consumer.store}-{next(_numbers)}"
    secret = {
        "name": name,
        "reference": f"file:{consumer.service.data_dir.name}.token",
        "stores": [supplier.store],
        "hosts": ["127.0.0.1"],
    }
    supplier.done("POST", "/v1/secrets", 201, json=secret)
    address = {
        "url": consumer.service.url if port is None else f"http://127.0.0.1:{port}",
        "store": consumer.store,
        "token": f"secret:{name}",
    }
    made = supplier.done("POST", f"{supplier.path}/agreements", 201, json={"consumer": address} | fields)
    return Pair(supplier, consumer, made["id"])

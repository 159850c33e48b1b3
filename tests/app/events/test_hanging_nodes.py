"""A node that takes the connection and says nothing: its waits hold one thread, those of others go on."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy.engine import make_url

from app.events.waits import task
from app.events.waits.hanging import AGAIN_S, LONG_S, Looks, NodeHangs
from app.events.waits.task import LOOK_MAX_MS
from app.jobs.rows import Job
from app.jobs.running.sql_target import controlled
from app.stores.rows import Store
from tests.app.events.test_wait_task import clock_of, make_event, node, store, waits
from tests.app.events.waits import Waits
from tests.journeys.tcp_proxy import CuttableProxy
from tests.spark.events.catalogs import LoadedCatalog

__all__ = ["node", "store", "waits"]
pytestmark = pytest.mark.postgresql
SEQNO = 5_000_000_020
WAIT_S = 60.0


class Hanging(CuttableProxy):
    """A node that says nothing from the first word on that it must not hear."""

    def __init__(self, port: int) -> None:
        self.at: bytes | None = None
        self.hangs = threading.Event()
        self.connections = self._former = 0
        super().__init__(port)

    def hang_at(self, at: bytes) -> None:
        """From the next connection on: the last words of former ones may still be on their way."""
        self._former, self.at = self.connections, at

    def _carry(self, client: socket.socket, server: socket.socket) -> None:
        self.connections += 1
        super()._carry(client, server)

    def _client_said(self, server: socket.socket, data: bytes) -> bool:
        if self.at is not None and self.connections > self._former and self.at in data:
            self.hangs.set()
        return super()._client_said(server, data)

    def _server_said(self, client: socket.socket, data: bytes, asked: bytes) -> bool:
        return self.hangs.is_set() or super()._server_said(client, data, asked)


@pytest.fixture
def proxy(node: LoadedCatalog, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hanging]:
    monkeypatch.setattr(task, "LOOKS", Looks())
    port = make_url(node.url).port
    assert port is not None
    with Hanging(port) as found:
        yield found


@pytest.fixture
def sick(waits: Waits, node: LoadedCatalog, proxy: Hanging) -> Store:
    url = make_url(node.url).set(host="127.0.0.1", port=proxy.port)
    return waits.register("sick", node, url=url.render_as_string(hide_password=False))


def away(job: Job) -> bool:
    return job.state == "WAITING" and [each["kind"] for each in job.waiting_on] == ["TARGET_UNREACHABLE"]


@pytest.mark.parametrize("at", [b"", b"sl_node"], ids=["at the connect", "in a query"])
def test_node_that_hangs_holds_one_thread(
    waits: Waits, node: LoadedCatalog, store: Store, sick: Store, proxy: Hanging, at: bytes
) -> None:
    """Two waits at such a node held both threads of a runner for ever, and no other wait was looked at."""
    waits.bench.settings.target_connect_timeout_s = 60
    make_event(node, 1, SEQNO)
    first, second, third = (waits.submit(sick, timeout="PT1H", seqno=SEQNO) for _ in range(3))
    well = waits.submit(store, timeout="PT1H", seqno=SEQNO)
    before = proxy.connections
    proxy.hang_at(at)
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(waits.attempt, first)
        assert proxy.hangs.wait(WAIT_S)
        clock_of(waits).advance(LONG_S)
        for job_id in (second, third):
            job = waits.attempt(job_id)
            assert away(job), job.waiting_on
        assert waits.attempt(well).waiting_on[0]["kind"] == "CONFIRMATION"
        assert proxy.connections == before + 1
        proxy.cut()
        assert away(held.result(WAIT_S))


def test_statement_of_a_look_has_less_time_than_others(
    waits: Waits, node: LoadedCatalog, store: Store
) -> None:
    make_event(node, 1, SEQNO)
    waits.submit(store, seqno=SEQNO)
    context = waits.context()
    for most, limit in ((LOOK_MAX_MS, "10s"), (None, "30s"), (60_000, "30s")):
        with controlled(context, store, statement_max_ms=most) as conn:
            assert conn.execute("show statement_timeout") == [(limit,)]


def test_no_second_look_begins_where_one_takes_long() -> None:
    looks, now = Looks(), 0.0
    with looks.at("a", clock_s=lambda: now):
        now = LONG_S - 1
        with looks.at("a", clock_s=lambda: now):  # both are young
            pass
        now = LONG_S
        with pytest.raises(NodeHangs), looks.at("a", clock_s=lambda: now):
            pass
        with looks.at("b", clock_s=lambda: now):
            pass


def hang(looks: Looks, clock: list[float]) -> None:
    with looks.at("a", clock_s=lambda: clock[0]):
        clock[0] += LONG_S
        raise OSError("no answer")


def test_looks_where_one_has_hung_are_one_at_a_time_until_one_succeeds() -> None:
    looks, clock = Looks(), [0.0]
    with pytest.raises(OSError, match="no answer"):
        hang(looks, clock)
    with (
        looks.at("a", clock_s=lambda: clock[0]),
        pytest.raises(NodeHangs),
        looks.at("a", clock_s=lambda: clock[0]),
    ):
        pass
    with looks.at("a", clock_s=lambda: clock[0]), looks.at("a", clock_s=lambda: clock[0]):
        pass
    assert (looks._begun, looks._hung) == ({}, {})


def test_what_hung_is_forgotten_after_a_while() -> None:
    looks, clock = Looks(), [0.0]
    with pytest.raises(OSError, match="no answer"):
        hang(looks, clock)
    clock[0] += AGAIN_S
    with looks.at("a", clock_s=lambda: clock[0]), looks.at("a", clock_s=lambda: clock[0]):
        pass

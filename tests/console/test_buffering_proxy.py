"""A proxy that hands on the head of the stream and keeps what follows: the page says that it is not live."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser

from tests.console.browsing import Tab, add_session
from tests.console.conftest import MakeShop
from tests.http.service_process import ServiceProcess

STREAM = b"content-type: text/event-stream"
SILENT_MAX_MS = 45_000
LOOK_MS = 6_000
OWN_TIMER = "delete window.SharedWorker"
"""The page hears by itself: a worker's clock is not the page's."""


def _hand_on(source: socket.socket, target: socket.socket) -> None:
    is_kept = False
    with contextlib.suppress(OSError):
        while chunk := source.recv(65_536):
            if STREAM in chunk:
                target.sendall(chunk.partition(b"\r\n\r\n")[0] + b"\r\n\r\n")
                is_kept = True
            elif not is_kept:
                target.sendall(chunk)
    for side in (source, target):
        with contextlib.suppress(OSError):
            side.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def buffering(service: ServiceProcess) -> Iterator[str]:
    """The URL of the proxy."""

    kept: list[socket.socket] = []

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                behind = socket.create_connection(("127.0.0.1", service.port))
                kept.extend((client, behind))
                for pair in ((client, behind), (behind, client)):
                    threading.Thread(target=_hand_on, args=pair, daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
    for each in kept:
        each.close()


def test_page_behind_a_proxy_that_buffers_does_not_call_itself_live(
    browser: Browser, operator: httpx.Client, make_shop: MakeShop, buffering: str
) -> None:
    # The head of the stream was enough: "live" above a page that never came anew.
    front: Any = SimpleNamespace(url=buffering)
    context = browser.new_context()
    add_session(context, front, operator)
    tab = Tab(context, front, is_lossy=True)
    tab.page.add_init_script(OWN_TIMER)
    tab.page.clock.install()
    with tab.page.expect_response("**/console/events*"):
        page = tab.open("/console/stores")
    page.wait_for_timeout(300)
    assert page.inner_text("#connection") != "live"
    new = make_shop()
    page.clock.run_for(SILENT_MAX_MS + LOOK_MS)
    tab.sees(new.id)
    assert "not live, as of " in page.inner_text("#connection")
    context.close()

"""Two instances on one metadata: a page that is open goes on with the other when its own is killed."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.conftest import SharedServer
from tests.console.browsing import Tab, add_session, signed_in
from tests.console.conftest import SETTINGS
from tests.console.relay import relaying
from tests.http.service_process import ServiceProcess
from tests.http.shop import Shop, accepted
from tests.http.targets import copy_reference

BACK_MAX_S = 5.0
pytestmark = pytest.mark.postgresql


@dataclass(frozen=True)
class Front:
    """The one address of both, in the place of a service."""

    url: str
    token: str


@pytest.fixture
def pair(roots: Path, postgresql_server: SharedServer) -> Iterator[tuple[ServiceProcess, ServiceProcess]]:
    """Two instances on one metadata database."""
    name = f"lethe_console_{uuid.uuid4().hex[:12]}"
    postgresql_server.execute(f"create database {name}")
    settings = SETTINGS | {"LETHE_ALLOWED_ROOTS": str(roots)}
    url = postgresql_server.url(name)
    first = ServiceProcess(roots / "first", metadata_url=url, settings=settings).start()
    second = ServiceProcess(roots / "second", metadata_url=url, settings=settings).start()
    yield first, second
    first.kill9()
    assert second.stop() == 0
    postgresql_server.execute(f"drop database if exists {name} with (force)")


def test_open_page_goes_on_with_the_other_instance(
    pair: tuple[ServiceProcess, ServiceProcess], browser: Browser, roots: Path
) -> None:
    first, second = pair
    path = copy_reference(roots / "of-two.sqlite")
    with second.http(first.token) as http, relaying([first.port, second.port]) as url:
        body = {"id": "of-two", "kind": "SYMMETRICDS", "url": f"sqlite:///{path}"}
        http.post("/v1/stores", json=body).raise_for_status()
        shop, front = Shop(http=http, id="of-two", path=path), Front(url, first.token)
        context = browser.new_context()
        with signed_in(front) as client:
            add_session(context, front, client)
        tab = Tab(context, front, is_lossy=True)
        tab.open_live("/console/jobs")
        before = accepted(shop.purge(reason="before"))
        tab.page.wait_for_selector(f"a[href='/console/jobs/{before}']")
        first.kill9()
        killed = time.monotonic()
        after = accepted(shop.purge(reason="after", kind="INCOMING"))
        tab.page.wait_for_selector(f"a[href='/console/jobs/{after}']", timeout=BACK_MAX_S * 1000)
        tab.page.wait_for_selector("#connection.good", timeout=BACK_MAX_S * 1000)
        assert time.monotonic() - killed <= BACK_MAX_S
        for job in (before, after):
            assert tab.page.locator(f"main a[href='/console/jobs/{job}']").count() == 1
        assert tab.foreign == []
        context.close()

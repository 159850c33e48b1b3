"""One service and one browser for the console's tests of a worker, tabs that are signed in.

The browser ends where a file follows that does not begin with it: while its driver lives, nothing else may
run an event loop in this thread.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, sync_playwright

from tests.console.browsing import MakeTab, Tab, add_session, signed_in
from tests.http.conftest import assert_quiet_log
from tests.http.service_process import ServiceProcess
from tests.http.shop import Shop
from tests.http.supplying import SECRETS
from tests.http.targets import copy_reference

SETTINGS = {
    "LETHE_ALLOWED_HOSTS": "127.0.0.1",
    "LETHE_PROGRESS_INTERVAL_S": "0.2",
    "LETHE_RUNNER_POLL_INTERVAL_S": "0.1",
    "LETHE_WATCH_INTERVAL_S": "0.1",
}
ELSEWHERE = "lethe.test"
"""A name of this machine that no browser takes for it."""
_numbers = itertools.count(1)
_browsers: list[Browser] = []
_open = ExitStack()
MakeShop = Callable[..., Shop]


@pytest.fixture(scope="session")
def roots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The one directory below which the service may touch files."""
    return tmp_path_factory.mktemp("console")


@pytest.fixture(scope="session")
def service(roots: Path) -> Iterator[ServiceProcess]:
    """The service whose console is looked at."""
    (roots / SECRETS).mkdir(mode=0o700)
    settings = SETTINGS | {"LETHE_ALLOWED_ROOTS": str(roots), "LETHE_SECRETS_DIR": str(roots / SECRETS)}
    service = ServiceProcess(roots / "service", settings=settings).start()
    yield service
    assert service.stop() == 0
    assert_quiet_log(service)


@pytest.fixture(scope="session")
def http(service: ServiceProcess) -> Iterator[httpx.Client]:
    """A client of the API with the admin's token."""
    with service.http() as client:
        yield client


@pytest.fixture(scope="session")
def make_token(http: httpx.Client) -> Callable[..., str]:
    """Makes a token of a role and returns its secret."""

    def make(role: str, **fields: Any) -> str:
        answer = http.post("/v1/tokens", json={"name": f"a {role}", "role": role} | fields)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["token"])

    return make


@pytest.fixture(scope="session")
def make_shop(http: httpx.Client, roots: Path) -> MakeShop:
    """Makes a registered store on a fresh copy of the reference database."""

    def make(**fields: Any) -> Shop:
        name = f"shop-{os.getpid()}-{next(_numbers)}"
        path = copy_reference(roots / f"{name}.sqlite")
        body = {"id": name, "kind": "SYMMETRICDS", "url": f"sqlite:///{path}"} | fields
        answer = http.post("/v1/stores", json=body)
        assert answer.status_code == 201, answer.text
        return Shop(http=http, id=name, path=path)

    return make


@pytest.fixture(scope="session")
def shop(make_shop: MakeShop) -> Shop:
    """A store that tests share."""
    return make_shop()


@pytest.fixture(scope="session")
def operator(service: ServiceProcess) -> Iterator[httpx.Client]:
    """An HTTP client that is signed in with the admin's token."""
    with signed_in(service) as client:
        yield client


@pytest.fixture(scope="session")
def viewer(service: ServiceProcess, make_token: Callable[..., str]) -> Iterator[httpx.Client]:
    """An HTTP client that is signed in as a viewer."""
    with signed_in(service, make_token("viewer")) as client:
        yield client


def _may_go_on(item: pytest.Item, following: pytest.Item) -> bool:
    if following.path == item.path:
        return True
    here = following.path.parent == item.path.parent
    return here and "browser" in getattr(following, "fixturenames", ())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None]:
    """Before a file that does not begin with the browser it ends."""
    try:
        return (yield)
    finally:
        if nextitem is None or not _may_go_on(item, nextitem):
            _browsers.clear()
            _open.close()


@pytest.fixture(scope="module")
def browser(chromium: str) -> Browser:
    """Chromium, without a window, for all files of this folder that follow one another."""
    if not _browsers:
        playwright = _open.enter_context(sync_playwright())
        arguments = ["--no-sandbox", f"--host-resolver-rules=MAP {ELSEWHERE} 127.0.0.1"]
        launched = playwright.chromium.launch(executable_path=chromium, args=arguments)
        _browsers.append(_open.enter_context(launched))
    return _browsers[0]


@pytest.fixture(scope="module")
def context(browser: Browser, service: ServiceProcess, operator: httpx.Client) -> Iterator[BrowserContext]:
    """A browser's profile that is signed in with the admin's token, in a zone that is not UTC."""
    context = browser.new_context(timezone_id="Asia/Kolkata", locale="en-GB")
    add_session(context, service, operator)
    yield context
    context.close()


@pytest.fixture
def make_tab(context: BrowserContext, service: ServiceProcess) -> Iterator[MakeTab]:
    """Opens tabs; in the end none may have complained."""
    tabs: list[Tab] = []

    def make(**options: Any) -> Tab:
        tabs.append(Tab(options.pop("context", context), options.pop("service", service), **options))
        return tabs[-1]

    yield make
    for tab in tabs:
        tab.assert_quiet()
        tab.page.close()


@pytest.fixture(scope="module")
def one_tab(context: BrowserContext, service: ServiceProcess) -> Iterator[Tab]:
    """A tab in which one page is opened after the other; each test asserts that nothing was complained of."""
    tab = Tab(context, service)
    yield tab
    tab.assert_quiet()
    tab.page.close()


@pytest.fixture
def tab(make_tab: MakeTab) -> Tab:
    """A tab of the signed-in browser."""
    return make_tab()

"""One tab of a real browser: what it showed, and what it complained of meanwhile."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import BrowserContext, ConsoleMessage, Page, Request, TimeoutError

from app.auth.holders import COOKIE
from tests.http.service_process import NO_TLS, ServiceProcess

WIDTHS: Final = (320, 768, 1440)
PATIENCE_MS: Final = 10_000
SAME_ORIGIN: Final = {"Sec-Fetch-Site": "same-origin"}
# Colours are measured against the page behind: what a table scrolls out of sight cannot be.
AXE: Final = {
    "resultTypes": ["violations"],
    "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"],
}
LOSSES: Final = (
    "net::ERR",
    "htmx:afterRequest",
    "htmx:sendError",
    "[object Event]",
    "the server responded with a status of",
    "Response Status Error Code",
)
SERIOUS: Final = {"serious", "critical"}


@contextmanager
def signed_in(service: ServiceProcess, token: str | None = None) -> Iterator[httpx.Client]:
    """An HTTP client with a session of the console; the admin's by default."""
    with httpx.Client(base_url=service.url, headers=SAME_ORIGIN, timeout=30, verify=NO_TLS) as client:
        answer = client.post("/console/login", data={"token": service.token if token is None else token})
        assert answer.status_code == 303, answer.text
        yield client


def csrf_of(client: httpx.Client) -> str:
    """What forms of its session carry."""
    found = re.search(r'name="csrf" value="([0-9a-f]{64})"', client.get("/console/help").text)
    assert found is not None
    return found[1]


class Tab:
    """A page of a signed-in browser.

    Args:
        is_lossy: the service is killed meanwhile: requests of the page may fail.
    """

    def __init__(self, context: BrowserContext, service: ServiceProcess, *, is_lossy: bool = False) -> None:
        self.service = service
        self.page: Page = context.new_page()
        self.page.set_default_timeout(PATIENCE_MS)
        self.is_lossy = is_lossy
        self.complaints: list[str] = []
        self.foreign: list[str] = []
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        self.page.on("request", self._asked)

    def _heard(self, message: ConsoleMessage) -> None:
        is_loss = self.is_lossy and any(each in message.text for each in LOSSES)
        if message.type in ("error", "warning") and not is_loss:
            self.complaints.append(f"{message.type}: {message.text}")

    def _asked(self, request: Request) -> None:
        address = urlsplit(request.url)
        if address.scheme != "data" and address.netloc != urlsplit(self.service.url).netloc:
            self.foreign.append(request.url)

    def open(self, path: str, *, status: int = 200) -> Page:
        """Load a page of the service."""
        answer = self.page.goto(self.service.url + path)
        assert answer is not None
        assert answer.status == status, f"{path}: {answer.status} {self.text()[:300]}"
        return self.page

    def open_live(self, path: str) -> Page:
        """Load a page and wait until it hears of changes."""
        self.open(path)
        self.page.wait_for_selector("#connection.good")
        return self.page

    def sees(self, text: str, *, within_ms: float = PATIENCE_MS) -> None:
        """Wait until the main part shows a text."""
        script = "text => document.querySelector('main').innerText.includes(text)"
        try:
            self.page.wait_for_function(script, arg=text, timeout=within_ms)
        except TimeoutError:
            raise AssertionError(f"{text!r} is not on {self.page.url}: {self.text()[:2000]}") from None

    def text(self) -> str:
        """What the main part shows now."""
        return self.page.inner_text("main")

    def assert_quiet(self) -> None:
        """Nothing was complained of (a violation of the policy would be), and nobody else was asked."""
        assert self.complaints == [], self.complaints
        assert self.foreign == [], self.foreign

    def assert_fits(self, widths: tuple[int, ...] = WIDTHS) -> None:
        """Nothing scrolls sideways."""
        for width in widths:
            self.page.set_viewport_size({"width": width, "height": 900})
            wide = self.page.evaluate("document.documentElement.scrollWidth")
            assert wide <= width, f"{self.page.url} at {width} px is {wide} px wide: {self._widest(width)}"

    def _widest(self, width: int) -> Any:
        return self.page.evaluate(
            """width => [...document.querySelectorAll('body *')].filter(each => !each.closest('.scroll'))
            .filter(each => each.getBoundingClientRect().right > width).slice(0, 5)
            .map(each => each.tagName + '.' + each.className + ': ' + each.innerText?.slice(0, 40))""",
            width,
        )

    def assert_accessible(self) -> None:
        """Axe finds nothing serious."""
        self.page.evaluate(AXE_SCRIPT)
        found = self.page.evaluate("options => axe.run(document, options)", AXE)
        serious = [each for each in found["violations"] if each["impact"] in SERIOUS]
        told = [(each["id"], [node["html"][:200] for node in each["nodes"]][:3]) for each in serious]
        assert told == [], json.dumps(told, indent=1)

    def assert_good(self) -> None:
        """All that every page must be."""
        self.assert_fits()
        self.assert_accessible()
        self.assert_quiet()


MakeTab = Callable[..., Tab]


def add_session(context: BrowserContext, service: ServiceProcess, client: httpx.Client) -> None:
    """Let a browser have the session of an HTTP client."""
    context.add_cookies([{"name": COOKIE, "value": client.cookies[COOKIE], "url": service.url}])

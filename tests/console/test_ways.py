"""Ways to the console: behind a proxy, and over plain HTTP where a browser tells less."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Browser

from app.settings import Settings
from tests.console.browsing import SAME_ORIGIN
from tests.console.conftest import ELSEWHERE
from tests.http.service_process import ServiceProcess

PROXY = "127.0.0.2"
OTHER = "127.0.0.1"


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """A service that believes what one proxy says."""
    settings = {"LETHE_BEHIND_PROXY": "true", "LETHE_PROXY_ADDRESSES": f"{PROXY}/32, 10.9.0.0/16"}
    service = ServiceProcess(tmp_path_factory.mktemp("behind"), settings=settings).start()
    yield service
    assert service.stop() == 0


def cookie_of(service: ServiceProcess, *, peer: str) -> str:
    """The cookie of a sign-in that comes from an address, which says that its browser speaks TLS."""
    headers = SAME_ORIGIN | {"X-Forwarded-Proto": "https", "X-Forwarded-For": "192.0.2.7"}
    with httpx.Client(transport=httpx.HTTPTransport(local_address=peer), headers=headers) as client:
        answer = client.post(service.url + "/console/login", data={"token": service.token})
    assert answer.status_code == 303, answer.text
    return str(answer.headers["set-cookie"])


def test_cookie_is_secure_by_the_word_of_a_trusted_proxy_alone(behind: ServiceProcess) -> None:
    # uvicorn trusted 127.0.0.1 and nobody else: behind compose.yaml and the chart no cookie was Secure.
    assert "Secure" in cookie_of(behind, peer=PROXY).split("; ")
    assert "Secure" not in cookie_of(behind, peer=OTHER).split("; ")


@pytest.mark.parametrize("given", ["*", "proxy.example", "10.0.0.1/8"])
def test_proxies_are_addresses_and_networks(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LETHE_PROXY_ADDRESSES", f"127.0.0.1, {given}")
    with pytest.raises(ValueError, match="is no address and no network"):
        Settings()


def test_whoever_comes_over_plain_http_from_elsewhere_can_sign_in(
    browser: Browser, service: ServiceProcess
) -> None:
    # There a browser sends no Sec-Fetch-Site, and without a referrer its Origin was "null": 403.
    context = browser.new_context()
    try:
        page = context.new_page()
        page.goto(f"http://{ELSEWHERE}:{service.port}/console/login")
        page.fill("#token", service.token)
        with page.expect_request("**/console/login") as sent, page.expect_navigation():
            page.click("main button")
        assert "sec-fetch-site" not in sent.value.all_headers()
        assert page.locator("h1").inner_text() == "Overview"
        page.click("text=Sign out")
        page.wait_for_selector("#token")
    finally:
        context.close()

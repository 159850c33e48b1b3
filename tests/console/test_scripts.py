"""What the console's own script does in a browser: forms on their way, ages, focus, answers that fail."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page

from tests.console.browsing import MakeTab, Tab, add_session
from tests.http.service_process import ServiceProcess
from tests.http.shop import Shop, wait_for

MakeShop = Callable[..., Shop]
SLOW = """() => document.addEventListener("submit", (event) => {
  event.preventDefault();  // the answer is still to come, and the page stays
  const body = new URLSearchParams(new FormData(event.target));
  window.sent = (window.sent || []).concat(fetch(event.submitter.formAction, { method: "POST", body }));
})"""
REFRESHED = """() => new Promise((done) => {
  const live = document.getElementById("live");
  live.addEventListener("htmx:afterSwap", done, { once: true });
  window.htmx.trigger(live, "refresh");
})"""


def refresh(page: Page) -> None:
    """Let the live part come anew."""
    page.evaluate(REFRESHED)


def test_second_click_while_a_form_is_on_its_way_acts_no_second_time(
    make_tab: MakeTab, make_shop: MakeShop, http: httpx.Client
) -> None:
    # The page came anew between the clicks, with another key: who had retried a job was told of a conflict.
    shop = make_shop()
    job_id = shop.slow_purge(rows_per_s=30)
    http.post(f"/v1/jobs/{job_id}:abort").raise_for_status()
    wait_for(http, job_id)
    page = make_tab().open_live(f"/console/jobs/{job_id}")
    key = page.input_value("#act-form [name=key]")
    refresh(page)
    assert page.input_value("#act-form [name=key]") != key  # a form that rests comes anew
    page.evaluate(SLOW)
    for _ in range(2):
        page.click("#button-retry")
        page.evaluate("() => Promise.all(window.sent)")
        refresh(page)
    jobs = http.get("/v1/jobs", params={"store": shop.id, "page_size": 100}).json()["items"]
    again = [
        each["id"] for each in jobs if http.get(f"/v1/jobs/{each['id']}").json()["retried_from"] == job_id
    ]
    for each in again:
        http.post(f"/v1/jobs/{each}:abort")
        wait_for(http, each)
    assert len(again) == 1
    answers = page.evaluate("() => Promise.all(window.sent).then((all) => all.map((each) => each.url))")
    assert [each.rpartition("/")[2] for each in answers] == again * 2


@pytest.mark.parametrize("minutes", [-60, 60])
def test_ages_are_by_the_clock_of_the_service(
    browser: Browser, service: ServiceProcess, operator: httpx.Client, shop: Shop, minutes: int
) -> None:
    # On a desk whose clock was an hour off everything had happened "1 h ago", or was to come.
    shop.http.post(f"/v1/stores/{shop.id}:check").raise_for_status()
    context = browser.new_context()
    add_session(context, service, operator)
    tab = Tab(context, service)
    now = tab.page.evaluate("Date.now()")
    tab.page.clock.install(time=now / 1000 + minutes * 60)
    page = tab.open(f"/console/stores/{shop.id}")
    page.wait_for_function("document.querySelector('.state time.ago')")
    shown = page.inner_text(".state time.ago")
    assert re.fullmatch(r"(in )?\d+ (ms|s)( ago)?|\d+ min \d+ s ago|\d+ min ago", shown), shown
    context.close()


def test_focus_goes_on_where_a_link_was_replaced_by_its_answer(tab: Tab, shop: Shop) -> None:
    page = tab.open_live(f"/console/stores/{shop.id}")
    page.focus("#ask-purges")
    page.keyboard.press("Enter")
    page.wait_for_selector("#ask-purges", state="detached")
    assert page.evaluate("document.activeElement.id") == "purges"


def test_link_whose_answer_fails_says_so(make_tab: MakeTab, shop: Shop) -> None:
    tab = make_tab(is_lossy=True)
    page = tab.open_live(f"/console/stores/{shop.id}")
    page.route("**/parts/purges", lambda route: route.fulfill(status=429, body="later"))
    page.click("#ask-purges")
    said: Any = page.wait_for_selector("#purges [role=alert]")
    assert "HTTP 429" in said.inner_text()
    page.click("#ask-purges")
    page.wait_for_timeout(300)
    assert len(page.query_selector_all("#purges [role=alert]")) == 1

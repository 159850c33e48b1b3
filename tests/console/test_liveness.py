"""Whether a page is live: many tabs of a browser, a service that refuses for a while, and the mark of it."""

from __future__ import annotations

from playwright.sync_api import Page, Route

from tests.console.browsing import MakeTab
from tests.console.conftest import MakeShop
from tests.http.service_process import ServiceProcess

TABS = 8
"""More than the connections that a browser opens to a host."""
RETRY_MAX_MS = 5_000
# A browser without a window takes each of its tabs for seen.
SEEN = """isSeen => {
  Object.defineProperty(document, "hidden", {configurable: true, get: () => !isSeen});
  document.dispatchEvent(new Event("visibilitychange"));
}"""


def press(page: Page, selector: str) -> None:
    with page.expect_navigation():
        page.click(selector)


def show(page: Page, *, is_seen: bool = True) -> None:
    page.evaluate(SEEN, is_seen)


def test_eight_windows_that_are_all_seen_are_live_and_outlive_the_first(
    make_tab: MakeTab, make_shop: MakeShop
) -> None:
    # Each window held one of the browser's six connections: the seventh hung, and so did every button.
    shop = make_shop()
    paths = [f"/console/stores/{shop.id}", "/console/", "/console/jobs", "/console/schedules"]
    tabs = [make_tab() for _ in range(TABS)]
    for number, tab in enumerate(tabs):
        tab.open_live(paths[number] if number < len(paths) else "/console/stores")
    new = make_shop()
    for tab in tabs[len(paths) :]:
        tab.sees(new.id)
    tabs[0].page.close()
    tabs[1].open("/console/audit")
    newer = make_shop()
    for tab in tabs[len(paths) :]:
        tab.sees(newer.id)
    press(tabs[-1].open_live(f"/console/stores/{newer.id}"), "#button-check")
    tabs[-1].sees("All that it tells")


def test_window_that_nobody_sees_hears_nothing_until_it_is_seen(
    make_tab: MakeTab, make_shop: MakeShop
) -> None:
    other, tab = make_tab(), make_tab()
    other.open_live("/console/stores")
    page = tab.open_live("/console/stores")
    show(page, is_seen=False)
    new = make_shop()
    other.sees(new.id)
    page.wait_for_timeout(500)
    assert new.id not in tab.text()
    show(page)
    tab.sees(new.id)
    page.wait_for_selector("#connection.good")


def test_stream_that_is_refused_is_tried_again_every_few_seconds(
    make_tab: MakeTab, service: ServiceProcess
) -> None:
    # A proxy answers 502 while the service starts anew: the pauses grew to 64 s.
    tab, asked = make_tab(is_lossy=True), []

    def refuse(route: Route) -> None:
        asked.append(route.request.url)
        route.fulfill(status=503, body="away")

    tab.page.add_init_script("delete window.SharedWorker")  # some browsers have none
    tab.page.clock.install()
    tab.page.route("**/console/events*", refuse)
    page = tab.open("/console/")
    page.wait_for_selector("#connection.warn")
    for _ in range(10):
        before = len(asked)
        for _ in range(2):  # a slow page may hear of the refusal when the clock has gone on
            page.clock.run_for(RETRY_MAX_MS)
            for _ in range(100):
                if len(asked) > before:
                    break
                page.wait_for_timeout(20)
            if len(asked) > before:
                break
        assert len(asked) > before
    tab.page.unroute("**/console/events*")
    page.clock.run_for(RETRY_MAX_MS)
    page.wait_for_selector("#connection.good")


def test_page_whose_part_is_refused_is_not_live_and_goes_on_by_itself(
    make_tab: MakeTab, make_shop: MakeShop
) -> None:
    tab = make_tab(is_lossy=True)
    page = tab.open_live("/console/stores")

    def refuse(route: Route) -> None:
        if route.request.headers.get("hx-request") == "true":
            route.fulfill(status=429, body="later")
        else:
            route.continue_()

    page.route("**/console/stores", refuse)
    new = make_shop()
    page.wait_for_selector("#connection.warn")
    assert "not live, as of " in page.inner_text("#connection")
    assert new.id not in tab.text()
    page.unroute("**/console/stores")
    tab.sees(new.id)
    page.wait_for_selector("#connection.good")


def test_page_that_cannot_reach_its_part_is_not_live(make_tab: MakeTab, make_shop: MakeShop) -> None:
    tab = make_tab(is_lossy=True)
    page = tab.open_live("/console/stores")
    page.route("**/console/stores", lambda route: route.abort())
    make_shop()
    page.wait_for_selector("#connection.warn")
    page.unroute("**/console/stores")
    page.wait_for_selector("#connection.good")

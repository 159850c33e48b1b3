"""What becomes of a window when its worker is gone, when others crash, and when somebody else signs in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from playwright.sync_api import Browser, Page

from tests.console.browsing import MakeTab, Tab, add_session, signed_in
from tests.console.conftest import MakeShop
from tests.console.test_liveness import show
from tests.http.service_process import ServiceProcess
from tests.http.shop import Shop

SILENT_MAX_MS = 60_000
ANSWER_MAX_MS = 10_000
LOOK_MS = 3_000
GONE_MS = 120_000
TOPICS_MAX = 20
# A worker whose process can end: its ports are told nothing of that.
WORKERS = """(() => {
  window.workers = [];
  window.areDead = false;
  window.SharedWorker = class {
    constructor() {
      this.isDead = window.areDead;
      this.said = [];
      this.port = { postMessage: (message) => {
        this.said.push(message);
        const answer = () => this.port.onmessage({ data: { isHeard: true, ask: false } });
        if (message.isSeen && !this.isDead) setTimeout(answer, 10);
      } };
      window.workers.push(this);
    }
  };
})()"""


def with_workers(tab: Tab) -> Page:
    tab.page.add_init_script(WORKERS)
    tab.page.clock.install()
    return tab.open_live("/console/stores")


def number_of_workers(page: Page) -> Any:
    return page.evaluate("workers.length")


def test_window_whose_worker_is_gone_takes_another_one(tab: Tab, make_shop: MakeShop) -> None:
    page = with_workers(tab)
    page.clock.run_for(2 * SILENT_MAX_MS)
    assert number_of_workers(page) == 1  # it answers
    page.evaluate("workers[0].isDead = true")
    new = make_shop()
    page.clock.run_for(SILENT_MAX_MS + LOOK_MS)
    tab.sees(new.id)
    page.wait_for_selector("#connection.good")
    assert number_of_workers(page) == 2
    assert page.evaluate("workers[1].said[0].isSeen")
    assert page.evaluate("workers[0].said.at(-1).isSeen") is False


def test_window_whose_second_worker_is_silent_too_hears_by_itself(tab: Tab, make_shop: MakeShop) -> None:
    page = with_workers(tab)
    page.evaluate("workers[0].isDead = areDead = true")
    page.clock.run_for(SILENT_MAX_MS + LOOK_MS)
    assert "not live, as of " in page.inner_text("#connection")
    with page.expect_request("**/console/events?topic=all"):
        page.clock.run_for(ANSWER_MAX_MS + LOOK_MS)
    page.wait_for_selector("#connection.good")
    assert number_of_workers(page) == 2
    new = make_shop()
    tab.sees(new.id)


def test_window_that_is_shown_again_soon_knows_that_its_worker_is_gone(tab: Tab) -> None:
    page = with_workers(tab)
    show(page, is_seen=False)
    page.evaluate("workers[0].isDead = true")
    page.clock.run_for(2 * SILENT_MAX_MS)
    assert number_of_workers(page) == 1
    show(page)
    assert "not live, as of " in page.inner_text("#connection")
    page.clock.run_for(ANSWER_MAX_MS + LOOK_MS)
    page.wait_for_selector("#connection.good")
    assert number_of_workers(page) == 2


def test_window_that_says_nothing_any_more_is_forgotten(tab: Tab) -> None:
    tab.page.clock.install()
    page = tab.open_live("/console/stores")
    page.evaluate(
        """() => {
          const lives = () => {}, crashed = () => {};
          window.hearing = new Hearing("/console/events", 20);
          hearing.listen(lives, "all");
          hearing.listen(crashed, "stores/crashed");
          setInterval(() => hearing.listen(lives, "all"), 30000);
        }"""
    )
    page.clock.run_for(GONE_MS - LOOK_MS)
    assert page.evaluate("hearing.windows.size") == 2
    page.clock.run_for(4 * LOOK_MS)
    assert page.evaluate("hearing.windows.size") == 1
    assert page.evaluate("hearing.open() || [...hearing.topics]") == ["all"]
    page.evaluate("hearing.close()")


def test_stream_of_more_topics_than_the_service_takes_is_of_all(tab: Tab, shop: Shop) -> None:
    page = tab.open_live(f"/console/stores/{shop.id}")
    assert page.get_attribute("#live", "data-topics-max") == str(TOPICS_MAX)
    listening = """number => {
      const { topicsMax } = document.getElementById("live").dataset;
      const hearing = new Hearing("/console/events", Number(topicsMax));
      window.told = 0;
      for (let each = 0; each < number; each += 1) {
        hearing.listen(({ isHeard }) => { window.told += isHeard; }, `stores/s${each}`);
      }
    }"""
    for number, topics in ((TOPICS_MAX, TOPICS_MAX), (TOPICS_MAX + 1, 1)):
        with page.expect_response("**/console/events*") as found:
            page.evaluate(listening, number)
        assert found.value.status == 200
        assert found.value.url.count("topic=") == topics
        page.wait_for_function("number => window.told >= number", arg=number)
    assert found.value.url.endswith("?topic=all")


def test_window_of_who_has_signed_out_becomes_the_next_ones(
    make_tab: MakeTab,
    browser: Browser,
    service: ServiceProcess,
    make_token: Callable[..., str],
    make_shop: MakeShop,
) -> None:
    with (
        signed_in(service, make_token("operator", name="early-shift")) as early,
        signed_in(service, make_token("viewer", name="late-shift")) as late,
    ):
        context = browser.new_context()
        add_session(context, service, early)
        try:
            tab = make_tab(context=context)
            page = tab.open_live("/console/stores")
            assert page.inner_text(".who .name") == "early-shift"
            add_session(context, service, late)
            with page.expect_navigation():
                new = make_shop()
            tab.sees(new.id)
            assert page.inner_text(".who .name") == "late-shift"
            page.wait_for_selector("#connection.good")
            tab.assert_quiet()
        finally:
            context.close()

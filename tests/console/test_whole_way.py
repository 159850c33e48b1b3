"""Plan, run, pause, throttle, resume, abort: a real purge and a real cycle, by mouse and by keyboard alone.

Another window of the same browser watches the job: each change of its state stands there within a second.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page

from tests.console.browsing import MakeTab, Tab
from tests.console.conftest import MakeShop
from tests.http.environments import make_environment_store
from tests.http.shop import wait_for
from tests.http.targets import CUTOFF
from tests.je_data import unpack

SHOWN_MAX_S = 1.0
TABS_MAX = 200
Fill = Callable[[Page, str, str], None]
Push = Callable[[Page, str], None]
# The newest event that the page shows, whenever that changes: [milliseconds, its number].
OBSERVE = """() => {
  window.seen = [];
  const look = () => {
    const row = document.querySelector("tr[id^=event-]");
    const number = row ? Number(row.id.slice(6)) : 0;
    if (!window.seen.length || window.seen.at(-1)[1] !== number) window.seen.push([Date.now(), number]);
  };
  look();
  new MutationObserver(look).observe(document.querySelector("main"),
    {subtree: true, childList: true, attributes: true});
}"""
GOES = "#button-pause"
"""It runs, or waits for its throttle."""
pytestmark = pytest.mark.alone


def click_fill(page: Page, selector: str, text: str) -> None:
    field = page.locator(selector)
    if field.evaluate("e => e.tagName") == "SELECT":
        field.select_option(text)
    else:
        field.fill(text)


def click(page: Page, selector: str) -> None:
    page.click(selector)


def go_to(page: Page, selector: str) -> None:
    """Press Tab until something has the focus, which must be seen."""
    for _ in range(TABS_MAX):
        if page.evaluate("selector => document.activeElement?.matches(selector) ?? false", selector):
            style = "e => getComputedStyle(e).outlineStyle"
            assert page.eval_on_selector(selector, style) != "none"
            return
        page.keyboard.press("Tab")
    pytest.fail(f"{selector} cannot be reached by Tab")


def type_fill(page: Page, selector: str, text: str) -> None:
    go_to(page, selector)
    if page.evaluate("document.activeElement.tagName") != "SELECT":
        page.keyboard.press("Control+a")
    page.keyboard.type(text)


def press(page: Page, selector: str) -> None:
    go_to(page, selector)
    page.keyboard.press("Enter")


def by_hand(first: str) -> pytest.MarkDecorator:
    """By mouse and by keyboard, the one of them in the long run only: the other act goes its way."""
    hands = {"mouse": (click_fill, click), "keyboard": (type_fill, press)}
    return pytest.mark.parametrize(
        ("fill", "push"),
        [
            pytest.param(*hand, id=name, marks=[pytest.mark.long] * (name != first))
            for name, hand in hands.items()
        ],
    )


def plan_and_run(page: Page, fill: Fill, push: Push, *, store: str, act: str, fields: dict[str, str]) -> str:
    """From the store's page over the plan to the job, whose id is returned."""
    for link in ("#new-act", f"a[href$='/acts/{act}']"):
        with page.expect_navigation():
            push(page, link)
    push(page, "main summary")
    for name, value in fields.items():
        fill(page, f"#field-{name}", value)
    push(page, "main form button[type=submit]")
    page.wait_for_selector("#lost")
    fill(page, "#confirm", store)
    fill(page, "#reason", "the owner's wish")
    push(page, "button.danger")
    page.wait_for_url("**/console/jobs/*")
    return page.url.rpartition("/")[2]


def state(name: str) -> str:
    return f"p.state .badge:text('{name}')"


def send(tab: Tab, push: Push, button: str, shown: str) -> None:
    with tab.page.expect_navigation():
        push(tab.page, f"#button-{button}")
    tab.page.wait_for_selector(shown)


def pause_to_abort(
    make_tab: MakeTab, tab: Tab, http: httpx.Client, job_id: str, fill: Fill, push: Push, *, bound: str
) -> None:
    """Pause, throttle, resume and abort a job that runs, while another window watches."""
    watcher = make_tab()
    watcher.open_live(f"/console/jobs/{job_id}").evaluate(OBSERVE)
    wait_for(http, job_id, "RUNNING", "WAITING")
    tab.page.wait_for_selector(GOES)
    fill(tab.page, "#reason", "<script>by hand</script>")
    send(tab, push, "pause", state("paused"))
    fill(tab.page, f"#{bound}", "25")
    fill(tab.page, "#throttle-reason", "the disk is busy")
    send(tab, push, "throttle", "dd:text-matches('^25 ')")
    send(tab, push, "resume", GOES)
    send(tab, push, "abort", state("aborted"))
    watcher.sees("aborted")
    assert "<script>by hand</script>" in watcher.text()
    assert_shown_in_time(watcher.page, http, job_id)
    job = http.get(f"/v1/jobs/{job_id}").json()
    assert (job["state"], job["throttle"]["requested"][bound]) == ("ABORTED", 25.0)


def assert_shown_in_time(page: Page, http: httpx.Client, job_id: str) -> None:
    """Each change of state stood on the page within a second of its event (p95 of them)."""
    seen = page.evaluate("window.seen")
    listed = http.get(f"/v1/jobs/{job_id}/events", params={"last": 200, "type": "state"}).json()
    took = []
    for event in listed["items"]:
        if event["seq"] <= seen[0][1]:
            continue
        at = datetime.fromisoformat(event["at"]).timestamp()
        shown = [when / 1000 for when, number in seen if number >= event["seq"]]
        assert shown, f"{event} was never shown; the page saw {seen}"
        took.append(shown[0] - at)
    print(f"shown after {', '.join(f'{each:.2f}' for each in sorted(took))} s")
    assert len(took) >= 4
    assert sorted(took)[int(0.95 * (len(took) - 1))] <= SHOWN_MAX_S, took


@by_hand("mouse")
def test_purge_goes_all_the_way(
    make_tab: MakeTab, make_shop: MakeShop, http: httpx.Client, fill: Fill, push: Push
) -> None:
    shop, tab = make_shop(), make_tab()
    page = tab.open(f"/console/stores/{shop.id}")
    fields = {"cutoff": CUTOFF, "stranded": "MARK", "max_rows_in_tx": "20", "throttle-rows_per_s": "30"}
    job_id = plan_and_run(page, fill, push, store=shop.id, act="purge-outgoing", fields=fields)
    pause_to_abort(make_tab, tab, http, job_id, fill, push, bound="rows_per_s")
    if push is click:
        send(tab, push, "retry", "dt:text('Retry of')")
        send(tab, push, "abort", state("aborted"))


@pytest.fixture(scope="module")
def sample(roots: Path) -> Path:
    return unpack("closed", roots / "closed-of-the-whole-way")


@by_hand("keyboard")
def test_cycle_goes_all_the_way(
    make_tab: MakeTab, http: httpx.Client, roots: Path, sample: Path, fill: Fill, push: Push
) -> None:
    store, tab = make_environment_store(http, roots, sample), make_tab()
    page = tab.open(f"/console/stores/{store.id}")
    fields = {"min_file_age": "PT0S", "duration": "PT0S", "throttle-bytes_per_s": "200000"}
    job_id = plan_and_run(page, fill, push, store=store.id, act="erasure", fields=fields)
    pause_to_abort(make_tab, tab, http, job_id, fill, push, bound="bytes_per_s")
    assert http.get(f"/v1/jobs/{job_id}").json()["kind"] == "ERASURE"
    http.delete(store.url, headers={"If-Match": http.get(store.url).headers["etag"]})

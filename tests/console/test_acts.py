"""A plan and its run in a real browser, on a real purge and a real cycle; an outdated one; no script."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser

from tests.console.browsing import MakeTab, Tab, add_session
from tests.console.conftest import MakeShop
from tests.http.environments import EnvironmentStore, make_environment_store
from tests.http.service_process import ServiceProcess
from tests.http.shop import wait_for
from tests.je_data import unpack


def click_fill(tab: Tab, label: str, text: str) -> None:
    tab.page.get_by_label(label, exact=True).fill(text)


def click(tab: Tab, button: str) -> None:
    tab.page.get_by_role("button", name=button, exact=True).click()


def run_plan(tab: Tab, store: str, http: httpx.Client) -> dict[str, Any]:
    """Plan, look, type the name and the reason, run; returns the job as it ended."""
    click(tab, "Plan")
    tab.page.wait_for_selector("text=What would be lost")
    plan_id = tab.page.url.partition("/plans/")[2].partition("?")[0]
    click_fill(tab, f"Type the store's name: {store}", store)
    click_fill(tab, "Reason", "the owner's wish")
    click(tab, "Run exactly this plan")
    tab.page.wait_for_url("**/console/jobs/*")
    job = wait_for(http, tab.page.url.rpartition("/")[2])
    assert (job["state"], job["params"]["plan_id"]) == ("SUCCEEDED", plan_id)
    assert job["reason"] == "the owner's wish"
    tab.sees("succeeded")
    return job


def test_purge_is_planned_and_run(tab: Tab, make_shop: MakeShop, http: httpx.Client) -> None:
    shop = make_shop()
    tab.open(f"/console/stores/{shop.id}/acts/purge-outgoing")
    click_fill(tab, "retention minutes", "7200")
    before = shop.digest
    job = run_plan(tab, shop.id, http)
    assert job["kind"] == "PURGE"
    assert shop.digest != before


@pytest.fixture(scope="module")
def sample(roots: Path) -> Path:
    return unpack("closed", roots / "closed-of-acts")


def test_cycle_is_planned_and_run(tab: Tab, http: httpx.Client, roots: Path, sample: Path) -> None:
    store: EnvironmentStore = make_environment_store(http, roots, sample)
    tab.open(f"/console/stores/{store.id}/acts/erasure")
    tab.page.locator("summary").focus()
    tab.page.keyboard.press("Enter")
    click_fill(tab, "min file age", "PT0S")
    click_fill(tab, "duration", "PT0S")
    job = run_plan(tab, store.id, http)
    assert job["kind"] == "ERASURE"
    http.delete(store.url, headers={"If-Match": http.get(store.url).headers["etag"]})


def test_outdated_plan_says_so_and_a_new_one_is_made(
    tab: Tab, make_shop: MakeShop, http: httpx.Client
) -> None:
    shop = make_shop()
    tab.open(f"/console/stores/{shop.id}/acts/purge-outgoing")
    click_fill(tab, "retention minutes", "7200")
    click(tab, "Plan")
    tab.page.wait_for_selector("text=What would be lost")
    first = tab.page.url
    limits = {"limits": {"max_rows": 1_000_000}}
    http.patch(f"/v1/stores/{shop.id}", json=limits, headers={"If-Match": shop.etag()}).raise_for_status()
    before = shop.digest
    click_fill(tab, f"Type the store's name: {shop.id}", shop.id)
    click_fill(tab, "Reason", "late")
    tab.complaints.clear()
    click(tab, "Run exactly this plan")
    tab.sees("This plan is outdated")
    assert shop.digest == before
    assert all("412" in each for each in tab.complaints)  # the browser tells of the status
    tab.complaints.clear()
    click(tab, "Plan again")
    tab.page.wait_for_selector("text=Type the store's name")
    assert tab.page.url.partition("/plans/")[2] != first.partition("/plans/")[2]


@pytest.fixture
def scriptless(browser: Browser, service: ServiceProcess, operator: httpx.Client, make_tab: MakeTab) -> Tab:
    """A tab of a browser that runs no script."""
    context = browser.new_context(java_script_enabled=False)
    add_session(context, service, operator)
    return make_tab(context=context)


def test_plan_and_run_work_without_a_script(scriptless: Tab, make_shop: MakeShop, http: httpx.Client) -> None:
    shop, tab = make_shop(), scriptless
    tab.open(f"/console/stores/{shop.id}/acts/purge-outgoing")
    click_fill(tab, "retention minutes", "7200")
    click(tab, "Plan")
    tab.page.wait_for_selector("text=What would be lost")
    click_fill(tab, f"Type the store's name: {shop.id}", shop.id)
    click_fill(tab, "Reason", "no script")
    click(tab, "Run exactly this plan")
    tab.page.wait_for_url("**/console/jobs/*")
    assert wait_for(http, tab.page.url.rpartition("/")[2])["reason"] == "no script"

"""Pages that are open while things happen: what is typed stays, and a kill ends nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from playwright.sync_api import Browser

from tests.console.browsing import MakeTab, Tab, add_session, signed_in
from tests.http.environments import make_environment_store
from tests.http.service_process import LETHE, ServiceProcess, environment
from tests.http.shop import Shop, wait_for

BACK_MAX_S = 5.0
MakeShop = Callable[..., Shop]


def test_typed_reason_and_focus_outlive_a_refresh(make_tab: MakeTab, make_shop: MakeShop) -> None:
    shop = make_shop()
    job_id = shop.slow_purge(rows_per_s=30)
    tab = make_tab()
    page = tab.open_live(f"/console/jobs/{job_id}")
    tab.sees("running")
    page.fill("#reason", "half a sent")
    page.focus("#button-abort")
    shop.http.post(f"/v1/jobs/{job_id}:pause")
    tab.sees("paused")
    assert page.input_value("#reason") == "half a sent"
    assert page.evaluate("document.activeElement.id") == "button-abort"
    shop.http.post(f"/v1/jobs/{job_id}:abort")
    tab.sees("aborted")


def test_reason_of_a_suspension_is_not_taken_for_a_resumption(make_tab: MakeTab, make_shop: MakeShop) -> None:
    shop = make_shop()
    tab = make_tab()
    page = tab.open_live(f"/console/stores/{shop.id}")
    page.click("#suspend-form [name=reason]")
    page.keyboard.type("the disk is full")
    shop.http.post(f"/v1/stores/{shop.id}:suspend", json={"reason": "moved"}).raise_for_status()
    page.wait_for_selector("#resume-form")
    assert page.input_value("#resume-form [name=reason]") == ""
    page.keyboard.press("Enter")
    page.wait_for_timeout(500)
    assert shop.http.get(f"/v1/stores/{shop.id}").json()["suspended"]["reason"] == "moved"


def test_enter_in_the_reason_of_a_job_presses_no_button(make_tab: MakeTab, make_shop: MakeShop) -> None:
    shop = make_shop()
    job_id = shop.slow_purge(rows_per_s=30)
    page = make_tab().open_live(f"/console/jobs/{job_id}")
    page.click("#reason")
    page.keyboard.type("pause it")
    shop.http.post(f"/v1/jobs/{job_id}:pause")
    page.wait_for_selector("#button-resume")
    page.keyboard.press("Enter")  # it would have resumed what somebody has paused
    page.wait_for_timeout(500)
    assert shop.http.get(f"/v1/jobs/{job_id}").json()["state"] in ("PAUSING", "PAUSED")
    shop.http.post(f"/v1/jobs/{job_id}:abort")
    wait_for(shop.http, job_id)


def test_backup_of_the_command_appears_and_goes(
    make_tab: MakeTab, service: ServiceProcess, http: Any, roots: Any
) -> None:
    store = make_environment_store(http, roots)
    tab = make_tab()
    tab.open_live("/console/")
    tab.sees(store.id)
    assert "nightly-of-the-test" not in tab.text()
    names = {"LETHE_URL": service.url, "LETHE_TOKEN": service.token, "PATH": os.environ["PATH"]}
    run = [str(LETHE), "backup", "run", "--store", store.id, "--label", "nightly-of-the-test", "--"]
    hold = subprocess.Popen(
        [*run, sys.executable, "-c", "input()"],
        env=environment(names),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        tab.sees("nightly-of-the-test", within_ms=20_000)
    finally:
        hold.communicate(b"\n")
    tab.page.wait_for_function(
        "() => !document.querySelector('main').innerText.includes('nightly-of-the-test')"
    )


def test_open_overview_shows_a_store_that_became_unready_without_any_job(
    make_tab: MakeTab, make_shop: MakeShop
) -> None:
    shop = make_shop()
    tab = make_tab()
    page = tab.open_live("/console/")
    tab.sees(shop.id)
    page.wait_for_timeout(500)  # what its opening itself asks for is over
    shop.path.unlink()
    found = shop.http.post(f"/v1/stores/{shop.id}:check").json()
    assert not found["ok"]
    row = f"#attention ~ * a[href='/console/stores/{shop.id}']"
    page.wait_for_selector(row, timeout=5_000)
    assert "store unready" in tab.text()


def test_open_page_goes_on_after_kill_and_restart(
    make_tab: MakeTab, service: ServiceProcess, make_shop: MakeShop
) -> None:
    shop = make_shop()
    tab = make_tab(is_lossy=True)
    page = tab.open_live("/console/")
    tab.sees(shop.id)
    service.kill9()
    page.wait_for_selector("#connection.warn")
    service.start()
    ready = time.monotonic()
    new = make_shop()
    with service.http() as http:
        job_id = Shop(http, new.id, new.path).slow_purge(rows_per_s=30)
        page.wait_for_selector(f"#row-{job_id}", timeout=BACK_MAX_S * 1000)
        assert time.monotonic() - ready <= BACK_MAX_S
        page.wait_for_selector("#connection.good")
        assert page.locator(f"#row-{job_id}").count() == 1
        assert page.locator("#attention").count() == 1
        http.post(f"/v1/jobs/{job_id}:abort")
        wait_for(http, job_id)
    page.wait_for_selector(f"#row-{job_id}", state="detached")


def test_open_page_of_a_revoked_token_leads_to_the_form(
    make_tab: MakeTab, browser: Browser, service: ServiceProcess, make_token: Callable[..., str], http: Any
) -> None:
    with signed_in(service, make_token("viewer", name="leaver")) as client:
        context = browser.new_context()
        add_session(context, service, client)
        try:
            tab = make_tab(context=context, is_lossy=True)
            page = tab.open_live("/console/")
            listed = http.get("/v1/tokens").json()["items"]
            token_id = next(each["id"] for each in listed if each["name"] == "leaver")
            assert http.post(f"/v1/tokens/{token_id}:revoke").status_code == 200
            page.wait_for_url("**/console/login*")
            tab.assert_quiet()
        finally:
            context.close()


def test_page_can_be_read_with_scripts_off(make_tab: MakeTab, browser: Any, context: Any, shop: Shop) -> None:
    plain = browser.new_context(java_script_enabled=False)
    plain.add_cookies(context.cookies())
    try:
        tab = make_tab(context=plain)
        page = tab.open(f"/console/stores/{shop.id}")
        assert " UTC" in page.locator("main").inner_text()
        page.click("text=Ask the target now")
        assert "Purges now of" in page.locator("h1").inner_text()
        page.click("nav >> text=Jobs")
        assert page.locator("h1").inner_text() == "Jobs"
        tab.assert_quiet()
    finally:
        plain.close()


def test_long_and_hostile_texts_are_inert(tab: Tab, make_shop: MakeShop) -> None:
    hostile = "<script>document.title='owned'</script><img src=x onerror=alert(1)>"
    labels = {"note": (hostile + "x" * 200)[:200]}
    shop = make_shop(labels=labels)
    reason = (hostile + "w" * 500)[:500]
    shop.http.post(f"/v1/stores/{shop.id}:suspend", json={"reason": reason})
    job_id = shop.purge(reason=reason).json()["id"]
    for path in (f"/console/stores/{shop.id}", f"/console/jobs/{job_id}", "/console/jobs"):
        tab.open(path)
        assert "Lethe" in tab.page.title()
        tab.assert_fits()
        if path != "/console/jobs":
            assert hostile in tab.text()
    shop.http.post(f"/v1/jobs/{job_id}:abort")

"""Who may come in, and what may be posted: without a browser, which adds nothing to these."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import httpx
import pytest

from app.console.rendering import POLICY
from tests.console.browsing import SAME_ORIGIN, csrf_of, signed_in
from tests.http.service_process import ServiceProcess
from tests.http.shop import Shop, wait_for

JOB = f"job_{'0' * 26}"
POSTS = [
    f"/console/jobs/{JOB}/pause",
    f"/console/jobs/{JOB}/resume",
    f"/console/jobs/{JOB}/abort",
    f"/console/jobs/{JOB}/retry",
    f"/console/jobs/{JOB}/throttle",
    "/console/stores/{store}/check",
    "/console/stores/{store}/suspend",
    "/console/stores/{store}/resume",
]
FORM = re.compile(r"<form.*?</form>", re.DOTALL)
PAGES = [
    "/console/",
    "/console/attention",
    "/console/jobs",
    "/console/stores",
    "/console/stores/{store}",
    "/console/help",
]


def post(client: httpx.Client, path: str, *, csrf: str | None = None, **fields: str) -> httpx.Response:
    """Send a form; by default with the session's mark."""
    mark = csrf_of(client) if csrf is None else csrf
    return client.post(path, data={"csrf": mark, "reason": "a test"} | fields)


def rows(service: ServiceProcess, query: str) -> list[Any]:
    with closing(sqlite3.connect(service.data_dir / "lethe.db")) as connection:
        return connection.execute(query).fetchall()


@pytest.mark.parametrize("path", PAGES)
def test_page_without_a_session_leads_to_the_form(service: ServiceProcess, path: str) -> None:
    answer = httpx.get(service.url + path)
    assert answer.status_code == 303
    assert answer.headers["location"].startswith("/console/login")


@pytest.mark.parametrize("path", ["/console/login", "/console/nothing", "/console/?stat=RUNNING"])
def test_every_page_and_every_error_has_the_policy(operator: httpx.Client, path: str) -> None:
    answer = operator.get(path)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"] == POLICY
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "same-origin"
    assert answer.headers["cache-control"] == "no-store"
    assert "<script>" not in answer.text
    assert "style=" not in answer.text


def test_cookie_cannot_be_read_and_is_sent_to_this_site_only(service: ServiceProcess) -> None:
    answer = httpx.post(service.url + "/console/login", data={"token": service.token}, headers=SAME_ORIGIN)
    cookie = answer.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
    assert "Secure" not in cookie
    secure = httpx.post(
        service.url + "/console/login",
        data={"token": service.token},
        headers=SAME_ORIGIN | {"X-Forwarded-Proto": "https"},
    )
    assert "Secure" not in secure.headers["set-cookie"]  # nobody's word for it, without LETHE_BEHIND_PROXY


def test_token_stands_in_no_page_and_no_row(service: ServiceProcess, operator: httpx.Client) -> None:
    for path in ("/console/", "/console/jobs", "/console/login"):
        assert service.token not in operator.get(path).text
    secret = operator.cookies["lethe_console"]
    found = rows(service, "select * from console_sessions")
    assert found
    assert service.token not in repr(found)
    assert secret not in repr(found)


def test_cookie_is_no_token_of_the_api(service: ServiceProcess, operator: httpx.Client) -> None:
    assert operator.get("/v1/whoami").status_code == 401
    secret = operator.cookies["lethe_console"]
    answer = httpx.get(service.url + "/v1/whoami", headers={"Authorization": f"Bearer {secret}"})
    assert answer.status_code == 401


@pytest.mark.parametrize("token", ["", "lethe_nobody", "x" * 4000, "a.b.c"])
def test_login_with_a_bad_token_is_refused(service: ServiceProcess, token: str) -> None:
    answer = httpx.post(service.url + "/console/login", data={"token": token}, headers=SAME_ORIGIN)
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers
    assert token not in answer.text or not token


def test_login_from_a_foreign_page_is_refused(service: ServiceProcess) -> None:
    for headers in ({}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "https://evil.example"}):
        answer = httpx.post(service.url + "/console/login", data={"token": service.token}, headers=headers)
        assert answer.status_code == 403, headers
        assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("given", ["//evil.example", "https://evil.example/x", "/console/\\evil", "/v1/x"])
def test_login_leads_to_pages_of_the_console_only(service: ServiceProcess, given: str) -> None:
    fields = {"token": service.token, "next": given}
    answer = httpx.post(service.url + "/console/login", data=fields, headers=SAME_ORIGIN)
    assert answer.headers["location"] == "/console/"


@pytest.mark.parametrize("path", POSTS)
def test_post_without_the_sessions_mark_is_refused(operator: httpx.Client, shop: Shop, path: str) -> None:
    for mark in ("", "0" * 64):
        answer = post(operator, path.format(store=shop.id), csrf=mark)
        assert answer.status_code == 403
        assert "CONSOLE_FORM_FOREIGN" in answer.text


@pytest.mark.parametrize("path", POSTS)
def test_post_of_a_foreign_page_is_refused(
    service: ServiceProcess, operator: httpx.Client, shop: Shop, path: str
) -> None:
    mark = csrf_of(operator)
    for headers in (
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": "https://evil.example"},
        {"Sec-Fetch-Site": "same-origin", "Origin": "https://evil.example"},
    ):
        with httpx.Client(base_url=service.url, cookies=operator.cookies, headers=headers) as foreign:
            answer = foreign.post(path.format(store=shop.id), data={"csrf": mark, "reason": "x"})
        assert answer.status_code == 403, headers


@pytest.mark.parametrize("path", POSTS)
def test_viewer_may_post_nothing(viewer: httpx.Client, shop: Shop, path: str) -> None:
    answer = post(viewer, path.format(store=shop.id))
    assert answer.status_code == 403
    assert "SCOPE_MISSING" in answer.text


@pytest.mark.parametrize("path", PAGES)
def test_viewer_sees_no_button(viewer: httpx.Client, operator: httpx.Client, shop: Shop, path: str) -> None:
    text = viewer.get(path.format(store=shop.id)).text
    for line in text.splitlines():
        if "<button" in line:
            assert "Sign out" in line or ">Show<" in line
    if "{store}" in path:
        assert "button-check" in operator.get(path.format(store=shop.id)).text


def test_session_ends_with_its_token(
    service: ServiceProcess, http: httpx.Client, make_token: Callable[..., str]
) -> None:
    token = make_token("viewer")
    with signed_in(service, token) as client:
        assert client.get("/console/").status_code == 200
        mine = next(each for each in http.get("/v1/tokens").json()["items"] if each["name"] == "a viewer")
        assert http.post(f"/v1/tokens/{mine['id']}:revoke").status_code == 200
        assert client.get("/console/").status_code == 303
        part = client.get("/console/", headers={"HX-Request": "true"})
        assert part.headers["hx-redirect"] == "/console/login"


def test_session_ends_by_signing_out(service: ServiceProcess) -> None:
    with signed_in(service) as client:
        kept = dict(client.cookies)
        assert post(client, "/console/logout").status_code == 303
        assert httpx.get(service.url + "/console/", cookies=kept).status_code == 303


def test_token_of_some_stores_sees_those_only(
    service: ServiceProcess, make_shop: Callable[..., Shop], make_token: Callable[..., str]
) -> None:
    mine, other = make_shop(), make_shop()
    with signed_in(service, make_token("operator", stores=[mine.id])) as client:
        overview = client.get("/console/").text
        assert mine.id in overview
        assert other.id not in overview
        assert client.get(f"/console/stores/{other.id}").status_code == 403
        assert post(client, f"/console/stores/{other.id}/check").status_code == 403


def test_what_is_done_is_audited_as_via_console(
    operator: httpx.Client, http: httpx.Client, make_shop: Callable[..., Shop]
) -> None:
    shop = make_shop()
    assert post(operator, f"/console/stores/{shop.id}/suspend", reason="restore test").status_code == 303
    found = http.get("/v1/audit-events", params={"store": shop.id, "action": "store.suspend"}).json()["items"]
    assert [(each["actor"], each["detail"]["via"]) for each in found] == [("admin", "console")]
    made = http.get("/v1/audit-events", params={"store": shop.id, "action": "store.create"}).json()["items"]
    assert "via" not in made[0]["detail"]
    assert http.get("/v1/audit-events", params={"action": "console.sign-in"}).json()["items"]


def test_reason_of_every_button_stands_in_the_audit(
    operator: httpx.Client, http: httpx.Client, make_shop: Callable[..., Shop]
) -> None:
    # Check, throttle and resume took none: the audit could not tell why somebody had let a store go on.
    shop = make_shop()
    job_id = shop.slow_purge(rows_per_s=20)
    store, job = f"/console/stores/{shop.id}", f"/console/jobs/{job_id}"
    acts = {
        "store.check": (f"{store}/check", {}),
        "store.suspend": (f"{store}/suspend", {}),
        "store.resume": (f"{store}/resume", {}),
        "job.throttle": (f"{job}/throttle", {"rows_per_s": "21"}),
        "job.pause": (f"{job}/pause", {}),
        "job.resume": (f"{job}/resume", {}),
        "job.abort": (f"{job}/abort", {}),
    }
    for action, (url, fields) in acts.items():
        page = operator.get(url.rpartition("/")[0]).text
        forms = [each for each in FORM.findall(page) if f'action="{url}"' in each]
        assert any('name="reason"' in each for each in forms), action
        sent = post(operator, url, reason=f"why {action}", **fields)
        assert sent.status_code in (200, 303), (action, sent.text)
        if action == "job.pause":
            wait_for(http, job_id, "PAUSED")
    listed = http.get("/v1/audit-events", params={"page_size": 100}).json()["items"]
    told = {
        each["action"]: (each["detail"].get("via"), each["detail"].get("reason"))
        for each in listed
        if {each["store"], each["subject_id"]} & {shop.id, job_id} and each["action"] in acts
    }
    assert told == {action: ("console", f"why {action}") for action in acts}


def test_check_by_a_program_is_no_row_of_the_audit(
    http: httpx.Client, make_shop: Callable[..., Shop]
) -> None:
    shop = make_shop()
    assert http.post(f"/v1/stores/{shop.id}:check").status_code == 200
    listed = http.get("/v1/audit-events", params={"store": shop.id}).json()["items"]
    assert [each["action"] for each in listed] == ["store.create"]


def test_form_that_is_sent_twice_acts_once(operator: httpx.Client, shop: Shop) -> None:
    job_id = shop.slow_purge(rows_per_s=50)
    mark, key = csrf_of(operator), {"key": "key_of_one_page"}
    first = post(operator, f"/console/jobs/{job_id}/abort", csrf=mark, **key)
    again = post(operator, f"/console/jobs/{job_id}/abort", csrf=mark, **key)
    assert (first.status_code, again.status_code) == (303, 303)
    found = shop.http.get("/v1/audit-events", params={"subject_id": job_id, "action": "job.abort"}).json()
    assert len(found["items"]) == 1

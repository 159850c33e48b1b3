"""Backups, protections, schedules, windows, audit and system by HTTP: what is shown, and what a form does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.console.browsing import csrf_of
from tests.console.conftest import MakeShop
from tests.console.fleet import Fleet, make_fleet
from tests.http.service_process import ServiceProcess


@pytest.fixture
def fleet(http: httpx.Client, roots: Path, make_shop: MakeShop) -> Fleet:
    return make_fleet(http, roots, make_shop(), hostile=False)


def do(
    client: httpx.Client, doing: str, subject: str, *, store: str = "", reason: str = "why"
) -> httpx.Response:
    """Open the page of a small act, and send its form."""
    url = f"/console/do/{doing}/{subject}" + (f"?store={store}" if store else "")
    page = client.get(url)
    assert page.status_code == 200, page.text
    assert 'name="reason"' in page.text
    return client.post(url, data={"csrf": csrf_of(client), "reason": reason})


def audited(http: httpx.Client, subject: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = http.get("/v1/audit-events", params={"subject_id": subject}).json()["items"]
    return found


def test_protection_and_backup_are_ended_with_a_reason(
    operator: httpx.Client, http: httpx.Client, fleet: Fleet
) -> None:
    names, store = fleet.names, fleet.environment.id
    page = operator.get("/console/backups").text
    assert names["backup"] in page
    assert names["protection"] in page
    assert do(operator, "erasure-abort", names["protection"], store=store).status_code == 303
    assert do(operator, "protection-end", names["protection"], store=store).status_code == 303
    assert do(operator, "backup-end", names["backup"], store=store).status_code == 303
    url = f"/v1/stores/{store}"
    assert http.get(f"{url}/protections/{names['protection']}").json()["state"] == "ENDED"
    assert http.get(f"{url}/backup-sessions/{names['backup']}").json()["valid"] is True
    newest = audited(http, names["backup"])[0]
    assert (newest["detail"]["via"], newest["detail"]["reason"]) == ("console", "why")
    assert names["protection"] not in operator.get("/console/backups").text


def test_small_act_without_a_reason_is_not_done(
    operator: httpx.Client, http: httpx.Client, fleet: Fleet
) -> None:
    schedule = fleet.names["schedule"]
    for reason in ("", "x" * 501, "a\x00b"):
        answer = do(operator, "schedule-pause", schedule, reason=reason)
        assert answer.status_code == 422
        assert "Not done" in answer.text
    assert http.get(f"/v1/schedules/{schedule}").json()["is_paused"] is False


def test_schedule_is_paused_resumed_and_deleted(
    operator: httpx.Client, http: httpx.Client, fleet: Fleet
) -> None:
    schedule = fleet.names["schedule"]
    assert schedule in operator.get("/console/schedules").text
    assert "next runs" in operator.get(f"/console/schedules/{schedule}").text.lower()
    for doing, paused in (("schedule-pause", True), ("schedule-resume", False)):
        assert do(operator, doing, schedule).status_code == 303
        assert http.get(f"/v1/schedules/{schedule}").json()["is_paused"] is paused
    assert do(operator, "schedule-delete", schedule).status_code == 303
    assert http.get(f"/v1/schedules/{schedule}").status_code == 404
    assert do(operator, "window-delete", fleet.names["window"]).status_code == 303
    assert http.get(f"/v1/windows/{fleet.names['window']}").status_code == 404


def test_schedule_and_window_are_made_by_their_forms(
    operator: httpx.Client, http: httpx.Client, fleet: Fleet
) -> None:
    fields = {"name": "by form", "verb": "PURGE", "body": '{"kind": "OUTGOING"}', "store": fleet.shop.id}
    mark = {"csrf": csrf_of(operator), "reason": "asked"}
    refused = operator.post("/console/schedules/new", data=mark | fields | {"cron": "never at all"})
    assert refused.status_code == 422
    assert "never at all" in refused.text
    made = operator.post("/console/schedules/new", data=mark | fields | {"cron": "0 4 * * *"})
    assert made.status_code == 303, made.text
    found = http.get("/v1/schedules", params={"store": fleet.shop.id}).json()["items"]
    assert ("by form", "0 4 * * *") in [(each["name"], each["cron"]) for each in found]
    window = {"name": "by form", "kind": "DENY", "cron": "0 8 1 1 *", "duration": "PT1H", "intensity": "0.5"}
    made = operator.post("/console/windows/new", data=mark | window)
    assert made.status_code == 303, made.text
    found = [each for each in http.get("/v1/windows").json()["items"] if each["name"] == "by form"]
    assert [each["intensity"] for each in found] == [0.5]
    http.delete(f"/v1/windows/{found[0]['id']}").raise_for_status()


def test_audit_is_narrowed_and_its_chain_computed(operator: httpx.Client, fleet: Fleet) -> None:
    page = operator.get("/console/audit", params={"store": fleet.shop.id, "action": "purge.create"}).text
    assert fleet.names["job"] in page
    assert fleet.environment.id not in page
    assert "nothing wrong was found" in operator.get("/console/audit?verify=true").text
    assert operator.get("/console/audit?created_after=yesterday").status_code == 422


def test_system_shows_tokens_without_secrets_to_an_admin_only(
    service: ServiceProcess, operator: httpx.Client, viewer: httpx.Client
) -> None:
    page = operator.get("/console/system").text
    assert "a viewer" in page
    assert service.token not in page
    assert "lethe_" not in page.partition("<main")[2].replace("lethe_spark", "")
    limited = viewer.get("/console/system").text
    assert "it needs <code>admin</code>" in limited
    assert "a viewer" not in limited.partition("<main")[2]

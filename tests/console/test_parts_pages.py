"""Parts of stores in a real browser, asked for by a click; an archive that is verified from there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.console.browsing import Tab, csrf_of
from tests.console.conftest import MakeShop
from tests.http.replica_stores import make_replica
from tests.http.shop import accepted, wait_for

AWAY: dict[str, dict[str, Any]] = {
    "DS389": {"url": "ldap://127.0.0.1:9?tls=none", "suffix": "dc=away", "bind_dn": "cn=x,cn=config"},
    "SLONY": {"url": "postgresql+psycopg://x@127.0.0.1:1/x", "cluster": "away"},
}


def ask_all(tab: Tab, store: str) -> None:
    """Open a store's page and ask for every part that connects to its target."""
    tab.open_live(f"/console/stores/{store}")
    for each in tab.page.query_selector_all("[id^=ask-]"):
        name = each.get_attribute("id")
        tab.page.click(f"#{name}")
        tab.page.wait_for_selector(f"#{name}", state="detached")


@pytest.mark.parametrize("kind", AWAY)
def test_health_of_what_is_away_is_a_verdict_with_what_to_do(tab: Tab, http: httpx.Client, kind: str) -> None:
    name = f"away-{kind.lower()}"
    http.post("/v1/stores", json={"id": name, "kind": kind} | AWAY[kind]).raise_for_status()
    ask_all(tab, name)
    tab.sees("What to do")
    tab.sees("unknown")
    tab.assert_good()
    assert (tab.page.query_selector("#new-act") is None) == (kind == "DS389")  # nothing can be done there
    http.delete(f"/v1/stores/{name}", headers={"If-Match": "*"}).raise_for_status()


def test_parts_of_a_replica_are_good_at_all_widths(tab: Tab, http: httpx.Client, roots: Path) -> None:
    replica = make_replica(http, rid=61, folder=roots)
    ask_all(tab, replica.id)
    for text in ("No agreement begins or ends here.", "Off: a parameter of the store", "Grants to discard"):
        tab.sees(text)
    tab.assert_good()
    http.delete(f"/v1/stores/{replica.id}", headers={"If-Match": "*"}).raise_for_status()


def test_archive_is_verified_from_the_page_of_its_store(
    operator: httpx.Client, make_shop: MakeShop, http: httpx.Client
) -> None:
    shop = make_shop()
    wait_for(http, accepted(shop.purge(archive={"format": "PARQUET"})), "SUCCEEDED")
    page = operator.get(f"/console/stores/{shop.id}/parts/archives").text
    found = re.search(r'href="(/console/do/archive-verify/(job_\w+)\?store=[^"]+)"', page)
    assert found is not None, page
    answer = operator.post(found[1], data={"csrf": csrf_of(operator), "key": "1", "reason": "a drill"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/console/jobs?kind=ARCHIVE_VERIFY")
    [job] = http.get("/v1/jobs", params={"store": shop.id, "kind": "ARCHIVE_VERIFY"}).json()["items"]
    assert wait_for(http, job["id"])["params"]["archive"] == found[2]
    told = operator.get(f"/console/jobs/{job['id']}").text
    assert "All are as they were written." in told


def test_plans_job_leads_to_its_page(operator: httpx.Client, make_shop: MakeShop) -> None:
    shop = make_shop()
    answer = shop.plan()
    plan_id = answer.json()["plan_id"]
    page = operator.get(f"/console/jobs/{plan_id}").text
    found = re.search(r'id="read-plan" href="([^"]+)"', page)
    assert found is not None
    assert "What would be lost" in operator.get(found[1]).text

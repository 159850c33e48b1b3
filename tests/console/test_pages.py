"""Every page in a real browser: no complaint, no foreign request, nothing serious, no sideways scroll."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.console.browsing import Tab
from tests.http.environments import make_environment_store
from tests.http.replica_stores import make_replica
from tests.http.shop import Shop, accepted, wait_for
from tests.je_data import unpack

AT_ONCE = {"min_file_age": "PT0S", "duration": "PT0S"}
LOADED = """() => !document.querySelector("[hx-trigger=load] > p > a[href*='/parts/']")"""
"""Nothing that loads after the page is still to come."""
ALIKE = pytest.mark.long
"""Of the same template as the page before it, with another filter; parts stand in their pages too."""
PATHS = [
    "/console/",
    "/console/attention",
    pytest.param("/console/attention?code=STORE_UNREADY", marks=ALIKE),
    "/console/help",
    "/console/jobs",
    "/console/jobs?state=SUCCEEDED&kind=purge&store=nowhere",
    "/console/jobs/{job}",
    "/console/stores",
    pytest.param("/console/stores?kind=SYMMETRICDS", marks=ALIKE),
    "/console/stores/{store}",
    pytest.param("/console/stores/{store}?window=MONTH", marks=ALIKE),
    "/console/stores/{store}/parts/purges",
    "/console/stores/{env}",
    pytest.param("/console/stores/{env}/parts/erasure", marks=ALIKE),
    "/console/stores/{replica}",
    "/console/stores/{node}",
]


@pytest.fixture(scope="module")
def names(shop: Shop, http: httpx.Client, roots: Path) -> dict[str, Any]:
    """A store of each kind (the node's target is away), with a purge that has ended and a cycle."""
    env = make_environment_store(http, roots, unpack("closed", roots / "closed"))
    cycle = env.post("erasure-cycles", AT_ONCE)
    assert cycle.status_code == 202, cycle.text
    listed = http.get(f"{env.url}/erasure-cycles").json()["items"]
    replica = make_replica(http, rid=1, folder=roots)
    node = {"id": "away", "kind": "SLONY", "cluster": "c", "url": "postgresql+psycopg://x@127.0.0.1:1/x"}
    assert http.post("/v1/stores", json=node).status_code == 201
    job_id = accepted(shop.purge(reason="the test's"))
    assert wait_for(shop.http, job_id)["state"] == "SUCCEEDED"
    named = {"env": env.id, "cycle": listed[0]["id"], "replica": replica.id, "node": "away"}
    return named | {"store": shop.id, "job": job_id, "of_cycle": cycle.json()["id"]}


@pytest.mark.parametrize("path", PATHS)
def test_page_is_good_at_all_widths(one_tab: Tab, names: dict[str, Any], path: str) -> None:
    one_tab.open(path.format(**names))
    one_tab.page.wait_for_function(LOADED)
    one_tab.assert_good()


def test_login_page_is_good_at_all_widths(one_tab: Tab) -> None:
    one_tab.open("/console/login")
    one_tab.assert_good()


def test_page_of_a_cycle_shows_files_and_certificate(
    tab: Tab, names: dict[str, Any], http: httpx.Client
) -> None:
    wait_for(http, names["of_cycle"])
    tab.open("/console/stores/{env}/cycles/{cycle}".format(**names))
    tab.sees(".jdb")
    tab.sees("Certificate")
    tab.assert_good()


def test_pages_are_accessible_in_the_dark(tab: Tab, names: dict[str, Any]) -> None:
    tab.page.emulate_media(color_scheme="dark")
    for path in (
        "/console/",
        "/console/attention",
        "/console/jobs/{job}",
        "/console/stores/{node}",
        "/console/acts",
    ):
        tab.open(path.format(**names))
        tab.assert_accessible()

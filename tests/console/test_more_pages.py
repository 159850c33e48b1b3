"""Pages of acts, lists and the reference in a real browser, with hostile texts in all of them."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from tests.console.browsing import Tab
from tests.console.conftest import MakeShop
from tests.console.fleet import LONG, SCRIPT, Fleet, make_fleet
from tests.console.paths import PATHS
from tests.http.service_process import ServiceProcess


@pytest.fixture(scope="module")
def fleet(http: httpx.Client, roots: Path, make_shop: MakeShop) -> Fleet:
    return make_fleet(http, roots, make_shop())


# Of the same template as the page before them in the list, with other fields.
ALIKE = {
    "/console/stores/{environment}/acts/extinction",
    "/console/do/erasure-abort/{protection}?store={environment}",
    "/console/api/schemas/JobRead",
}


@pytest.mark.parametrize(
    "path", [pytest.param(path, marks=[pytest.mark.long] * (path in ALIKE)) for path in PATHS]
)
def test_page_is_good_at_all_widths_and_texts_are_inert(one_tab: Tab, fleet: Fleet, path: str) -> None:
    one_tab.open(path.format(**fleet.names))
    one_tab.assert_good()
    assert one_tab.page.title() != "taken"
    assert one_tab.page.query_selector("main script, main img") is None


def test_hostile_errors_and_causes_of_waits_are_inert(
    tab: Tab, service: ServiceProcess, http: httpx.Client, make_shop: MakeShop
) -> None:
    # A target says what it wants in its errors; neither layout nor page may follow.
    shop, text = make_shop(), SCRIPT + LONG
    http.post(f"/v1/stores/{shop.id}:suspend", json={"reason": "rest"}).raise_for_status()
    failed, waits = (shop.purge(reason=name, kind=name).json()["id"] for name in ("OUTGOING", "INCOMING"))
    error = json.dumps({"code": "TARGET_UNREACHABLE", "title": "Away", "detail": text, "retryable": True})
    wait = json.dumps([{"kind": "TARGET", "ref": text[:80], "until": None, "cause": text}])
    with closing(sqlite3.connect(service.data_dir / "lethe.db", timeout=30)) as rows, rows:
        rows.execute(
            "update jobs set state = 'FAILED', error = ?, finished_at = updated_at, waiting_on = '[]'"
            " where id = ?",
            (error, failed),
        )
        rows.execute("update jobs set state = 'PAUSED', waiting_on = ? where id = ?", (wait, waits))
    for job in (failed, waits):
        page = tab.open(f"/console/jobs/{job}")
        assert "<script>document.title" in tab.text()
        assert "WWWW" in tab.text()
        tab.assert_good()
        assert page.title() != "taken"
        assert page.query_selector("main script, main img") is None
    http.post(f"/v1/jobs/{waits}:abort").raise_for_status()

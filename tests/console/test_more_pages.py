"""Pages of acts, lists and the reference in a real browser, with hostile texts in all of them."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.console.browsing import Tab
from tests.console.conftest import MakeShop
from tests.console.fleet import Fleet, make_fleet
from tests.console.paths import PATHS


@pytest.fixture(scope="module")
def fleet(http: httpx.Client, roots: Path, make_shop: MakeShop) -> Fleet:
    return make_fleet(http, roots, make_shop())


@pytest.mark.parametrize("path", PATHS)
def test_page_is_good_at_all_widths_and_texts_are_inert(tab: Tab, fleet: Fleet, path: str) -> None:
    tab.open(path.format(**fleet.names))
    tab.assert_good()
    assert tab.page.title() != "taken"
    assert tab.page.query_selector("main script, main img") is None

"""Pictures of the pages for docs/how-to/console.md, written where LETHE_CONSOLE_PICTURES names a folder."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from playwright.sync_api import Browser

from tests.console.browsing import MakeTab, add_session
from tests.console.fleet import make_fleet
from tests.console.paths import GIVEN
from tests.http.service_process import ServiceProcess
from tests.http.shop import Shop

WIDE = {"width": 1280, "height": 800}
NARROW = {"width": 360, "height": 740}
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"viewport": WIDE, "color_scheme": "light"},
    "dark": {"viewport": WIDE, "color_scheme": "dark"},
    "narrow": {"viewport": NARROW, "color_scheme": "light"},
}
COLOURS = 32
PAGES = {
    "overview": "/console/",
    "jobs": "/console/jobs",
    "job": "/console/jobs/{job}",
    "stores": "/console/stores",
    "store": "/console/stores/{store}",
    "act": "/console/stores/{store}/acts/purge-outgoing",
    "plan": "/console/stores/{store}/acts/purge-outgoing/plans/{plan}?given=" + GIVEN.replace("{", "{{"),
    "backups": "/console/backups",
    "schedules": "/console/schedules",
    "audit": "/console/audit",
    "system": "/console/system",
    "api": "/console/api",
}
"""What is drawn: name and path; of each page `NAME-LOOK.png` is written."""

pytestmark = pytest.mark.skipif(
    "LETHE_CONSOLE_PICTURES" not in os.environ, reason="make console-pictures writes them"
)


@pytest.fixture(scope="module")
def names(shop: Shop, roots: Path) -> dict[str, str]:
    """A store with a purge that has ended and one that runs slowly."""
    fleet = make_fleet(shop.http, roots, shop, hostile=False)
    shop.http.post(f"/v1/stores/{shop.id}:check")
    job_id = shop.slow_purge(rows_per_s=5, kind="INCOMING", reason="disk space")
    return fleet.names | {"job": job_id}


@pytest.mark.parametrize("look", LOOKS)
def test_pictures_of_all_pages_are_written(
    make_tab: MakeTab, browser: Browser, service: ServiceProcess, operator: Any, names: Any, look: str
) -> None:
    folder = Path(os.environ["LETHE_CONSOLE_PICTURES"])
    folder.mkdir(parents=True, exist_ok=True)
    context = browser.new_context(**LOOKS[look], timezone_id="UTC")
    add_session(context, service, operator)
    try:
        tab = make_tab(context=context)
        for name, path in PAGES.items():
            tab.open(path.format(**names))
            if tab.page.query_selector("#live"):
                tab.page.wait_for_selector("#connection.good")
            tab.page.wait_for_timeout(300)
            drawn = Image.open(io.BytesIO(tab.page.screenshot()))
            drawn.quantize(COLOURS).save(folder / f"{name}-{look}.png", optimize=True)
    finally:
        context.close()

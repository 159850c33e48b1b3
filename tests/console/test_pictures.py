"""Pictures of the pages for docs/how-to/console.md, written where LETHE_CONSOLE_PICTURES names a folder."""

from __future__ import annotations

import io
import json
import os
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image
from playwright.sync_api import Browser

from app.stores.rows import Store
from app.stores.service import target_of_row
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
    "environment": "/console/stores/{environment}",
    "node": "/console/stores/{node}/parts/node",
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


LOG_STATUS: dict[str, Any] = {
    "store": "lab-1",
    "local_node": 1,
    "as_of": "2026-11-20T10:54:41Z",
    "status": 3,
    "active": "sl_log_2",
    "other": "sl_log_1",
    "is_switching": True,
    "started_at": "2026-11-20T10:44:41Z",
    "needs_healing": False,
    "tables": [
        {"name": "sl_log_2", "role": "ACTIVE", "rows_estimate": 1361, "bytes": 262144, "is_empty": False},
        {"name": "sl_log_1", "role": "OTHER", "rows_estimate": 1484, "bytes": 270336, "is_empty": False},
    ],
    "origins": [],
    "blockers": [],
}


@pytest.fixture(scope="module")
def names(shop: Shop, service: ServiceProcess, roots: Path) -> dict[str, str]:
    """A store with a purge that has ended and one that runs slowly."""
    fleet = make_fleet(shop.http, roots, shop, hostile=False)
    shop.http.post(f"/v1/stores/{shop.id}:check")
    job_id = shop.slow_purge(rows_per_s=5, kind="INCOMING", reason="disk space")
    return fleet.names | {"job": job_id, "node": make_node(shop.http, service)}


def make_node(http: httpx.Client, service: ServiceProcess) -> str:
    """A node of Slony-I that is away, and what its last check has kept."""
    body: dict[str, Any] = {
        "id": "lab-1",
        "kind": "SLONY",
        "cluster": "lab",
        "url": "postgresql+psycopg://x@127.0.0.1:1/x",
    }
    http.post("/v1/stores", json=body).raise_for_status()
    now = datetime.now(UTC)
    target = target_of_row(Store(**body, created_at=now, updated_at=now))
    pairs = [
        pair(origin, receiver, now) for origin in (1, 2, 3) for receiver in (1, 2, 3) if origin != receiver
    ]
    with closing(sqlite3.connect(service.data_dir / "lethe.db", timeout=30)) as rows, rows:
        rows.execute(
            "insert into node_looks (local_node, store, target, at, confirmations, log_status)"
            " values (1, ?, ?, ?, ?, ?)",
            (
                "lab-1",
                json.dumps(target),
                now.isoformat(sep=" ")[:26],
                json.dumps(pairs),
                json.dumps(LOG_STATUS),
            ),
        )
    return "lab-1"


def pair(origin: int, receiver: int, now: datetime) -> dict[str, Any]:
    """Node 3 is behind the others."""
    last, behind = 5_000_000_142 + origin, 29 if receiver == 3 else 0
    return {
        "origin": origin,
        "receiver": receiver,
        "receiver_is_active": True,
        "state": "BEHIND" if behind else "CURRENT",
        "confirmed_seqno": last - behind,
        "confirmed_at": (now - timedelta(seconds=30 * behind + 2)).isoformat(),
        "last_seqno": last,
        "lag_events": behind,
        "lag": f"PT{30 * behind}S",
    }


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

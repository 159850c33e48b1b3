"""The page of a store: the last runs of each verb, the matrix of Slony-I, and no look at a target."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from app.db import Database
from app.events.rows import NodeLook
from app.figures.sums import Name, count
from app.jobs.states import JobState
from app.settings import Settings
from app.stores.rows import Store
from app.stores.service import target_of_row
from tests.app.console.browser import Browser
from tests.app.fake_clock import FakeClock
from tests.app.fleet.test_overview import Fleet

SETTINGS = {"allowed_hosts": ["127.0.0.1"], "target_connect_timeout_s": 1}
LOADED = re.compile(r'hx-get="(/console/stores/[^"]+/parts/[^"]+)" hx-trigger="load"')
ASKED = re.compile(r'id="ask-[a-z-]+" href="([^"]+)"')


@pytest.fixture
def fleet(database: Database, clock: FakeClock, settings: Settings) -> Fleet:
    return Fleet(database, clock, settings.model_copy(update=SETTINGS))


def cells(page: str, section: str) -> str:
    """The text of a section, its tags as one space."""
    found = page.partition(f'<section aria-labelledby="{section}">')[2].partition("</section>")[0]
    return " ".join(re.sub(r"<[^>]+>", " ", found).split())


def test_each_verb_shows_its_last_runs_with_outcome_duration_and_amounts(
    fleet: Fleet, browser: Browser
) -> None:
    # Only the last success of a verb was shown: three nights that failed after it were not.
    now = fleet.clock.now()
    progress = {"unit": "rows", "done": 20_000, "removed": 18_211, "fraction": 1.0}
    begun = {"started_at": now - timedelta(minutes=9), "finished_at": now - timedelta(minutes=5)}
    fleet.add(fleet.store("shop"))
    fleet.add(fleet.job(JobState.SUCCEEDED, params={"kind": "OUTGOING"}, progress=progress, **begun))
    for _ in range(6):
        fleet.clock.advance(1)
        fleet.add(
            fleet.job(JobState.FAILED, params={"kind": "INCOMING"}, error={"code": "TARGET_FULL"}, **begun)
        )
    fleet.add(fleet.job(JobState.SUCCEEDED, kind="PLAN", **begun))
    with fleet.database.transaction() as db:
        count(db, Name.LAST_SUCCESS, "PLAN", store="shop", value=now.timestamp(), now=now)
        count(db, Name.LAST_SUCCESS, "PURGE", store="shop", value=now.timestamp() - 300, now=now)
    text = cells(browser.get("/console/stores/shop").text, "verbs")
    assert text.count("failed TARGET_FULL") == 5
    assert "Purge last success 5 min" in text
    assert "plan" not in text.lower()
    fleet.add(fleet.job(JobState.SUCCEEDED, params={"kind": "OUTGOING"}, progress=progress, **begun))
    text = cells(browser.get("/console/stores/shop").text, "verbs")
    assert re.search(r"outgoing succeeded .* 4 min 20 000 rows 18 211 rows ann", text), text


class Target:
    """Something that listens where a target would be, counts who calls, and hangs up at once.

    Attributes:
        calls: how many have called; whoever was hung up on is among them.
    """

    def __init__(self, listener: socket.socket) -> None:
        self.port: int = listener.getsockname()[1]
        self.calls = 0
        self._listener = listener
        self._thread = threading.Thread(target=self._answer, daemon=True)
        self._thread.start()

    def _answer(self) -> None:
        while True:
            try:
                called, _ = self._listener.accept()
            except OSError:  # the test is over
                return
            self.calls += 1
            called.close()

    def close(self) -> None:
        """Listen no more."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(10)


@pytest.fixture
def target() -> Iterator[Target]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        made = Target(listener)
        yield made
        made.close()


@pytest.mark.parametrize("kind", ["SLONY", "REPLICA", "SYMMETRICDS"])
def test_nothing_that_a_page_loads_by_itself_calls_the_target(
    fleet: Fleet, browser: Browser, target: Target, kind: str
) -> None:
    # The page of a node of Slony-I asked it twice each time that somebody looked.
    now = fleet.clock.now()
    url = f"postgresql+psycopg://x@127.0.0.1:{target.port}/x"
    fields: dict[str, Any] = {"cluster": "c"} if kind == "SLONY" else {}
    fleet.add(Store(id="shop", kind=kind, url=url, created_at=now, updated_at=now, **fields))
    page = browser.get("/console/stores/shop")
    assert page.status_code == 200
    for path in LOADED.findall(page.text):
        assert browser.get(path).status_code == 200, path
    assert not target.calls
    for path in ASKED.findall(page.text):
        assert browser.get(path).status_code == 200, path
    assert target.calls  # it would have been seen


def pair(origin: int, receiver: int, **fields: Any) -> dict[str, Any]:
    usual = {
        "origin": origin,
        "receiver": receiver,
        "receiver_is_active": True,
        "state": "CURRENT",
        "confirmed_seqno": 142,
        "confirmed_at": "2026-11-20T10:54:41Z",
        "last_seqno": 142,
        "lag_events": 0,
        "lag": "PT0S",
    }
    return usual | fields


def test_node_is_shown_as_its_last_check_kept_it(fleet: Fleet, browser: Browser) -> None:
    now = fleet.clock.now()
    node = Store(id="node", kind="SLONY", url="postgresql://x/x", cluster="c", created_at=now, updated_at=now)
    target = target_of_row(node)
    fleet.add(node)
    assert "No check has read this node yet" in browser.get("/console/stores/node/parts/node").text
    behind = {"state": "BEHIND", "confirmed_seqno": 113, "lag_events": 29, "lag": "PT14M37S"}
    never = {"state": "NEVER_CONFIRMED", "confirmed_seqno": None, "confirmed_at": None, "lag": None}
    pairs = [pair(1, 2), pair(1, 3, **behind), pair(2, 1), pair(2, 3, **never)]
    log = {
        "store": "node",
        "local_node": 1,
        "as_of": "2026-11-20T10:54:41Z",
        "status": 3,
        "active": "sl_log_2",
        "other": "sl_log_1",
        "is_switching": True,
        "started_at": None,
        "needs_healing": False,
        "tables": [
            {"name": "sl_log_2", "role": "ACTIVE", "rows_estimate": 7, "bytes": 8192, "is_empty": False}
        ],
        "origins": [],
        "blockers": [],
    }
    fleet.add(
        NodeLook(store="node", at=now, target=target, local_node=1, confirmations=pairs, log_status=log)
    )
    with fleet.statements() as seen:
        page = browser.get("/console/stores/node/parts/node").text
    assert len(seen) <= 5, seen
    text = " ".join(re.sub(r"<[^>]+>", " ", page).split())
    assert "As node 1 knew it 0 s ago" in text
    assert "Node 1 142 – current up to 142" in text
    assert "behind up to 113" in text
    assert "29 events , 14 min 37 s behind" in text or "29 events, 14 min 37 s behind" in text
    assert "never confirmed" in text
    assert "sl_log_2 is written; sl_log_1 is to be emptied" in text

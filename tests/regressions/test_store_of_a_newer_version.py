"""A store of a kind that only a newer version knows, which works beside us, was answered by 500 wherever
stores are listed, and our checks took its turn away from those who can look at it.
"""

from __future__ import annotations

from datetime import timedelta

from app.auth.scopes import Scope
from app.auth.service import Caller
from app.fleet.attention import Limits, Shown
from app.fleet.overview import OverviewFilter, overview
from app.stores.checks.rows import StoreHealth
from app.stores.rows import Store
from app.stores.service import list_stores
from tests.app.fleet.test_checker import FIRST, PERIOD, Watched
from tests.app.jobs.workbench import Workbench

HOUR = timedelta(hours=1)


def _add_strange(bench: Workbench) -> None:
    now = bench.clock.now()
    with bench.database.transaction() as db:
        db.add(Store(id="strange", kind="OF_A_NEWER_VERSION", url="x", created_at=now, updated_at=now))
        db.flush()
        db.add(StoreHealth(store="strange", due_at=now))


def test_the_others_are_listed(bench: Workbench) -> None:
    _add_strange(bench)
    admin = Caller("tok_1", "ann", frozenset(Scope), None)
    Watched(bench.database, bench.clock, bench.settings).add("plain")  # type: ignore[arg-type]
    with bench.database.reading() as db:
        page = list_stores(db, kinds=[], labels={}, visible=None, page_size=10, page_token="")
    told = overview(
        bench.database,
        admin,
        OverviewFilter(),
        limits=Limits(HOUR, HOUR),
        shown=Shown(),
        now=bench.clock.now(),
        page_size=10,
        page_token="",
    )
    assert [store.id for store in page.items] == ["plain"]
    assert [store.id for store in told.stores] == ["plain"]


def test_its_turn_to_be_looked_at_is_left_to_others(bench: Workbench) -> None:
    _add_strange(bench)
    watched = Watched(bench.database, bench.clock, bench.settings)  # type: ignore[arg-type]
    watched.add("plain")
    watched.run()
    due_at = watched.health("strange").due_at
    assert watched.after(FIRST) == ["plain"]
    assert watched.after(PERIOD) == ["plain"]
    assert watched.health("strange").due_at == due_at

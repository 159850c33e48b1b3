"""Which units of a cleanup may be under way at once: the walk, asked with others under way."""

from __future__ import annotations

import random

import pytest

from spark.events.catalog import read_catalog
from spark.events.cleaning.plan import plan_cleanup
from spark.events.cleanup import CleanupWalk
from spark.events.unit import CleanupUnit, UnitJob, run_unit
from tests.spark.events.catalogs import Catalogs, LoadedCatalog
from tests.spark.events.random_catalogs import CUTOFF, contents, put, settled_catalog

JOB = UnitJob("job-1", 1, "cleanup", has_ledger=False)
WIDTH = 3


@pytest.fixture
def nodes(catalogs: Catalogs) -> list[LoadedCatalog]:
    """The same catalog twice."""
    loaded = [catalogs.empty(), catalogs.empty()]
    for each in loaded:
        put(each, settled_catalog(2))
    return loaded


def _origins(unit: CleanupUnit) -> set[int]:
    return {span.origin for span in unit.spans}


@pytest.mark.parametrize("seed", range(8))
def test_units_that_end_in_any_order_leave_what_one_after_the_other_leaves(
    nodes: list[LoadedCatalog], seed: int
) -> None:
    drawn = random.Random(seed)
    for node, width in zip(nodes, (1, WIDTH), strict=True):
        with node.connect() as conn:
            catalog = read_catalog(conn, node.cluster)
            walk = CleanupWalk(plan_cleanup(conn, catalog, confirmed_before=CUTOFF), catalog, JOB)
            under_way: list[CleanupUnit] = []
            seen: set[tuple[str, ...]] = set()
            while True:
                busy = set().union(*map(_origins, under_way))
                unit = walk.next_unit(conn, rows_max=2, busy=busy) if len(under_way) < width else None
                if unit is not None:
                    _is_allowed(unit, under_way)
                    under_way.append(unit)
                    seen.add(tuple(sorted(each.step for each in under_way)))
                elif under_way:
                    done = under_way.pop(drawn.randrange(len(under_way)))
                    walk.note(done, run_unit(conn, done))
                else:
                    break
            assert walk.held == []
            for step in ("CONFIRM", "EVENT"):
                assert any(steps.count(step) > 1 for steps in seen) is (width > 1)

    first, second = (contents(node) for node in nodes)
    assert first == second


def _is_allowed(unit: CleanupUnit, under_way: list[CleanupUnit]) -> None:
    """Only confirmations and events go beside each other; no origin's events beside anything of its own."""
    for other in under_way:
        assert {unit.step, other.step} <= {"CONFIRM", "EVENT"}
        if unit.step == "EVENT":
            assert not _origins(unit) & _origins(other)

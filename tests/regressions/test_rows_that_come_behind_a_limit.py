"""The limits of a store were held against a count before the first delete of a purge of SymmetricDS's tables,
and never again: rows that were delivered between that count and the last unit went too, however many.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import app.purge.task as task
from tests.oracles.symmetricds import Place, build, snapshot
from tests.regressions.old_rows import MUST_BE_THERE, OLD_ROWS, UPKEEP, insert
from tests.regressions.purges import OLD_CUTOFF, Purges

ROWS = 40
WORDS = {"STRANDED": "REMOVE"}


def test_every_kind_is_asked() -> None:
    assert {*OLD_ROWS} == {kind.value for kind in task.KINDS}
    assert {*UPKEEP} < {*OLD_ROWS}


@pytest.mark.parametrize("kind", OLD_ROWS)
def test_rows_that_come_after_the_count_are_none_too_many(
    purges: Purges, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    place = Place(f"sqlite:///{tmp_path}/sym.db")
    build(place, MUST_BE_THERE.get(kind, {}))
    insert(place, kind, range(1, 2 * ROWS, 2))
    most = ROWS * len(OLD_ROWS[kind])
    purges.store(place, limits={"max_rows": most})
    swept = task.sweep_windows

    def more(*args: Any, **options: Any) -> Any:
        insert(place, kind, range(2, 2 * ROWS - 1, 2))  # between the others
        return swept(*args, **options)

    monkeypatch.setattr(task, "sweep_windows", more)
    before = snapshot(place)
    job = purges.run(purges.submit(kind=kind, cutoff=OLD_CUTOFF, max_rows_in_tx=7, stranded=WORDS.get(kind)))
    assert (job.state, (job.error or {}).get("code")) == ("FAILED", "LIMIT_EXCEEDED")
    after = snapshot(place)
    gone = sum(len(before[table]) + ROWS - 1 - len(after[table]) for table in OLD_ROWS[kind])
    assert 0 < gone <= most

"""A SQLite database kept its times as text with an offset. They passed for naive ones and were compared as
text: a row captured at 11:00-12:00, which is 23:00 in UTC, was removed by a purge up to 12:00.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.oracles.symmetricds import Place, session, snapshot
from tests.regressions.purges import OLD_CUTOFF, Purges


@pytest.mark.parametrize("offset", ["-12:00", "+0200", "Z"])
def test_text_with_an_offset_is_refused(purges: Purges, tmp_path: Path, offset: str) -> None:
    place = purges.fill(Place(f"sqlite:///{tmp_path}/sym.db"))
    purges.store(place)
    with session(place) as target:
        target.run(f"update sym_data set create_time = '2026-03-10 11:00:00{offset}'")
    before = snapshot(place)
    job = purges.run(purges.submit(cutoff=OLD_CUTOFF))
    assert job.error is not None
    assert job.error["code"] == "MIXED_TIME_TYPES"
    assert "offset" in job.error["detail"]
    assert snapshot(place) == before

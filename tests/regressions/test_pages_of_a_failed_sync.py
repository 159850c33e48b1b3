"""An fsync failed after the items of a round were written. The kernel calls such pages clean from then on,
and keeps them: the next cycle read zeros out of memory, planned nothing for the file and called it clean,
while the medium still had the old bytes.
"""

import errno
from dataclasses import dataclass
from pathlib import Path

from spark.erase.calls.calls import RefusalCode, Step
from tests.regressions.environments import write_history
from tests.spark.erase.hands_at_work import Failing, claim, overwrite, plan, rounds_of


@dataclass
class Watched(Failing):
    """Counts how often pages were dropped."""

    drops: int = 0

    def drop_pages(self, descriptor: int) -> None:
        self.drops += 1
        super().drop_pages(descriptor)


def test_pages_that_could_not_be_synced_are_dropped(tmp_path: Path) -> None:
    write_history(tmp_path)
    claim(tmp_path)
    file = next(each for each in plan(tmp_path).files if each.entry_count)
    [call] = rounds_of(tmp_path, file)
    layer = Watched(kind="fsync", at=3, errno=errno.EIO)
    answer = overwrite(call, layer=layer)
    assert answer.refusal is not None
    assert (answer.refusal.code, answer.step) == (RefusalCode.UNPROVEN, Step.OVERWRITE)
    assert layer.drops == 1

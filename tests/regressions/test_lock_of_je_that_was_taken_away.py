"""A round held the lock of JE in je.lck, and an operator removed that file, or put another one in its place,
while it was at work. A JE process that was started then found a lock file that nobody held, and worked in the
environment beside a round that wrote whole blocks back.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from spark.erase.calls.calls import RefusalCode, Step
from spark.erase.overwrite.environment_lock import NAME
from tests.regressions.environments import write_history
from tests.spark.erase.hands_at_work import Meddling, claim, overwrite, plan, rounds_of


def remove(path: Path) -> None:
    path.unlink()


def put_another(path: Path) -> None:
    other = path.with_suffix(".new")
    other.touch()
    other.rename(path)


def rename(path: Path) -> None:
    path.rename(path.with_suffix(".old"))


@pytest.mark.parametrize("deed", [remove, put_another, rename])
def test_round_stops_before_its_next_write_and_is_done_by_the_next_one(
    tmp_path: Path, deed: Callable[[Path], None]
) -> None:
    write_history(tmp_path)
    claim(tmp_path)
    file = next(each for each in plan(tmp_path).files if each.entry_count)
    [call] = rounds_of(tmp_path, file)
    layer = Meddling(at=1, deed=lambda: deed(tmp_path / NAME))
    answer = overwrite(call, layer=layer)
    assert answer.refusal is not None
    assert (answer.refusal.code, answer.step, layer.writes) == (RefusalCode.STOPPED, Step.MARK, 1)
    assert overwrite(replace(call, is_first=False)).step == Step.DONE

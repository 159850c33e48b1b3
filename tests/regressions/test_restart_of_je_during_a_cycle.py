"""A LIVE store was handled as CLOSED whenever its application was down: plans and rounds held JE's lock. JE
asks for that lock once when it opens an environment, and does not try again: an application that was
restarted in mid-cycle ended with EnvironmentLockedException.
"""

import fcntl
import os
import threading
from pathlib import Path

import pytest

from spark.erase.calls.calls import Mode, PlanCall, RefusalCode, Step
from spark.erase.calls.request import PlanRequest
from spark.erase.reading.properties import PROPERTIES_NAME
from spark.erase.unit import do
from tests.spark.erase.hands_at_work import claim, contents, overwrite, plan, rounds_of
from tests.spark.erase.live_environments import NO_GRACE, write_environment, write_versions
from tests.spark.erase.live_eraser import Eraser

RESTARTS_MIN = 100


class Restarting:
    """An application that comes and goes all the time, and asks for JE's lock as JE does: once."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "je.lck"
        self.restarts = self.refused = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Restarting":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.is_set():
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
            except OSError:
                self.refused += 1
            finally:
                os.close(descriptor)
            self.restarts += 1
            self._ended.wait(0.0005)


def test_application_that_restarts_during_cycles_of_a_live_store_is_never_locked_out(tmp_path: Path) -> None:
    environment = write_environment(tmp_path)
    eraser = Eraser(tmp_path, node_grace_ms=0)
    with Restarting(tmp_path) as application:
        while application.restarts < RESTARTS_MIN or eraser.passes.total() < 3:
            write_versions(environment, range(25))
            environment.log.now_ms += 60_000
            environment.checkpoint()
            eraser.make_pass()
    assert eraser.files_proved > 0
    assert (application.refused, eraser.passes[Mode.CLOSED]) == (0, 0)


@pytest.mark.parametrize("terms", [None, NO_GRACE])
def test_with_jes_own_eraser_on_nothing_is_planned_in_either_mode(tmp_path: Path, terms: object) -> None:
    write_environment(tmp_path).close()
    (tmp_path / PROPERTIES_NAME).write_text("je.env.runEraser=true\nje.erase.period=30 d\n")
    answer = do(PlanCall(str(tmp_path), PlanRequest(), terms))  # type: ignore[arg-type]
    assert answer.refusal is not None
    assert (answer.refusal.code, answer.refusal.ref) == (RefusalCode.LOG_REFUSED, "OWN_ERASER_ON")
    assert "set it to false" in answer.refusal.detail
    assert answer.files == ()


def test_round_after_jes_own_eraser_was_switched_on_writes_nothing(tmp_path: Path) -> None:
    write_environment(tmp_path).close()
    claim(tmp_path)
    file = next(each for each in plan(tmp_path).files if each.entry_count)
    for mode in Mode:
        (tmp_path / PROPERTIES_NAME).write_text("je.env.runEraser=true\n")
        before = contents(tmp_path)
        [call, *_] = rounds_of(tmp_path, file, mode=mode)
        refused = do(call)
        assert refused.refusal is not None
        assert (refused.refusal.ref, refused.step) == ("OWN_ERASER_ON", Step.LOCK)
        assert contents(tmp_path) == before
    (tmp_path / PROPERTIES_NAME).unlink()
    assert overwrite(call).refusal is None

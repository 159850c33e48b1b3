"""A slot that could not be given back, because the pool's threads had ended meanwhile, raised an error that
is none of Spark's; the dispatcher's thread ended with it. With the last of them every job on Spark waited for
ever.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from spark.exchange import dispatch
from spark.exchange.board import ExchangeLimits
from spark.exchange.dispatch import Exchange
from spark.exchange.lease import LeaseTerms
from tests.spark.exchange.slots import CORES, ThreadSlot, ThreadSlots
from tests.spark.exchange.work import done, made_target, note, work_of

PATIENCE_S = 20.0


class FaultySlots(ThreadSlots):
    """The first leases cannot be given back."""

    faults = 3

    @contextmanager
    def lease(
        self,
        *,
        job_id: str,
        job_class: str,
        should_stop: Callable[[], bool] = lambda: False,
        wait_s: float | None = None,
    ) -> Iterator[ThreadSlot]:
        with super().lease(job_id=job_id, job_class=job_class, should_stop=should_stop) as slot:
            yield slot
        if self.faults:
            self.faults -= 1
            raise RuntimeError("cannot schedule new futures after shutdown")


def test_units_go_on_after_faults_of_the_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "REFUSED_PAUSE_S", 0.01)
    give_up = time.monotonic() + PATIENCE_S

    def look() -> None:
        assert time.monotonic() < give_up, "nobody dispatches any more"

    target = made_target(tmp_path)
    limits = ExchangeLimits(task_s=0.2, gather_s=0.01)
    with closing(FaultySlots(2)) as slots:
        exchange = Exchange(
            slots,
            dispatchers=2,
            limits=limits,
            run=slots.run_tasks,
            cores=lambda _: CORES,
            describe=slots.describe,
        )
        with closing(exchange), exchange.lease(work_of(target, note), LeaseTerms(1, look=look)) as lease:
            for unit in range(6):
                [outcome] = lease.map(iter([unit]))
                assert outcome.error is None
    assert slots.faults == 0
    assert done(target) == list(range(6))

"""An environment that has seen a greater epoch than this metadata: refused, until it is taken back."""

from __future__ import annotations

from app.erase.recover import is_environment_ahead, recover_environment
from app.stores.models import Store
from app.stores.service import get_store
from spark.targets.control_file import ControlFile
from tests.app.erase.erasers import Erasers
from tests.app.erase.fake_hands import FakeLog

FOREIGN_EPOCH = 999


def store_of(erasers: Erasers) -> Store:
    with erasers.database.reading() as db:
        return get_store(db, erasers.store_id)


def raise_epoch(log: FakeLog) -> None:
    with ControlFile.open(log.directory, create=True) as control:
        assert control.change(lambda record: record.claimed(FOREIGN_EPOCH)) is not None


def test_environment_nobody_has_claimed_is_not_ahead(erasers: Erasers) -> None:
    assert not is_environment_ahead(erasers.database, store_of(erasers), erasers.settings)


def test_environment_with_a_greater_epoch_refuses_cycles_until_recovered(
    erasers: Erasers, log: FakeLog
) -> None:
    raise_epoch(log)
    assert is_environment_ahead(erasers.database, store_of(erasers), erasers.settings)
    erasers.begin()
    erasers.run()
    error = erasers.job().error
    assert error is not None
    assert (erasers.cycle().state, error["code"]) == ("FAILED", "EPOCH_AHEAD")
    assert log.rounds_of(0) == []

    done = recover_environment(erasers.database, erasers.settings, store_of(erasers), "ann")
    assert done.epoch_after >= FOREIGN_EPOCH
    assert not is_environment_ahead(erasers.database, store_of(erasers), erasers.settings)
    erasers.begin()
    erasers.run()
    assert erasers.cycle().state == "COMPLETE"

"""An environment that has seen a greater epoch than this metadata: refused, until it is taken back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlmodel import col, select

from app.erase.recover import is_environment_ahead, recover_environment
from app.jobs.running.claims import next_token
from app.protection.rows import Protection
from app.stores.rows import Store
from app.stores.service import get_store
from app.stores.targets import environment_directory
from spark.targets.files.control_file import ControlFile
from spark.targets.files.control_record import ProtectedRange
from tests.app.erase.erasers import Erasers
from tests.app.erase.fake_hands import FakeLog

FOREIGN_EPOCH = 999


def store_of(erasers: Erasers) -> Store:
    with erasers.database.reading() as db:
        return get_store(db, erasers.store_id)


def raise_epoch(log: FakeLog, epoch: int = FOREIGN_EPOCH) -> None:
    with ControlFile.open(log.directory, create=True) as control:
        assert control.change(lambda record: record.claimed(epoch)) is not None


def test_environment_nobody_has_claimed_is_not_ahead(erasers: Erasers) -> None:
    assert not is_environment_ahead(erasers.database, store_of(erasers), erasers.settings)


def test_environment_that_is_not_here_has_no_answer(erasers: Erasers, log: FakeLog) -> None:
    """It may be on another machine: whether it was worked on since nobody knows."""
    log.directory.rename(log.directory.with_name("away"))
    assert is_environment_ahead(erasers.database, store_of(erasers), erasers.settings) is None


def test_environment_is_not_ahead_while_a_job_of_ours_claims_it(
    erasers: Erasers, log: FakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens: list[int] = []

    def claimed_first(*args: Any) -> Path:
        with erasers.database.transaction() as db:
            tokens.append(next_token(db))
        raise_epoch(log, tokens[-1])
        return environment_directory(*args)

    monkeypatch.setattr("app.erase.recover.environment_directory", claimed_first)
    assert not is_environment_ahead(erasers.database, store_of(erasers), erasers.settings)
    with ControlFile.open(log.directory, create=False) as control:
        assert [control.read().epoch] == tokens


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


def test_protections_that_only_the_control_file_knows_become_rows_whatever_it_says_of_them(
    erasers: Erasers, log: FakeLog
) -> None:
    """A newer version has kinds that this one does not know, and an id may be anybody's text."""
    known, newer = f"prt_{'a' * 26}", f"prt_{'b' * 26}"
    ranges = [
        ProtectedRange(known, "SCAN", 1, 2),
        ProtectedRange(known, "SCAN", 5, None),
        ProtectedRange(newer, "SNAPSHOT", 3, 3),
        ProtectedRange("'; drop table", "SCAN", 4, 4),
    ]
    with ControlFile.open(log.directory, create=True) as control:
        assert control.change(lambda record: record.protecting(*ranges)) is not None
    recover_environment(erasers.database, erasers.settings, store_of(erasers), "ann")
    with erasers.database.reading() as db:
        rows = db.exec(select(Protection).order_by(col(Protection.id))).all()
    found = [(row.id, str(row.kind), row.ranges, row.requested_by) for row in rows]
    assert found == [
        (known, "SCAN", [[1, 2], [5, None]], "ann"),
        (newer, "BACKUP", [[3, 3]], "ann"),
    ]

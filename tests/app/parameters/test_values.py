"""The value in effect and its source: store over global over default, under every name."""

import pytest
from sqlmodel import select

from app.db import Database
from app.errors import Conflict
from app.parameters.errors import ParameterNotFound, ParameterScopeInvalid
from app.parameters.rows import GlobalParameter
from app.parameters.service import (
    check_store_values,
    effective_by_name,
    global_version,
    known_parameter,
    set_global,
)
from tests.app.fake_clock import FakeClock
from tests.app.jobs.workbench import in_threads

RETENTION = "purge.retention.minutes"
EVENTS = "job.purge.max.num.data.events.to.delete.in.tx"
EVENTS_3X = "job.purge.max.num.data.event.batches.to.delete.in.tx"


def put(database: Database, clock: FakeClock, name: str, value: object) -> int:
    with database.transaction() as db:
        return set_global(db, known_parameter(name), value, now=clock.now())  # type: ignore[arg-type]


def test_source_is_the_nearest_that_has_a_value(database: Database, clock: FakeClock) -> None:
    def seen(store_values: dict[str, int]) -> tuple[object, str]:
        with database.reading() as db:
            found = effective_by_name(db, RETENTION, store_values)  # type: ignore[arg-type]
            return found.value, found.source

    assert seen({}) == (7200, "DEFAULT")
    put(database, clock, RETENTION, 60)
    assert seen({}) == (60, "GLOBAL")
    assert seen({RETENTION: 0}) == (0, "STORE")  # zero is a value
    put(database, clock, RETENTION, None)
    assert seen({}) == (7200, "DEFAULT")


def test_false_and_zero_are_values_not_absences(database: Database, clock: FakeClock) -> None:
    put(database, clock, "je.erase.extinctRecords", False)
    with database.reading() as db:
        found = effective_by_name(db, "je.erase.extinctRecords", {})
    assert (found.value, found.source) == (False, "GLOBAL")


def test_alias_reads_and_writes_the_same_value(database: Database, clock: FakeClock) -> None:
    put(database, clock, EVENTS_3X, 9)
    with database.reading() as db:
        assert effective_by_name(db, EVENTS, {}).value == 9
        assert [row.name for row in db.exec(select(GlobalParameter)).all()] == [EVENTS]


def test_each_setting_has_its_version_unset_too(database: Database, clock: FakeClock) -> None:
    versions = [put(database, clock, RETENTION, value) for value in (60, 60, None, 90)]
    assert versions == [1, 2, 3, 4]
    with database.reading() as db:
        assert global_version(db, RETENTION) == 4
        assert global_version(db, EVENTS) == 0


def test_first_settings_at_once_lose_no_update(database: Database, clock: FakeClock) -> None:
    results = in_threads(6, lambda number: put(database, clock, RETENTION, 60 + number))
    won = [result for result in results if isinstance(result, int)]
    lost = [result for result in results if not isinstance(result, int)]
    assert sorted(won) == list(range(1, len(won) + 1))
    assert all(isinstance(error, Conflict) for error in lost), lost
    with database.reading() as db:
        assert global_version(db, RETENTION) == len(won)


def test_stores_own_values_are_canonical() -> None:
    assert check_store_values({EVENTS_3X: "7", RETENTION: 60}, "SYMMETRICDS") == {EVENTS: 7, RETENTION: 60}


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"purge.retention.hours": 1}, ParameterNotFound),
        ({"cleanup_interval": "PT10M"}, ParameterScopeInvalid),
        ({"lethe.retention.jobs": "P1D"}, ParameterScopeInvalid),
        ({EVENTS: 1, EVENTS_3X: 1}, ParameterScopeInvalid),
    ],
)
def test_value_that_is_not_a_stores_is_refused(values: dict[str, object], error: type[Exception]) -> None:
    with pytest.raises(error):
        check_store_values(values, "SYMMETRICDS")

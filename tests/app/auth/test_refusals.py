"""Refused requests in the audit: counted by source, and bounded however many come from however many."""

from __future__ import annotations

import pytest
from sqlmodel import select

from app.auth.actions import Action
from app.auth.refusals import OTHERS, ROWS_BURST, SOURCES_MAX, Refusals, source_of
from app.auth.rows import AuditEvent
from app.db import Database
from app.errors import MetadataUnavailable
from tests.app.fake_clock import FakeClock


def _note(refusals: Refusals, address: str, code: str = "TOKEN_UNKNOWN") -> None:
    refusals.note(address, token_id=None, token_name=None, code=code, operation="GET /v1/jobs")


def _rows(database: Database) -> list[AuditEvent]:
    with database.reading() as db:
        query = select(AuditEvent).where(AuditEvent.action == Action.LOGIN_REFUSE)
        return list(db.exec(query.order_by(AuditEvent.id)).all())


def test_a_row_tells_of_one_source(database: Database, clock: FakeClock) -> None:
    refusals = Refusals(clock)
    for _ in range(7):
        _note(refusals, "10.0.0.1")
    _note(refusals, "10.0.0.1", "TOKEN_EXPIRED")
    refusals.note("10.0.0.1", token_id="tok_1", token_name="ann", code="SCOPE_MISSING", operation="x")
    assert refusals.write(database) == 2
    assert refusals.write(database) == 0
    unknown, ann = _rows(database)
    assert (unknown.subject_id, unknown.actor, unknown.detail["count"]) == ("10.0.0.1", "unknown", 8)
    assert unknown.detail["codes"] == {"TOKEN_UNKNOWN": 7, "TOKEN_EXPIRED": 1}
    assert (ann.actor, ann.token_id, ann.detail["count"]) == ("ann", "tok_1", 1)


def test_rows_are_bounded_and_none_is_forgotten(database: Database, clock: FakeClock) -> None:
    refusals = Refusals(clock)
    noted = 0
    for turn in range(ROWS_BURST // SOURCES_MAX + 20):
        for number in range(2 * SOURCES_MAX):
            _note(refusals, f"10.{turn}.{number}.1", f"CODE_{number}")
            noted += 1
        assert refusals.write(database) <= SOURCES_MAX + 1
    rows = _rows(database)
    assert len(rows) <= ROWS_BURST + 2  # the day goes on while the test does
    found = sum(row.detail["count"] for row in rows)
    others = [row for row in rows if row.subject_id == OTHERS]
    assert others
    assert others[0].detail["sources"] == SOURCES_MAX
    assert all(len(row.detail["codes"]) <= 8 for row in rows)
    rest = refusals._others
    assert rest is not None
    assert found + rest.count == noted


def test_what_cannot_be_written_is_written_later(database: Database, clock: FakeClock) -> None:
    refusals = Refusals(clock)
    _note(refusals, "10.0.0.1")
    away = Database("sqlite:////no/such/folder/lethe.db")
    with pytest.raises(MetadataUnavailable):
        refusals.write(away)
    away.close()
    assert refusals.write(database) == 1
    assert _rows(database)[0].detail["count"] == 1


@pytest.mark.parametrize(
    ("address", "source"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("x" * 300, "unknown"),
        ("", "unknown"),
    ],
)
def test_source_of_an_address(address: str, source: str) -> None:
    assert source_of(address) == source

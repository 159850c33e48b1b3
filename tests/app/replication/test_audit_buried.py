"""Entries are not compared where the other side's version cannot leave purged tombstones out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.replication.audits.models import NotCompared
from app.replication.audits.service import audit_entries


def _sides(theirs: dict[str, Any]) -> Any:
    side = SimpleNamespace(ruv={}, buried="6" * 20)
    other = SimpleNamespace(ruv={}, buried=theirs.get("buried"), model_fields_set=set(theirs))
    return cast(Any, SimpleNamespace(both=lambda _wanted: (side, other)))


def test_a_version_without_a_bound_is_not_compared() -> None:
    found = audit_entries(_sides({}), cast(Any, None))
    assert found.not_compared is NotCompared.TOMBSTONES_PURGED


def test_one_that_has_purged_nothing_is(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str | None] = []

    def audited(_sides: Any, _ruv: Any, buried: str | None, _budget: Any) -> Any:
        compared.append(buried)

    monkeypatch.setattr("app.replication.audits.service._audited_entries", audited)
    audit_entries(_sides({"buried": None}), cast(Any, None))
    assert compared == ["6" * 20]

"""Whether others wait for the rows of a unit, and how long it may take then."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.rows.task import FREE_TARGET_S, RowsPurge, _is_waited_for, _target_s


@pytest.mark.parametrize(
    ("dialect", "incoming", "is_waited_for"),
    [
        ("postgresql", (), False),
        ("postgresql", ("orders",), True),
        ("mysql", (), False),
        ("sqlite", (), True),
        ("sqlite", ("orders",), True),
    ],
)
def test_unit_on_sqlite_holds_up_every_writer(
    dialect: str, incoming: tuple[str, ...], is_waited_for: bool
) -> None:
    purge: Any = SimpleNamespace(
        conn=SimpleNamespace(dialect=SimpleNamespace(name=dialect)),
        family=SimpleNamespace(tables={"events": SimpleNamespace(incoming=incoming)}),
        context=SimpleNamespace(settings=SimpleNamespace(purge_unit_target_ms=300)),
    )
    assert _is_waited_for(cast(RowsPurge, purge)) is is_waited_for
    assert _target_s(cast(RowsPurge, purge)) == (0.3 if is_waited_for else FREE_TARGET_S)

"""Two kinds of purges may know the same field. The second one was refused a field of its own."""

from __future__ import annotations

from typing import Any

import pytest

from app.errors import InvalidRequest
from app.stores.models import StoreKind
from app.sweeps.purging import Purging, check_fields


def _never(*_args: Any, **_more: Any) -> Any:
    raise AssertionError("nothing is looked at")


def _kind(*own: str) -> Purging:
    return Purging(store_kind=StoreKind.SQL, look=_never, unseen=_never, own=frozenset(own))


KINDS = {"ROWS": _kind("table", "where"), "HEAPS": _kind("table", "depth"), "CHANGELOG": _kind()}


@pytest.mark.parametrize(("kind", "said"), [("ROWS", {"table", "where"}), ("HEAPS", {"table", "depth"})])
def test_field_that_two_kinds_know_is_taken_by_both(kind: str, said: set[str]) -> None:
    check_fields(KINDS, kind, said)


@pytest.mark.parametrize(
    ("kind", "field", "detail"),
    [
        ("HEAPS", "where", "makes no sense for HEAPS: only a purge ROWS knows it"),
        ("ROWS", "depth", "makes no sense for ROWS: only a purge HEAPS knows it"),
        ("CHANGELOG", "table", "makes no sense for CHANGELOG"),
    ],
)
def test_field_of_others_is_refused_and_its_only_kind_named(kind: str, field: str, detail: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_fields(KINDS, kind, {field})
    assert refused.value.errors == [{"pointer": f"/{field}", "detail": detail}]

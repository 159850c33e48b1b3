"""What a check says of other stores, for those who may see them and for others."""

from __future__ import annotations

import pytest

from app.stores.checks.models import NOT_SHOWN, Finding, FindingSeverity


def finding(detail: str, *others: str) -> Finding:
    return Finding(code="SAME_NODE", severity=FindingSeverity.WARNING, detail=detail).naming(others)


@pytest.mark.parametrize(
    ("visible", "shown"),
    [
        (None, "shop is shop-2, and shop-2 is not shop_3."),
        (("shop", "shop-2", "shop_3"), "shop is shop-2, and shop-2 is not shop_3."),
        (("shop", "shop_3"), f"shop is {NOT_SHOWN}, and {NOT_SHOWN} is not shop_3."),
        (("shop-2",), f"{NOT_SHOWN} is shop-2, and shop-2 is not {NOT_SHOWN}."),
        ((), f"{NOT_SHOWN} is {NOT_SHOWN}, and {NOT_SHOWN} is not {NOT_SHOWN}."),
    ],
)
def test_names_are_whole_names(visible: tuple[str, ...] | None, shown: str) -> None:
    said = finding("shop is shop-2, and shop-2 is not shop_3.", "shop", "shop-2", "shop_3")
    assert said.for_reader(visible).detail == shown
    assert Finding.of_kept(said.to_keep(max_chars=300)).for_reader(visible).detail == shown


def test_what_is_kept_ends_with_no_half_of_a_name() -> None:
    said = finding("the same as secret-shop", "secret-shop")
    for chars in range(12, 30):
        kept = Finding.of_kept(said.to_keep(max_chars=chars)).for_reader(())
        assert "sec" not in kept.detail, chars


def test_what_an_older_version_has_kept_is_shown_as_it_is() -> None:
    kept = {"code": "SAME_NODE", "severity": "WARNING", "detail": "store shop is the same node"}
    assert Finding.of_kept(kept).for_reader(()).model_dump(mode="json") == kept

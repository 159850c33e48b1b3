"""How many entries a copy's sessions have sent: the consumer's count tells what no answer has told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.replication.peer.answers import Acquired
from app.replication.supplier.resuming import Total, granted

POSITION = (b"db", b"k")


def _copy(**more: Any) -> Total:
    return {"entries_sent": 0, "entries_before": 0, "is_counted": False, "continued_from": None} | more


def _acquired(entries: int | None, *, after: tuple[bytes, bytes] | None = POSITION) -> Acquired:
    return cast(Acquired, SimpleNamespace(resume_after=after, is_copied=False, entries=entries, buried=None))


def _counted(total: Total) -> tuple[int, int]:
    return total["entries_before"], total["entries_sent"]


def test_what_the_last_session_was_not_answered_is_counted_as_before() -> None:
    assert _counted(granted(_copy(entries_before=100, continued_from="rps_1"), _acquired(160))) == (160, 0)


def test_what_this_session_was_not_answered_it_has_sent() -> None:
    total = granted(_copy(), _acquired(0, after=None)) | {"entries_sent": 40}
    assert _counted(granted(total, _acquired(100))) == (0, 100)


@pytest.mark.parametrize("after", [POSITION, None])
def test_a_consumer_that_does_not_count_changes_nothing(after: tuple[bytes, bytes] | None) -> None:
    total = granted(_copy(entries_before=100, continued_from="rps_1"), _acquired(None, after=after))
    assert _counted(total) == (100 if after else 0, 0)


def test_a_copy_that_was_granted_by_a_version_that_did_not_count_is_counted_from_now_on() -> None:
    before = _copy(entries_before=100, entries_sent=60)
    del before["is_counted"]
    assert _counted(granted(before, _acquired(170))) == (110, 60)


@given(
    before=st.integers(0, 1000),
    steps=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=8),
)
def test_both_make_what_the_consumer_has(before: int, steps: list[tuple[int, int]]) -> None:
    """Each lease brings entries, of which a part is answered; the next one finds them all."""
    there, total = before, granted(_copy(), _acquired(before))
    for sent, answered in steps:
        there += sent
        total = granted(
            total | {"entries_sent": total["entries_sent"] + min(answered, sent)}, _acquired(there)
        )
    assert _counted(total) == (before, there - before)

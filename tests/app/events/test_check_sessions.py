"""Which sessions a check says hold a log switch back.

`:check` warned of a session that was idle in its transaction for 0 s: every busy client is, between any two
statements.
"""

from __future__ import annotations

import pytest

from app.events.check import IDLE_TRANSACTION_S, LONG_TRANSACTION_S, holds_back
from spark.events.cleaning.records import Session


def _session(state: str | None, age_s: float | None, *, pid: int | None = 7, name: str = "shop") -> Session:
    return Session(pid, name, "shop", state, age_s, None, None, has_lock=False, is_older=True)


@pytest.mark.parametrize(
    ("session", "held"),
    [
        (_session("idle in transaction", 0.0), False),
        (_session("idle in transaction", IDLE_TRANSACTION_S - 0.1), False),
        (_session("idle in transaction", IDLE_TRANSACTION_S), True),
        (_session("idle in transaction (aborted)", 3600.0), True),
        (_session("idle in transaction", 30.0, name="slon.remoteWorkerThread_1"), False),
        (_session("active", LONG_TRANSACTION_S - 1), False),
        (_session("active", LONG_TRANSACTION_S), True),
        (_session(None, None, pid=None), True),
    ],
)
def test_only_a_forgotten_or_a_long_transaction_holds_the_switch_back(session: Session, held: bool) -> None:
    assert holds_back(session) is held

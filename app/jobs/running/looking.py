"""When a runner looks for work: somebody has written, or a time has come. To wait for either asks nobody."""

from datetime import datetime
from typing import Final

from app.clock import Clock
from app.db import Database
from app.jobs.running.candidates import is_anything_due, next_due
from app.news.gate import Gate

LOOK_AGAIN_S: Final = 30.0
"""A look that nothing asks for is made all the same."""


class WorkGate:
    """Opens when there may be work; of the thread that claims."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._gate = Gate(database.news, clock.boottime_s, longest_s=LOOK_AGAIN_S)
        self._due_at: datetime | None = None

    def opens(self, *, again_s: float) -> bool:
        """Whether to look now.

        Args:
            again_s: a look that says nothing else is made again after this.
        """
        is_due = self._due_at is not None and self._database.clock.now() >= self._due_at
        if not (self._gate.opens() or is_due):
            return False
        self._due_at = None
        self._gate.rests_for(again_s)
        return True

    def finds_anything(self) -> bool:
        """Whether a look that writes may find something; if not, the next is made when a job is due."""
        with self._database.reading() as db:
            now = self._database.now(db)
            if is_anything_due(db, now=now):
                return True
            self._rest_until(next_due(db, now=now), now=now)
        return False

    def _rest_until(self, due: datetime | None, *, now: datetime) -> None:
        """SQLite's clock is ours, another one's is counted from here."""
        if self._database.is_sqlite:
            self._due_at = due
            self._gate.rests_for(None)
        else:
            self._gate.rests_for(None if due is None else (due - now).total_seconds())

    def forget(self) -> None:
        """Somebody in this process has something: look now."""
        self._gate.forget()

"""Windows that are removed, and windows that open by themselves: nothing is removed while one is closed."""

from __future__ import annotations

import contextlib
import time
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import psycopg
from lethe_client import LetheError

from spark.targets.connection import Target, connect
from spark.targets.ledger_schema import shows_ledger
from tests.chaos.clocks import closed_spans
from tests.chaos.fleet import LEASE_TTL_S
from tests.chaos.work import LABELS, Work

ALWAYS = {"cron": "* * * * *", "duration": "PT2M"}
OPENS_IN = timedelta(seconds=20)
"""At least; windows begin and end with a minute."""
STOPS_WITHIN_S = LEASE_TTL_S + 4 + 6
"""Who was frozen when a window closed ends his unit when he wakes; who works looks every two seconds."""
GOES_ON_WITHIN_S = 60.0
RESTED_FROM_S = 30.0
KINDS = ("removed", "removed", "slow", "slow allow", "ends", "opens")


@dataclass(frozen=True)
class Closed:
    """A window of intensity 0, and when it was there in seconds of the right clock."""

    what: str
    first: float
    last: float
    until: datetime | None


class Windows(Work):
    """One window after the other over the stores of the storm: their jobs rest, or work slowly."""

    name = "windows"

    def prepare(self) -> None:
        """None was there yet."""
        self.closed: list[Closed] = []
        self._left: list[str] = []

    def turn(self) -> None:
        """Every kind of window has its turn before one comes again."""
        self.over.wait(self.rng.uniform(2, 8))
        if not self._left:
            self._left = self.rng.sample(KINDS, len(KINDS))
        kind = self._left.pop()
        self.counts[kind] += 1
        if kind in ("ends", "opens"):
            self._opens_by_itself(kind)
        else:
            self._is_removed(kind)

    def _is_removed(self, kind: str) -> None:
        """One that is always there; long enough, at times, that everybody must have stopped."""
        intensity = 0.0 if kind == "removed" else 0.3
        made = self._make("ALLOW" if kind == "slow allow" else "DENY", intensity=intensity, **ALWAYS)
        began = time.time()
        self.over.wait(self.rng.choice([self.rng.uniform(1, 4), STOPS_WITHIN_S + 6]))
        if intensity == 0:
            self.closed.append(Closed(kind, began, time.time(), None))
        self._remove(made)

    def _opens_by_itself(self, kind: str) -> None:
        """A DENY that ends, or an ALLOW that begins: jobs go on, and nobody tells them to."""
        now = self.fleet.clock.now()
        until = (now + OPENS_IN).replace(second=0, microsecond=0) + timedelta(minutes=1)
        if kind == "ends":  # it has begun long enough ago that no clock is put back before it
            begins = until - timedelta(minutes=6)
            made = self._make("DENY", intensity=0.0, cron=f"{begins.minute} * * * *", duration="PT6M")
        else:
            made = self._make("ALLOW", intensity=1.0, cron=f"{until.minute} * * * *", duration="PT30M")
        began = time.time()
        while self.fleet.clock.now() < until:
            time.sleep(0.2)
        self._await_work(kind)
        self.closed.append(Closed(kind, began, time.time(), until))
        self._remove(made)

    def _await_work(self, kind: str) -> None:
        """No job rests any more; none is told of another window meanwhile."""
        deadline = time.monotonic() + GOES_ON_WITHIN_S
        while self._resting() != 0:
            assert time.monotonic() < deadline, f"jobs rest though the window is open: {kind}"
            time.sleep(0.3)

    def _resting(self) -> int | None:
        query = "select count(*) from jobs where state = 'WAITING' and waiting_cause = 'WINDOW'"
        with contextlib.suppress(psycopg.Error), psycopg.connect(self.fleet.clock.conninfo) as conn:
            return int(conn.execute(query).fetchall()[0][0])
        return None

    def _make(self, kind: str, **fields: Any) -> str:
        window = self.client.windows.create(kind, labels=LABELS, **fields)
        self.say(f"window: {kind} {fields} for the stores of the storm")
        return window.id

    def _remove(self, window_id: str) -> None:
        """Remove it, and see that it is gone: the answer to a DELETE may be lost."""
        while window_id in {each.id for each in self.client.windows.list()}:
            with contextlib.suppress(LetheError):
                self.client.windows.remove(window_id)

    def finish(self) -> None:
        """No ledger knows a unit of a moment at which a window was closed; and jobs have rested."""
        commits = self._commits()
        judged_s = 0.0
        for closed in self.closed:
            for first, last in closed_spans(
                closed.first, closed.last, until=closed.until, sets=self.fleet.clock.sets
            ):
                first += STOPS_WITHIN_S
                found = [(at, what) for at, what in commits if first < at < last]
                assert not found, f"work inside of a closed window: {closed}: {found[:5]}"
                judged_s += max(0.0, last - first)
        self.counts["closed s"] = int(judged_s)
        self.counts["units"] = len(commits)
        assert commits, "no ledger was read"
        if judged_s > RESTED_FROM_S:
            self.counts["rested"] = self._rests()
            assert self.counts["rested"] > 0, "windows were closed, and no job has rested"

    def _rests(self) -> int:
        query = "select count(*) from job_events where data::text like '%%\"WINDOW\"%%'"
        with psycopg.connect(self.fleet.clock.conninfo) as conn:
            return int(conn.execute(query).fetchall()[0][0])

    def _commits(self) -> list[tuple[float, str]]:
        """Each unit that a ledger has, by the clock of its target, which is right."""
        urls = {store.url for store in self.client.stores.list() if store.labels == LABELS and store.url}
        found = []
        for url in sorted(urls):
            with closing(connect(Target(url), application_name="chaos", read_only=True)) as conn:
                if not shows_ledger(conn):
                    continue
                table = conn.dialect.lethe_table("unit_ledger")
                for job, unit, at in conn.execute(f"select job_id, unit_id, committed_at from {table}"):
                    when = datetime.fromisoformat(at) if isinstance(at, str) else at
                    found.append((when.timestamp(), f"{url} {job} {unit} {when}"))
        return sorted(found)

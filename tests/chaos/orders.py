"""Schedules that come each minute, windows that open and close, and a webhook that hears of every end."""

from __future__ import annotations

import contextlib
import json
import time
from collections import Counter, defaultdict
from contextlib import ExitStack

import psycopg
from lethe_client import LetheError

from tests.chaos.work import LABELS, Work
from tests.journeys.crashes import build_large
from tests.journeys.ground import add_store
from tests.oracles.symmetricds import Place
from tests.receivers import receiving

HEARD_MAX_S = 120.0
ENDED = "lethe.job.ended"


class Orders(Work):
    """Windows come and go; schedules fire meanwhile; all ends are heard of.

    The store of the schedules has nothing to remove: what is judged is how often they fire.
    """

    name = "orders"

    def prepare(self) -> None:
        """A store with a schedule each minute, and the receiver."""
        place = Place(f"sqlite:///{self.directory}/scheduled.db")
        build_large(place, 3, rows=30)
        add_store(self.client, "scheduled", place, labels={"team": "clock"})
        self.schedules = [
            self.client.schedules.create(
                "PURGE", {"kind": kind}, cron="* * * * *", store="scheduled", missed=missed, overlap=overlap
            ).id
            for kind, missed, overlap in (("OUTGOING", "RUN_ONCE", "QUEUE"), ("INCOMING", "SKIP", "FORBID"))
        ]
        self._stack = ExitStack()
        self.receiver = self._stack.enter_context(receiving())
        self.client.webhooks.create(self.receiver.url, [ENDED], clear_text_on_loopback=True)

    def close(self) -> None:
        """The receiver too."""
        self._stack.close()
        super().close()

    def turn(self) -> None:
        """A window of a few seconds over the stores of the storm: their jobs rest, or work slowly."""
        self.over.wait(self.rng.uniform(2, 8))
        intensity = self.rng.choice([0.0, 0.0, 0.3])
        window = self.client.windows.create(
            "DENY", cron="* * * * *", duration="PT2M", intensity=intensity, labels=LABELS
        )
        self.say(f"window: DENY at {intensity} for the stores of the storm")
        self.over.wait(self.rng.uniform(1, 4))
        self._remove(window.id)

    def _remove(self, window_id: str) -> None:
        """Remove it, and see that it is gone: the answer to a DELETE may be lost."""
        while window_id in {each.id for each in self.client.windows.list()}:
            with contextlib.suppress(LetheError):
                self.client.windows.remove(window_id)

    def finish(self) -> None:
        """No due time fired twice, each firing has its one job, every end was heard of under one id."""
        with psycopg.connect(self.fleet.metadata.conninfo("metadata")) as conn:
            conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ  # of one moment
            fired = conn.execute(
                "select schedule_id, due_at, outcome, job_id from schedule_firings order by 1, 2"
            ).fetchall()
            jobs = conn.execute("select id, reason, state from jobs").fetchall()
        dues = Counter((row[0], row[1]) for row in fired)
        assert set(dues.values()) <= {1}, dues
        submitted = [row[3] for row in fired if row[2] == "SUBMITTED"]
        assert len(submitted) == len(set(submitted))
        by_schedule = {row[0] for row in jobs if (row[1] or "").startswith("schedule sch_")}
        assert by_schedule == set(submitted), "jobs of schedules and their firings are the same"
        self.counts["firings"] = len(fired)
        ended = {row[0] for row in jobs if row[2] in ("SUCCEEDED", "FAILED", "ABORTED")}
        self._assert_heard(ended)

    def _assert_heard(self, ended: set[str]) -> None:
        deadline = time.monotonic() + HEARD_MAX_S
        while True:
            bodies = [(headers["webhook-id"], body) for headers, body in list(self.receiver.got)]
            heard = {json.loads(body)["data"].get("job_id") for _, body in bodies}
            if ended <= heard:
                break
            assert time.monotonic() < deadline, f"never heard of {sorted(ended - heard)}"
            time.sleep(0.3)
        by_job: dict[str, set[str]] = defaultdict(set)
        by_id: dict[str, set[bytes]] = defaultdict(set)
        for name, body in bodies:
            by_job[json.loads(body)["data"]["job_id"]].add(name)
            by_id[name].add(body)
        assert {len(names) for names in by_job.values()} <= {1}, "an end has one event"
        assert {len(found) for found in by_id.values()} <= {1}, "an event says the same each time"
        self.counts["events"] = len(by_id)
        self.counts["heard"] = len(bodies)

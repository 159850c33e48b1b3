"""Schedules that come each minute, a webhook that hears of every end, and the trail of audit."""

from __future__ import annotations

import contextlib
import json
import time
from collections import Counter, defaultdict
from contextlib import ExitStack

import psycopg
from lethe_client import LetheError

from tests.chaos.work import Work
from tests.journeys.crashes import build_large
from tests.journeys.ground import add_store
from tests.oracles.symmetricds import Place
from tests.receivers import receiving

HEARD_MAX_S = 120.0
FIRED_MAX_S = 150.0
ENDED = "lethe.job.ended"


class Orders(Work):
    """Schedules fire, and one of them is paused now and then; all ends are heard of.

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
        """The schedule that makes nothing up is paused for a moment; the other one loses no due time."""
        self.over.wait(self.rng.uniform(2, 8))
        with contextlib.suppress(LetheError):  # the answer may be lost, and is not asked for again
            self.client.schedules.pause(self.schedules[1])
        self.over.wait(self.rng.uniform(0, 2))
        while self.client.schedules.get(self.schedules[1]).is_paused:
            with contextlib.suppress(LetheError):
                self.client.schedules.resume(self.schedules[1])

    def finish(self) -> None:
        """No due time fired twice or lost, each has its one job, every end was heard of under one id."""
        self._await_last_due()
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
        assert submitted, "no schedule has made a job"
        found = self.client.audit.verify()
        assert found.ok, found
        assert found.checked > 0
        self.counts["audit rows"] = found.checked
        ended = {row[0] for row in jobs if row[2] in ("SUCCEEDED", "FAILED", "ABORTED")}
        self._assert_heard(ended)

    def _await_last_due(self) -> None:
        """What RUN_ONCE makes up may be one for many: the newest due time is fired, so none was lost."""
        wanted = self.fleet.clock.now().replace(second=0, microsecond=0)
        query = "select max(due_at) from schedule_firings where schedule_id = %s"
        deadline = time.monotonic() + FIRED_MAX_S
        with psycopg.connect(self.fleet.metadata.conninfo("metadata"), autocommit=True) as conn:
            while True:
                [[newest]] = conn.execute(query, (self.schedules[0],)).fetchall()
                if newest is not None and newest >= wanted:
                    return
                assert time.monotonic() < deadline, f"not fired: {wanted}, but {newest}"
                time.sleep(0.3)

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

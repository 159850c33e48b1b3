"""A feed into a replica whose service is killed, and a subscriber that is given the same units beside it."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any

from lethe_client import Job

from spark.slony_feed.cursor import Cursor
from spark.targets.connection import Target
from spark.targets.errors import TargetDatabaseMissing
from tests.journeys.replicas import register
from tests.journeys.service import JOB_TIMEOUT_S, succeeded
from tests.journeys.slony_ground import Ground, store
from tests.replica_feed import agrees, changelog_is_whole, cursor_at, entries_at, rows_of
from tests.slony_feed import NaiveSubscriber, odd_work

UNITS = 60
"""SYNCs that a job has before it, at least."""
COPIED_ROWS = 8_000
SPREAD_S = 0.15
"""A kill comes so much later at most than the unit that it waits for: at any point of another one."""
LATE_MAX = 5
"""So many jobs may end before they are killed, for each kill that is wanted."""
COPYING = (
    "select pid from pg_stat_activity where application_name = 'lethe:slony-feed'"
    " and xact_start is not null and query ilike 'copy%'"
)
"""The last statement is a COPY also while the replica writes what has come."""
LOOK_S = 0.2
"""So often it is asked whether the job has ended; what is waited for is looked at all the time, nearly."""
PAUSE_S = 0.01
WORK = """
insert into movement values (-2, {new}, 1, null);
delete from movement where account = -2 and number between -{old} and 0;
update movement set number = -number, note = 'x' where account = -2 and number between 0 and {old}
"""
TICKET = b"!sequence/public.ticket"
_numbers = count(1)


@dataclass
class Carrying:
    """One replica, its feed of node 1, and what a naive subscriber makes of the same units.

    Attributes:
        met: kills within a copy, and between the first and the last unit of a job; no others count.
    """

    ground: Ground
    place: Target
    rng: Random
    met: Counter[str] = field(default_factory=Counter)
    replica: str = field(default_factory=lambda: f"carried-{next(_numbers)}")
    _naive: NaiveSubscriber = field(default_factory=NaiveSubscriber)
    _begun: Cursor | None = None
    _changes: int = 0
    _newest: int = 0
    _killed: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        register(self.ground.service, self.replica, self.place.url, 4, table_prefix=self.place.table_prefix)

    def copy(self, *, kills: int) -> None:
        """First copies, killed so often within: each begins anew. Units follow the last one."""
        wanted = self.met["copy"] + kills
        for _ in range(kills * LATE_MAX):
            self._fill()
            before = self._copies()
            job = self._feed(first_copy=before > 0)
            while self.met["copy"] < wanted and self._is_copying(job):
                time.sleep(self.rng.uniform(0.0, 0.1))
                self._kill("copy", lambda before=before: self._copies() == before)
            self._copied(job)
            if self.met["copy"] >= wanted:
                return
        raise AssertionError(f"{self.met} of {wanted}")

    def units(self, *, kills: int) -> None:
        """Jobs of many SYNCs, killed so often in all; what each has brought is compared when it has ended."""
        wanted = self.met["units"] + kills
        for _ in range(kills * LATE_MAX):
            self._work()
            job = self._feed()
            while self.met["units"] < wanted and self._has_carried(job, self.rng.randrange(1, UNITS // 4)):
                time.sleep(self.rng.uniform(0.0, SPREAD_S))
                self._kill("units", lambda: self._standing().seqno < self._newest)
            self._followed(job)
            if self.met["units"] >= wanted:
                return
        raise AssertionError(f"{self.met} of {wanted}")

    def assert_equal(self) -> None:
        """The replica holds what the origin and each real subscriber hold, now that nobody works."""
        cluster = self.ground.cluster
        cluster.catch_up()
        self._followed(self._feed())
        assert cluster.differing() == []
        for node in cluster.nodes:
            agrees(self.place, cluster, node=node)

    def _fill(self) -> None:
        """Enough rows to be killed while they are copied; the work may have taken the last ones away."""
        self.ground.cluster.run(
            1,
            "insert into movement select -1, n, n, repeat('row ', 10) from generate_series(1, %s) n"
            " on conflict do nothing",
            COPIED_ROWS,
        )

    def _work(self) -> None:
        """Many small units, each with an INSERT, an UPDATE of its key and a DELETE, and some odd work."""
        cluster = self.ground.cluster
        odd_work(cluster, self.rng)
        with closing(cluster.connect(1)) as session:
            for _ in range(UNITS):
                number = next(_numbers)
                session.execute(WORK.format(new=number, old=number - 2).encode())
                session.execute("select createEvent(%s, 'SYNC', null)", (cluster.schema,))
        self._newest = cluster.sync(1)

    def _feed(self, *, first_copy: bool = False) -> Job:
        return self.ground.client.slony_changes.feed(self.replica, store(1), first_copy=first_copy)

    def _kill(self, name: str, is_met: Callable[[], bool]) -> None:
        service = self.ground.service
        service.kill9()
        self.met[name] += is_met()
        service.start()

    def _is_copying(self, job: Job) -> bool:
        """Wait until a session that was not killed yet copies the node; False: the job has ended."""

        def is_new() -> bool:
            found = {int(pid) for (pid,) in self.ground.cluster.run(1, COPYING)} - self._killed
            self._killed |= found
            return bool(found)

        return self._reaches(job, is_new)

    def _has_carried(self, job: Job, units: int) -> bool:
        """Wait until so many more units are there; False: the job has ended."""
        wanted = self._standing().units + units
        return self._reaches(job, lambda: self._standing().units >= wanted)

    def _reaches(self, job: Job, condition: Callable[[], bool]) -> bool:
        began = looked = time.monotonic()
        while not condition():
            if (now := time.monotonic()) > looked + LOOK_S:
                found, looked = self.ground.client.jobs.get(job.id), now
                if found.ended:
                    return False
                assert now < began + JOB_TIMEOUT_S, found.raw
            time.sleep(PAUSE_S)
        return True

    def _copies(self) -> int:
        try:
            found = cursor_at(self.place)
        except TargetDatabaseMissing:  # the file is made by the first job
            return 0
        return 0 if found is None else found.copies

    def _standing(self) -> Cursor:
        found = cursor_at(self.place)
        assert found is not None
        return found

    def _copied(self, job: Job) -> None:
        """Begin the naive subscriber anew, with what the copy has brought."""
        assert succeeded(self.ground.client, job.id)["copied"]
        self._begun = begun = self._standing()
        assert begun.copied is not None
        entries = entries_at(self.place)
        self._naive = naive = NaiveSubscriber()
        naive.tables = rows_of(entries)
        naive.ticket = int(json.loads(entries[TICKET])["last_value"])
        naive.after, naive.snapshot, naive.copied = begun.seqno, begun.snapshot, begun.copied
        self._changes = changelog_is_whole(self.place)

    def _followed(self, job: Job) -> None:
        """The replica has what the naive subscriber makes of the same units, and as many changes."""
        succeeded(self.ground.client, job.id)
        now, naive, begun = self._standing(), self._naive, self._begun
        assert begun is not None
        while (naive.after or 0) < now.seqno:
            naive.take(self._page(now.seqno))
        entries = entries_at(self.place)
        assert rows_of(entries) == naive.tables
        assert int(json.loads(entries[TICKET])["last_value"]) == naive.ticket
        assert (now.seqno, now.copies, now.units - begun.units) == (naive.after, begun.copies, naive.units)
        assert changelog_is_whole(self.place) == self._changes + naive.writes

    def _page(self, last: int) -> Iterator[Mapping[str, Any]]:
        """What the service answers to a reader who stands where the naive one does, up to a SYNC."""
        naive = self._naive
        asked = {"after": naive.after, "snapshot": naive.snapshot, "copied": naive.copied}
        with closing(self.ground.client.slony_changes.page(store(1), **asked)) as records:
            for record in records:
                yield record.raw
                if record.kind == "SYNC" and record.seqno == last:
                    return

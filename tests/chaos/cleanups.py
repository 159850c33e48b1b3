"""Cleanups of recorded Slony catalogs: a slon can go on from there at any moment; the end is the recorded."""

from __future__ import annotations

import time

from tests.chaos.work import LABELS, Work
from tests.conftest import SharedServer
from tests.http.slony_cleaning import AT, Before, assert_recorded
from tests.spark.events.catalogs import Catalogs, LoadedCatalog, Templates

READ_AGAIN = 4


class Cleanups(Work):
    """A fresh copy of node 1's catalog in each turn, cleaned up as the program would."""

    name = "cleanups"

    def prepare(self) -> None:
        """The template; copies of it are made quickly."""
        self.catalogs = Catalogs(Templates(SharedServer(self.fleet.targets.url(), None)))
        self.before = Before.of()

    def turn(self) -> None:
        """Acceptable while it goes on, and as the program left it in the end."""
        cluster = f"storm{self.done}"
        with self.fleet.guard:
            loaded = self.catalogs.load("fxa", 1, cluster=cluster)
        store = f"node-{self.done}"
        self.client.stores.create(store, loaded.url, kind="SLONY", cluster=cluster, labels=LABELS)
        body = {
            "confirmed_before": AT,
            "max_rows_in_tx": 10,
            "throttle": {"rows_per_s": self.rng.choice([20, 60, 5_000])},
        }
        job_id = str(self.post(f"/v1/stores/{store}/event-cleanups", body)["id"])
        deadline = time.monotonic() + 240
        while not self.job(job_id).ended:
            self._assert_accepted(loaded)
            assert time.monotonic() < deadline, self.job(job_id).raw
            self.over.wait(0.5)
        result = self.succeeded(job_id)
        if result["log_switch"]["step"] == "BLOCKED":  # by the judge, who was reading the table
            switch = {"action": "FINISH", "reason": "the judge has read the table"}
            self.succeeded(str(self.post(f"/v1/stores/{store}/log-switches", switch)["id"]))
        with self.fleet.guard:
            assert_recorded(loaded)
        self.counts["attempts"] += int(self.job(job_id).raw["attempt"])

    def _assert_accepted(self, loaded: LoadedCatalog) -> None:
        """Tables are read one after the other: what is found beside a step of the cleanup is read again."""
        for tries in range(READ_AGAIN + 1):
            try:
                with self.fleet.guard:
                    self.before.assert_accepted(loaded)
            except AssertionError:
                if tries == READ_AGAIN:
                    raise
                self.over.wait(0.2)
            else:
                return

"""A real cluster, a service beside it, and its three nodes as stores: what a journey of Slony-I stands on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from lethe_client import Job, Lethe
from lethe_client.slony import CleanupRequest, EventWait

from tests.journeys.service import Service, await_job, serving, succeeded, until
from tests.slony_cluster import SlonyCluster

EXPLAINED = {"AS_PLANNED", "MORE_BY_NEWER_CONFIRMATIONS"}
"""What the outcome of the program's own function may be called."""
LOG_TABLES = ("sl_log_1", "sl_log_2")


@dataclass
class Ground:
    """The cluster and the service; store `node-2` is node 2."""

    cluster: SlonyCluster
    service: Service
    classifications: list[str] = field(default_factory=list)

    @property
    def client(self) -> Lethe:
        return self.service.client

    def cleaned(self, node: int, **request: Any) -> dict[str, Any]:
        """A cleanup that must succeed; its result."""
        job = self.clean(node, **request)
        result = succeeded(self.client, job.id)
        if result["via"] == "NATIVE":
            assert result["classification"] in EXPLAINED, result
            self.classifications.append(result["classification"])
        return result

    def clean(self, node: int, **request: Any) -> Job:
        """Submit a cleanup; confirmations of any age count unless an interval is given."""
        return self.client.slony.cleanup(store(node), CleanupRequest(**{"interval": "PT0S", **request}))

    def switch(self, node: int, action: str, *, timeout: str = "PT1M") -> Job:
        """Submit a log switch."""
        return self.client.slony.switch_log(store(node), action=action, timeout=timeout, overlap="QUEUE")

    def switched(self, node: int, action: str, *, timeout: str = "PT1M") -> dict[str, Any]:
        """A log switch that must succeed; its result."""
        return succeeded(self.client, self.switch(node, action, timeout=timeout).id)

    def ended(self, job: Job) -> Job:
        """The job as it ended, however that was."""
        return await_job(self.client, job.id)

    def wait_for(self, **request: Any) -> Job:
        """Submit a wait for events on node 1."""
        return self.client.slony.wait(store(1), EventWait(**{"wait_on": 1, **request}))

    def clean_as_slon(self, node: int, *, interval: str = "0", commit: bool = True) -> None:
        """What the cleanup thread of a slon does; without `commit` as somebody tries it and rolls back."""
        with self.cluster.connect(node, autocommit=False) as session:
            session.execute("lock table sl_config_lock in access exclusive mode")
            session.execute("select cleanupEvent(%s::interval)", (interval,))
            if not commit:
                session.rollback()

    def assert_healthy(self) -> None:
        """Everybody catches up, and every node holds what the origin holds."""
        self.cluster.start_slons()
        self.cluster.catch_up()
        assert self.cluster.differing() == []

    def end_switch(self) -> None:
        """Clean node 1 until none of its log tables is to be emptied; without load."""
        until(self._is_switched)

    def _is_switched(self) -> bool:
        if self.cluster.log_status(1) < 2:
            return True
        self.cluster.catch_up()
        self.cleaned(1, via="BUILTIN")
        return False

    def log_rows(self, node: int = 1) -> dict[str, int]:
        """Rows of both log tables."""
        return {table: self.cluster.count(node, table) for table in LOG_TABLES}

    def catalog(self, node: int = 1) -> dict[str, list[tuple[Any, ...]]]:
        """Every row that a cleanup may take away, and the log's status."""
        return {name: self.cluster.run(node, sql) for name, sql in CATALOG.items()}

    @contextmanager
    def writer(self, account: int = 9_000) -> Iterator[psycopg.Connection[Any]]:
        """A transaction at the origin that has written, and stays open to the end or to its commit."""
        with closing(psycopg.connect(self.cluster.conninfo(1), application_name="open writer")) as session:
            session.execute(
                "insert into account values (%s, 'open', 1)"
                " on conflict (id) do update set balance = account.balance + 1",
                (account,),
            )
            yield session
            session.rollback()


CATALOG = {
    "sl_event": "select ev_origin, ev_seqno, ev_type from sl_event order by 1, 2",
    "sl_confirm": "select con_origin, con_received, con_seqno from sl_confirm order by 1, 2, 3",
    "sl_log_1": "select log_origin, log_txid, log_actionseq from sl_log_1 order by 1, 2, 3",
    "sl_log_2": "select log_origin, log_txid, log_actionseq from sl_log_2 order by 1, 2, 3",
    "sl_seqlog": "select seql_origin, seql_ev_seqno, seql_seqid from sl_seqlog order by 1, 2, 3",
    "status": "select last_value from sl_log_status",
}


def store(node: int) -> str:
    """The name of a node's store."""
    return f"node-{node}"


@contextmanager
def slony_ground(cluster: SlonyCluster, directory: Path, **settings: str) -> Iterator[Ground]:
    """A service with the nodes of a cluster as its stores."""
    chosen = {"LETHE_SPARK__ENABLED": "false", **settings}
    with serving(directory / "service", chosen) as service:
        for node in cluster.nodes:
            service.client.stores.create(store(node), cluster.url(node), kind="SLONY", cluster=cluster.name)
        yield Ground(cluster, service)

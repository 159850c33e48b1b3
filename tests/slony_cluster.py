"""A real cluster of Slony-I 2.2 for tests: three databases of a private server, and a slon for each.

Set 1 (origin 1) holds the tables `account` and `movement` and the sequence `ticket`. Node 2 subscribes to
node 1 and forwards; node 3 subscribes to node 2 and does not. `slony_cluster()` is the whole of it; a catalog
without slons, for measuring, is `bare_cluster()`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import permutations
from pathlib import Path
from typing import Any

import psycopg

from tests.postgresql_server import PostgresqlServer, scratch_directory
from tests.slony_load import Load
from tests.slony_programs import Slon, postgresql_binaries, run_slonik

CLUSTER = "Shop"
"""With a capital, so that whoever forgets to quote the schema's name is found."""
NODES = (1, 2, 3)
CATCH_UP_TIMEOUT_S = 60.0
POLL_S = 0.05
SERVER_SETTINGS: Mapping[str, str] = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "max_connections": "200",
    "shared_buffers": "256MB",
    # Analysing and vacuuming at moments of its own would make tests differ from run to run.
    "autovacuum": "off",
}

TABLES = """
create table account (id bigint primary key, owner text not null, balance numeric not null);
create table movement (account bigint, number bigint, amount numeric not null, note text,
                       primary key (account, number));
create sequence ticket;
"""
CONTENT: Mapping[str, str] = {
    "account": "select id, owner, balance from account order by 1",
    "movement": "select account, number, amount, note from movement order by 1, 2",
    "ticket": "select last_value from ticket",
}


NEWEST = "select con_origin, con_received, max(con_seqno) from sl_confirm group by 1, 2"


class SlonyCluster:
    """The nodes of a cluster; a node's number is also its id.

    Args:
        server: a started server with the library of Slony-I; the databases are made in it.
        directory: for configurations and logs of the slons; their account may enter it.
    """

    def __init__(
        self,
        server: PostgresqlServer,
        directory: Path,
        *,
        name: str = CLUSTER,
        nodes: Sequence[int] = NODES,
        slon_settings: Mapping[str, str] | None = None,
    ) -> None:
        self.server = server
        self.name = name
        self.nodes = tuple(nodes)
        self.schema = f"_{name}"
        for node in self.nodes:
            server.create_database(self.database(node))
        self.slons = {
            node: Slon(name, self.conninfo(node), directory / f"slon-{node}", slon_settings)
            for node in self.nodes
        }

    def database(self, node: int) -> str:
        """The name of a node's database."""
        return f"{self.name.lower()}_{node}"

    def url(self, node: int) -> str:
        """A node's address as a store wants it."""
        return self.server.url(self.database(node))

    def conninfo(self, node: int) -> str:
        """The same as libpq wants it."""
        return self.server.conninfo(self.database(node))

    def connect(self, node: int, *, autocommit: bool = True) -> psycopg.Connection[Any]:
        """A session of the test's own; names without a schema are the public ones, then the cluster's."""
        path = f'-c search_path=public,"{self.schema}"'
        return psycopg.connect(
            self.conninfo(node), autocommit=autocommit, options=path, application_name="test"
        )

    def run(self, node: int, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows of one statement, committed; none where it gives none."""
        with closing(self.connect(node)) as session:
            cursor = session.execute(sql.encode(), values or None)
            return cursor.fetchall() if cursor.description else []

    def slonik(self, script: str) -> str:
        """Run a script of slonik after the preamble that names the nodes; returns what it said."""
        lines = [f"cluster name = {self.name};"]
        lines += [f"node {node} admin conninfo = '{self.conninfo(node)}';" for node in self.nodes]
        return run_slonik("\n".join([*lines, script]))

    def initialise(self) -> None:
        """Make the catalogs and all paths; every node knows every other once the slons have run."""
        first, *others = self.nodes
        script = [f"init cluster (id={first}, comment='node {first}');"]
        script += [f"store node (id={node}, comment='node {node}', event node={first});" for node in others]
        script += [
            f"store path (server={server}, client={client}, conninfo='{self.conninfo(server)}');"
            for server in self.nodes
            for client in self.nodes
            if server != client
        ]
        self.slonik("\n".join(script))

    def subscribe(self) -> None:
        """Make the set with its tables and subscribe 2 and 3; the slons must be running."""
        for node in self.nodes:
            self.run(node, TABLES)
        self.slonik(
            """
            create set (id=1, origin=1, comment='shop');
            set add table (set id=1, origin=1, id=1, fully qualified name='public.account');
            set add table (set id=1, origin=1, id=2, fully qualified name='public.movement');
            set add sequence (set id=1, origin=1, id=3, fully qualified name='public.ticket');
            subscribe set (id=1, provider=1, receiver=2, forward=yes);
            """
        )
        self.catch_up()
        self.slonik("subscribe set (id=1, provider=2, receiver=3, forward=no);")
        self.catch_up()

    def start_slons(self) -> None:
        """Start every slon that does not run."""
        for slon in self.slons.values():
            slon.start()

    def stop_slons(self) -> None:
        """End every slon."""
        for slon in self.slons.values():
            slon.stop()

    def kill_slons(self) -> None:
        """End every slon as a crash does."""
        for slon in self.slons.values():
            slon.kill9()

    def await_confirmed(self, origin: int, receiver: int, seqno: int, *, at: int = 1) -> None:
        """Wait until a node knows that a receiver has confirmed an event."""
        self._await(
            lambda: (self.confirmed(at, origin, receiver) or 0) >= seqno,
            CATCH_UP_TIMEOUT_S,
            lambda: f"({origin}, {seqno}) confirmed by {receiver} at {at}",
        )

    def sync(self, node: int = 1) -> int:
        """Make a SYNC on a node by the cluster's function; its seqno."""
        [(seqno,)] = self.run(node, "select createEvent(%s, 'SYNC', null)", self.schema)
        return int(seqno)

    def confirmed(self, node: int, origin: int, receiver: int) -> int | None:
        """How far a receiver has confirmed an origin's events, as a node knows it."""
        [(seqno,)] = self.run(
            node,
            "select max(con_seqno) from sl_confirm where con_origin = %s and con_received = %s",
            origin,
            receiver,
        )
        return None if seqno is None else int(seqno)

    def log_status(self, node: int) -> int:
        """The value of sl_log_status."""
        return int(self.run(node, "select last_value from sl_log_status")[0][0])

    def count(self, node: int, table: str) -> int:
        """How many rows a table of a node has."""
        return int(self.run(node, f"select count(*) from {table}")[0][0])

    def catch_up(self, *, timeout_s: float = CATCH_UP_TIMEOUT_S) -> None:
        """Wait until every node knows that every other has confirmed all that is there now."""
        newest = {origin: self.sync(origin) for origin in self.nodes}
        behind: list[tuple[int, int, int]] = []
        with ExitStack() as open_ones:
            # A session for each look would cost the server more than the replication that is waited for.
            sessions = {node: open_ones.enter_context(closing(self.connect(node))) for node in self.nodes}

            def is_over() -> bool:
                behind[:] = []
                for node, session in sessions.items():
                    found = {(origin, receiver): seqno for origin, receiver, seqno in session.execute(NEWEST)}
                    behind.extend(
                        (node, origin, receiver)
                        for origin, receiver in permutations(self.nodes, 2)
                        if found.get((origin, receiver), 0) < newest[origin]
                    )
                    if behind:
                        return False
                return True

            self._await(is_over, timeout_s, lambda: f"(node, origin, receiver) behind: {behind}")

    def _await(self, condition: Callable[[], bool], timeout_s: float, told: Callable[[], str]) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                logs = "\n".join(f"slon {node}:\n{slon.tail()}" for node, slon in self.slons.items())
                raise AssertionError(f"not so after {timeout_s:g} s: {told()}\n{logs}")
            time.sleep(POLL_S)

    def content(self, node: int) -> dict[str, list[tuple[Any, ...]]]:
        """Everything that a node replicates."""
        return {name: self.run(node, sql) for name, sql in CONTENT.items()}

    def differing(self) -> list[str]:
        """What is not the same on every node, as `node 2: table`; nothing: all are equal."""
        origin = self.content(1)
        return [
            f"node {node}: {name}"
            for node in self.nodes[1:]
            for name, rows in self.content(node).items()
            if rows != origin[name]
        ]

    def equal(self) -> bool:
        """Whether every node holds what the origin holds; ask after `catch_up()` and without load."""
        return not self.differing()

    @contextmanager
    def load(self, **options: Any) -> Iterator[Load]:
        """Writers at the origin for a while; all their transactions have ended afterwards.

        Args:
            options: as Load takes them.
        """
        load = Load(self.conninfo(1), **options)
        load.start()
        try:
            yield load
        finally:
            load.stop()


@contextmanager
def slony_server(settings: Mapping[str, str] | None = None) -> Iterator[tuple[PostgresqlServer, Path]]:
    """A started server that has the library, and a directory that its account may enter; gone afterwards."""
    binaries = postgresql_binaries()
    assert binaries is not None, "ask slony_programs.missing() first"
    with scratch_directory("lethe-slony-") as directory:
        server = PostgresqlServer(binaries, directory, settings={**SERVER_SETTINGS, **(settings or {})})
        server.start()
        try:
            yield server, directory
        finally:
            server.stop()


@contextmanager
def bare_cluster(*, name: str = CLUSTER, settings: Mapping[str, str] | None = None) -> Iterator[SlonyCluster]:
    """Three nodes with their functions, of which node 1 knows all; no slon runs, nobody subscribes."""
    with slony_server(settings) as (server, directory):
        cluster = SlonyCluster(server, directory, name=name)
        cluster.initialise()
        yield cluster


@contextmanager
def slony_cluster(
    *,
    name: str = CLUSTER,
    slon_settings: Mapping[str, str] | None = None,
    settings: Mapping[str, str] | None = None,
) -> Iterator[SlonyCluster]:
    """Three nodes that replicate; slons, server and files are gone afterwards, whatever state they are in."""
    with slony_server(settings) as (server, directory):
        cluster = SlonyCluster(server, directory, name=name, slon_settings=slon_settings)
        cluster.initialise()
        try:
            cluster.start_slons()
            cluster.subscribe()
            yield cluster
        finally:
            cluster.kill_slons()

"""A real cluster of Slony-I 2.2 for tests: three databases of a private server, and a slon for each.

Set 1 (origin 1) holds the tables `account` and `movement` and the sequence `ticket`. Node 2 subscribes to
node 1 and forwards; node 3 subscribes to node 2 and does not. `slony_cluster()` is the whole of it; a catalog
without slons, for measuring, is `bare_cluster()`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg

from tests.postgresql_server import PostgresqlServer, scratch_directory
from tests.slony_load import Load
from tests.slony_programs import Slon, postgresql_binaries, run_slonik
from tests.templates import made_once

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
SET = """
create set (id=1, origin=1, comment='shop');
set add table (set id=1, origin=1, id=1, fully qualified name='public.account');
set add table (set id=1, origin=1, id=2, fully qualified name='public.movement');
set add sequence (set id=1, origin=1, id=3, fully qualified name='public.ticket');
"""
CONTENT: Mapping[str, str] = {
    "account": "select id, owner, balance from account order by 1",
    "movement": "select account, number, amount, note from movement order by 1, 2",
    "ticket": "select last_value from ticket",
}
CONFIRMED = "select con_origin, con_received, max(con_seqno) from sl_confirm group by 1, 2"


class SlonyCluster:
    """The nodes of a cluster; a node's number is also its id.

    Args:
        server: a started server with the library of Slony-I; the databases are made in it.
        is_copy: they are there, with all of the cluster; only their addresses are others.
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
        is_copy: bool = False,
    ) -> None:
        self.server = server
        self.name = name
        self.nodes = tuple(nodes)
        self.schema = f"_{name}"
        for node in self.nodes:
            if is_copy:
                self._move(node)
            else:
                server.create_database(self.database(node))
        self.slons = {
            node: Slon(name, self.conninfo(node), directory / f"slon-{node}", slon_settings)
            for node in self.nodes
        }

    def _move(self, node: int) -> None:
        """Tell a node where each of them is now."""
        for server in self.nodes:
            path = "update sl_path set pa_conninfo = %s where pa_server = %s"
            self.run(node, path, self.conninfo(server), server)

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

    def add_set(self, *, further: str = "") -> None:
        """Make the tables on every node, and the set of them.

        Args:
            further: of the same script of slonik.
        """
        for node in self.nodes:
            self.run(node, TABLES)
        self.slonik(SET + further)

    def subscribe(self) -> None:
        """Make the set with its tables and subscribe 2 and 3; the slons must be running."""
        self.add_set(further="subscribe set (id=1, provider=1, receiver=2, forward=yes);")
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
        with closing(self.connect(node)) as session:
            return self._sync(session)

    def _sync(self, session: psycopg.Connection[Any]) -> int:
        [(seqno,)] = session.execute("select createEvent(%s, 'SYNC', null)", (self.schema,)).fetchall()
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
        with ExitStack() as stack:
            sessions = {node: stack.enter_context(closing(self.connect(node))) for node in self.nodes}
            newest = {origin: self._sync(session) for origin, session in sessions.items()}
            behind: dict[int, list[tuple[int, int]]] = {node: [] for node in self.nodes}

            def is_over() -> bool:
                """A node that knew all of it once is not asked again: confirmations stay."""
                for node in list(behind):
                    behind[node] = self._unconfirmed(sessions[node], newest)
                    if not behind[node]:
                        del behind[node]
                return not behind

            self._await(is_over, timeout_s, lambda: f"(origin, receiver) behind, by node: {behind}")

    def _unconfirmed(
        self, session: psycopg.Connection[Any], newest: Mapping[int, int]
    ) -> list[tuple[int, int]]:
        """Whose events up to a given one have not been confirmed by whom, as a node knows it."""
        known = {(origin, receiver): seqno for origin, receiver, seqno in session.execute(CONFIRMED)}
        return [
            (origin, receiver)
            for origin in self.nodes
            for receiver in self.nodes
            if origin != receiver and known.get((origin, receiver), 0) < newest[origin]
        ]

    def _await(self, condition: Callable[[], bool], timeout_s: float, told: Callable[[], str]) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                logs = "\n".join(f"slon {node}:\n{slon.tail()}" for node, slon in self.slons.items())
                raise AssertionError(f"not so after {timeout_s:g} s: {told()}\n{logs}")
            time.sleep(POLL_S)

    def content(self, node: int) -> dict[str, list[tuple[Any, ...]]]:
        """Everything that a node replicates."""
        with closing(self.connect(node)) as session:
            return {name: session.execute(sql.encode()).fetchall() for name, sql in CONTENT.items()}

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
def slony_server(
    settings: Mapping[str, str] | None = None, *, template: Path | None = None
) -> Iterator[tuple[PostgresqlServer, Path]]:
    """A started server that has the library, and a directory that its account may enter; gone afterwards.

    Args:
        settings: server parameters beyond SERVER_SETTINGS.
        template: the data directory of which it has a copy.
    """
    binaries = postgresql_binaries()
    assert binaries is not None, "ask slony_programs.missing() first"
    chosen = {**SERVER_SETTINGS, **(settings or {})}
    with scratch_directory("lethe-slony-") as directory:
        server = PostgresqlServer(binaries, directory, settings=chosen, template=template)
        server.start()
        try:
            yield server, directory
        finally:
            server.stop()


def lone_node(server: PostgresqlServer, directory: Path, *, name: str = CLUSTER) -> SlonyCluster:
    """One node that has a set, with a SYNC behind it; without slons, SYNCs are made by hand."""
    node = SlonyCluster(server, directory, name=name, nodes=(1,))
    node.initialise()
    node.add_set()
    node.sync(1)
    return node


@contextmanager
def bare_cluster(*, name: str = CLUSTER, settings: Mapping[str, str] | None = None) -> Iterator[SlonyCluster]:
    """Three nodes with their functions, of which node 1 knows all; no slon runs, nobody subscribes."""
    with slony_server(settings) as (server, directory):
        cluster = SlonyCluster(server, directory, name=name)
        cluster.initialise()
        yield cluster


@contextmanager
def slony_cluster(
    *, slon_settings: Mapping[str, str] | None = None, settings: Mapping[str, str] | None = None
) -> Iterator[SlonyCluster]:
    """Three nodes that replicate; slons, server and files are gone afterwards, whatever state they are in.

    All of a run are copies of one: to make it anew takes several times as long.
    """
    template = made_once("slony-cluster", _make_replicating)
    with slony_server(settings, template=template) as (server, directory):
        is_copy = template is not None
        cluster = SlonyCluster(server, directory, slon_settings=slon_settings, is_copy=is_copy)
        if not is_copy:
            cluster.initialise()
        try:
            cluster.start_slons()
            if is_copy:
                cluster.catch_up()
            else:
                cluster.subscribe()
            yield cluster
        finally:
            cluster.kill_slons()


def _make_replicating(place: Path) -> None:
    """The data directory of a cluster whose nodes replicate, and hold nothing yet."""
    with slony_server() as (server, directory):
        cluster = SlonyCluster(server, directory)
        cluster.initialise()
        try:
            cluster.start_slons()
            cluster.subscribe()
        finally:
            cluster.kill_slons()
        server.stop()
        server.copy_data(place)

"""Fixtures that every test may ask for: PostgreSQL and MariaDB servers and databases.

`LETHE_TEST_POSTGRESQL_URL` names a server whose role may create databases; without it one is started from the
wheel. Servers for crash tests are always private. `LETHE_TEST_MARIADB_URL` names a MariaDB or MySQL server in
the same way; without it a private one is started where it is installed, else root's at 127.0.0.1:3306 is
taken. Where there is none, or no Slony-I, the tests are skipped, or fail if `LETHE_REQUIRE_PEERS=1`.
"""

from __future__ import annotations

import gc
import os
import re
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
from hypothesis import settings
from sqlalchemy.engine import URL, make_url

from spark.erase.hands import child
from tests.byte_code import write_a_share
from tests.ds389_servers import missing as missing_of_ds389
from tests.forge import forge_of_the_run, forked_child
from tests.mariadb_server import FAST_SETTINGS as FAST_MARIADB
from tests.mariadb_server import PrivateMariadb, private_mariadb
from tests.mariadb_server import is_installed as mariadb_is_installed
from tests.oracles.ready_places import ReadyPlaces
from tests.postgresql_server import PostgresqlServer, find_binaries, scratch_directory
from tests.rotation import SETTING, leave_to_other_turns, share_metadata, turn_of_this_run
from tests.slony_cluster import SlonyCluster, bare_cluster, slony_cluster
from tests.slony_programs import missing as missing_of_slony
from tests.statements import share_compiled_statements
from tests.templates import templates_of_this_run
from tests.turns import ByFiles, put_in_order, scheduler_of

POSTGRESQL_FIXTURES = {"postgresql_server", "postgresql_url", "own_postgresql", "postgresql_binaries"}

MARIADB_FIXTURES = {"mariadb_server", "mariadb_url", "own_mariadb"}
SLONY_FIXTURES = {"slony", "bare_slony"}
DS389_FIXTURES = {"ds389"}
SERVERS = re.compile("postgresql|mariadb|mysql")
JVM_FIXTURES = {"shared_pool", "purging"}
SERVED_FOLDERS = {
    *("benchmarks", "chaos", "console", "deploy", "http", "journeys"),
    *("migrations", "pages", "regressions", "seeds"),
}
PERCONA_FIXTURES = {"pt_archiver"}
PROMTOOL_FIXTURES = {"promtool"}
CHROMIUM_FIXTURES = {"chromium"}
TESTS = Path(__file__).parent
SLOW = set((TESTS / "slow.txt").read_text().split())
MARIADB_URL = "mysql+pymysql://root@127.0.0.1:3306"

# Until all tests are collected: the collector of garbage would look at modules and tests again and again.
gc.disable()

# Tests are refused by the hundred from one address.
os.environ.setdefault("LETHE_REFUSAL_DELAY_MAX_S", "0")

share_compiled_statements()

# A machine that others use too may take its time for an example; pytest-timeout ends one that hangs.
settings.register_profile("lethe", deadline=None)
settings.load_profile("lethe")

# Tests look at rows, not at durability; the crash tests keep fsync on. Small databases need no vacuum.
FAST_SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "autovacuum": "off",
}


@dataclass(frozen=True)
class SharedServer:
    """A server on which each test gets a database of its own.

    Args:
        copies: how it makes a database: files are copied at once where no fsync is waited for.
    """

    maintenance_url: str
    password: str | None
    copies: str = ""

    def create_database(self, name: str, *, template: str = "template1") -> None:
        """An empty database, or a copy of another one."""
        self.execute(f"create database {name} template {template} {self.copies}")

    def execute(self, statement: str) -> None:
        """Run one statement outside a transaction in the maintenance database."""
        url = make_url(self.maintenance_url).set(drivername="postgresql")
        conninfo = url.render_as_string(hide_password=False)
        with psycopg.connect(conninfo, autocommit=True, password=self.password) as connection:
            connection.execute(statement)

    def url(self, database: str) -> str:
        """Address of a database of this server, without the password."""
        return make_url(self.maintenance_url).set(database=database).render_as_string(hide_password=False)


def pytest_configure(config: pytest.Config) -> None:
    """Workers of a run share the templates of its first process, and what its forge has loaded."""
    stack = ExitStack()
    stack.enter_context(templates_of_this_run())
    stack.enter_context(forge_of_the_run(getattr(config.option, "numprocesses", None)))
    write_a_share(config)
    config.add_cleanup(stack.close)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test that needs a server, so that `-m 'not postgresql'`, say, leaves it out."""
    for item in items:
        if POSTGRESQL_FIXTURES.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.postgresql)
        if MARIADB_FIXTURES.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.mariadb)
        if SLONY_FIXTURES.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slony)
        if DS389_FIXTURES.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.ds389)
        if _is_served(item):
            item.add_marker(pytest.mark.served)
        if item.path.relative_to(TESTS).as_posix() in SLOW:
            item.add_marker(pytest.mark.slow)
        if PERCONA_FIXTURES.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.percona)
        if PROMTOOL_FIXTURES.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.promtool)
        if CHROMIUM_FIXTURES.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.chromium)
    share_metadata(items)
    leave_to_other_turns(items, turn_of_this_run())
    put_in_order(items)


def pytest_report_header() -> str:
    """Which turn it is, to run the same tests again."""
    return f"turn: {turn_of_this_run()} ({SETTING})"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFiles | None:
    """Which tests a worker has together."""
    return scheduler_of(config, log)


def _is_served(item: pytest.Item) -> bool:
    """Whether a test has a server, a service or a JVM, or lies where most do: not in `make test-fast`."""
    folder = item.path.relative_to(TESTS).parts[0]
    marks = ("postgresql", "mariadb", "slony", "ds389", "journey")
    fixtures = getattr(item, "fixturenames", ())
    chosen = getattr(item, "callspec", None)
    is_asked = chosen is not None and "request" in fixtures and SERVERS.search(chosen.id) is not None
    return (
        folder in SERVED_FOLDERS
        or is_asked
        or any(item.get_closest_marker(mark) for mark in marks)
        or not JVM_FIXTURES.isdisjoint(fixtures)
    )


@pytest.fixture(scope="session", autouse=True)
def _forked_children() -> Iterator[None]:
    """Children that erase are forks, as those of services are; not where a test gives one an environment."""
    real = child.start_program

    def start(environment: Mapping[str, str] | None) -> Any:
        return real(environment) if environment is not None else forked_child()

    with pytest.MonkeyPatch.context() as patch:
        if os.environ.get("LETHE_TEST_FORGE") != "0":
            patch.setattr(child, "start_program", start)
        yield


def pytest_collection_finish() -> None:
    """Thousands of collected tests stay to the end: the collector of garbage need not look at them again."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def postgresql_binaries() -> Iterator[Path]:
    """Directory of `postgres`, `initdb` and the client programs."""
    with scratch_directory("lethe-binaries-") as scratch:
        yield find_binaries(scratch)


@pytest.fixture(scope="session")
def postgresql_server(request: pytest.FixtureRequest) -> Iterator[SharedServer]:
    """The server of the session: the given one, else an embedded one."""
    given = os.environ.get("LETHE_TEST_POSTGRESQL_URL")
    if given:
        yield from _given_server(given)
        return
    binaries = request.getfixturevalue("postgresql_binaries")
    with scratch_directory() as directory:
        server = PostgresqlServer(binaries, directory, settings=FAST_SETTINGS)
        server.start()
        try:
            yield SharedServer(server.url(), None, copies="strategy file_copy")
        finally:
            server.stop()


def _given_server(given: str) -> Iterator[SharedServer]:
    url = make_url(given).set(drivername="postgresql+psycopg")
    with pytest.MonkeyPatch.context() as patch:
        if url.password is not None:
            # Tests pass addresses without a password; libpq takes it from here.
            patch.setenv("PGPASSWORD", str(url.password))
        bare = URL.create(url.drivername, url.username, None, url.host, url.port, url.database, url.query)
        password = None if url.password is None else str(url.password)
        yield SharedServer(bare.render_as_string(hide_password=False), password)


@pytest.fixture
def postgresql_url(postgresql_server: SharedServer) -> Iterator[str]:
    """Address of a fresh, empty database: `postgresql+psycopg://user@host:port/db`, without a password."""
    name = f"lethe_{uuid.uuid4().hex[:16]}"
    postgresql_server.create_database(name)
    yield postgresql_server.url(name)
    postgresql_server.execute(f"drop database if exists {name} with (force)")


@pytest.fixture
def own_postgresql(postgresql_binaries: Path) -> Iterator[PostgresqlServer]:
    """A private, started server with `.kill9()`, `.restart()`, `.stop()`, `.url(database)`."""
    with scratch_directory() as directory:
        server = PostgresqlServer(postgresql_binaries, directory)
        server.start()
        yield server
        server.stop()


@dataclass(frozen=True)
class MariadbServer:
    """A MariaDB or MySQL server on which each test gets a database of its own."""

    address: str

    def execute(self, statement: str) -> None:
        """Run one statement outside any database."""
        url = make_url(self.address)
        password = str(url.password or "")
        with pymysql.connect(
            host=url.host, port=url.port or 3306, user=url.username, password=password, ssl_disabled=True
        ) as connection:
            connection.cursor().execute(statement)

    def url(self, database: str) -> str:
        """Address of a database of this server."""
        return make_url(self.address).set(database=database).render_as_string(hide_password=False)


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[MariadbServer]:
    """The given server, else a private one in the folder of temporary files, else root's on this machine."""
    given = os.environ.get("LETHE_TEST_MARIADB_URL")
    if given is None and mariadb_is_installed():
        with private_mariadb(settings=FAST_MARIADB) as private:
            yield MariadbServer(private.address())
        return
    server = MariadbServer(given or MARIADB_URL)
    try:
        server.execute("select 1")
    except pymysql.Error as exc:
        if given:
            raise
        need_mariadb(f"no MariaDB server at 127.0.0.1:3306 ({exc}), and none is installed")
    yield server


def need_mariadb(reason: str) -> None:
    """Skip the test where no private server can be made; with LETHE_REQUIRE_PEERS=1 that is a failure."""
    if not mariadb_is_installed():
        _skip_or_fail(reason)


def need_slony() -> None:
    """Skip the test where Slony-I is not installed; with LETHE_REQUIRE_PEERS=1 that is a failure."""
    reason = missing_of_slony()
    if reason is not None:
        _skip_or_fail(reason)


@pytest.fixture(scope="session")
def ds389() -> None:
    """Says that real servers of 389 Directory Server can be made here."""
    reason = missing_of_ds389()
    if reason is not None:
        _skip_or_fail(reason)


@pytest.fixture(scope="session")
def pt_archiver() -> str:
    """The path of pt-archiver."""
    found = shutil.which("pt-archiver")
    if found is None:
        _skip_or_fail("pt-archiver is not installed (Debian: percona-toolkit)")
    return str(found)


@pytest.fixture(scope="session")
def promtool() -> str:
    """The path of promtool."""
    found = shutil.which("promtool")
    if found is None:
        _skip_or_fail("promtool is not installed (Debian: prometheus)")
    return str(found)


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of Chromium."""
    found = shutil.which("chromium")
    if found is None:
        _skip_or_fail("Chromium is not installed (Debian: chromium)")
    return str(found)


def _skip_or_fail(reason: str) -> None:
    if os.environ.get("LETHE_REQUIRE_PEERS") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def slony() -> Iterator[SlonyCluster]:
    """A real cluster of three nodes that replicate, one for all tests of a module."""
    need_slony()
    with slony_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def bare_slony() -> Iterator[SlonyCluster]:
    """The same without slons and without a set: catalogs with the cluster's own functions."""
    need_slony()
    with bare_cluster() as cluster:
        yield cluster


@pytest.fixture
def own_mariadb() -> Iterator[PrivateMariadb]:
    """A private, started server with `.kill9()`, `.restart()`, `.stop()`, `.url(database)`, `.execute()`."""
    need_mariadb("MariaDB is not installed: no server of the test's own")
    with private_mariadb() as server:
        yield server


@pytest.fixture
def mariadb_url(mariadb_server: MariadbServer) -> Iterator[str]:
    """Address of a fresh, empty database: `mysql+pymysql://user@host:port/db`."""
    name = f"lethe_{uuid.uuid4().hex[:16]}"
    mariadb_server.execute(f"create database {name}")
    yield mariadb_server.url(name)
    mariadb_server.execute(f"drop database if exists {name}")


@pytest.fixture(scope="session")
def ready_postgresql(postgresql_server: SharedServer) -> Iterator[ReadyPlaces]:
    """Databases with the tables of SymmetricDS, emptied behind each test."""
    places = ReadyPlaces(postgresql_server, "postgresql")
    yield places
    places.drop()


@pytest.fixture(scope="session")
def ready_mariadb(mariadb_server: MariadbServer) -> Iterator[ReadyPlaces]:
    """The same on MariaDB."""
    places = ReadyPlaces(mariadb_server, "mariadb")
    yield places
    places.drop()

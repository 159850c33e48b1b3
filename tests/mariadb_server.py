"""A private MariaDB server for tests and benchmarks, from the installed program.

Invariants:
- The server listens on 127.0.0.1 only; `root` needs no password there.
- It runs as the account `mysql` where the caller is root.
- Whoever started the server outlives it: it gets SIGKILL when its parent dies.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql

from tests.ports import free_port
from tests.server_account import die_with, identity_of, server_account

PROGRAMS = ("mariadbd", "mysqld")
INSTALLERS = ("mariadb-install-db", "mysql_install_db")
PLACES = ("/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin")
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
START_ATTEMPTS = 5

# Tests look at rows, not at durability; the crash tests keep it.
FAST_SETTINGS = {"innodb_flush_log_at_trx_commit": "0", "innodb_doublewrite": "0"}


class MariadbStartError(Exception):
    """The server ended, or did not answer in time; the text holds the end of its log."""


def find_program(names: tuple[str, ...]) -> Path | None:
    """The first of some programs that is installed."""
    for name in names:
        found = shutil.which(name, path=os.pathsep.join((os.environ.get("PATH", ""), *PLACES)))
        if found:
            return Path(found)
    return None


def is_installed() -> bool:
    """Whether a private server can be made here."""
    return find_program(PROGRAMS) is not None and find_program(INSTALLERS) is not None


class PrivateMariadb:
    """One server with a data directory of its own."""

    def __init__(self, directory: Path, *, settings: dict[str, str] | None = None) -> None:
        """Make the data directory; the server is not started.

        Args:
            directory: an empty directory that the server's account may enter.
            settings: server variables beyond the defaults.
        """
        self._data = directory / "data"
        self._log = directory / "log"
        self._settings = dict(settings or {})
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0
        self._data.mkdir(mode=0o700)
        account = _account()
        if account is not None:
            os.chown(self._data, account.pw_uid, account.pw_gid)
        self._install()

    def _install(self) -> None:
        installer = find_program(INSTALLERS)
        assert installer is not None
        options = ["--no-defaults", *self._places(), "--auth-root-authentication-method=normal"]
        run = subprocess.run(
            [installer, *options, "--skip-test-db", *_fast_options(FAST_SETTINGS)],
            capture_output=True,
            check=False,
            **_identity(),
        )
        if run.returncode != 0:
            raise MariadbStartError((run.stdout + run.stderr).decode(errors="replace")[-4000:])

    def _places(self) -> list[str]:
        """Temporary files too: the server's account may not write where those of the tests lie."""
        return [f"--datadir={self._data}", f"--tmpdir={self._data}"]

    @property
    def pid(self) -> int:
        """Process id of the running server."""
        assert self._process is not None
        return self._process.pid

    def address(self) -> str:
        """SQLAlchemy form of the address of the server, without a database."""
        return f"mysql+pymysql://root@127.0.0.1:{self.port}"

    def url(self, database: str) -> str:
        """The same of one database."""
        return f"{self.address()}/{database}"

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        """Run one statement outside any database."""
        with contextlib.closing(self.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    def connect(self, database: str | None = None) -> pymysql.Connection[Any]:
        """A session of the test's own."""
        return pymysql.connect(
            host="127.0.0.1",
            port=self.port,
            user="root",
            database=database,
            autocommit=True,
            connect_timeout=5,
            ssl_disabled=True,
        )

    def start(self) -> None:
        """Start on a free port, or on the former one, and wait until it answers."""
        assert self._process is None
        for _ in range(START_ATTEMPTS):
            port = self.port or free_port()
            self._spawn(port)
            if self._wait_ready(port):
                return
            if self.port:  # the former port may not change
                break
        self.port = 0
        raise MariadbStartError(self._log.read_text(errors="replace")[-4000:])

    def _spawn(self, port: int) -> None:
        program = find_program(PROGRAMS)
        settings = {
            "bind-address": "127.0.0.1",
            "port": str(port),
            "socket": str(self._data / "socket"),
            "pid-file": str(self._data / "pid"),
            "skip-name-resolve": "1",
            "innodb-buffer-pool-size": "64M",
            # As Debian's own configuration has it; the program's default is latin1.
            "character-set-server": "utf8mb4",
            "collation-server": "utf8mb4_general_ci",
            **self._settings,
        }
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    str(program),
                    "--no-defaults",
                    *self._places(),
                    *(f"--{name}={value}" for name, value in settings.items()),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with(os.getpid(), signal.SIGKILL),
                **_identity(),
            )

    def _wait_ready(self, port: int) -> bool:
        assert self._process is not None
        before, self.port = self.port, port
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline and self._process.poll() is None:
            with contextlib.suppress(pymysql.Error):
                self.connect().close()
                return True
            time.sleep(0.05)
        if self._process.poll() is None:
            self.kill9()
        self._process, self.port = None, before
        return False

    def stop(self) -> None:
        """End the server cleanly; a stopped server stays stopped."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill9()
        self._process = None

    def kill9(self) -> None:
        """Kill the server with SIGKILL, as a power cut of the program would."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(STOP_TIMEOUT_S)
        self._process = None

    def restart(self) -> None:
        """Start again on the same port with the same data, after `kill9`, `stop` or while running."""
        self.stop()
        self.start()


def _fast_options(settings: dict[str, str]) -> list[str]:
    return [f"--{name}={value}" for name, value in settings.items()]


def _account() -> pwd.struct_passwd | None:
    return server_account("mysql", "nobody")


def _identity() -> dict[str, Any]:
    return identity_of(_account())


@contextlib.contextmanager
def private_mariadb(*, settings: dict[str, str] | None = None) -> Iterator[PrivateMariadb]:
    """A started server in a temporary directory; gone afterwards."""
    directory = Path(tempfile.mkdtemp(prefix="lethe-mariadb-"))
    directory.chmod(0o755)
    try:
        server = PrivateMariadb(directory, settings=settings)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)

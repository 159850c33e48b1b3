"""The demo's own service: `lethe serve` as a child process on a free port."""

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Final, Self

from lethe_client import Lethe

START_MAX_S: Final = 40.0
STOP_MAX_S: Final = 20.0
LOG_TAIL_CHARS: Final = 2_000
ENDING: Final = (signal.SIGTERM, signal.SIGHUP)
"""Signals that end the demo as Ctrl-C does: the service is in a session of its own, and would stay."""
EARLY_SPARK: Final[Mapping[str, str]] = MappingProxyType({"LETHE_SPARK__START": "EAGER"})
"""Spark comes up while the database is planned."""


class ServiceDidNotStart(Exception):
    """The child ended, or was not ready in time; the message ends with its last words."""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def own_command() -> str:
    """The command as it was called: in a virtual environment `lethe` alone is not on the PATH."""
    called = sys.argv[0]
    return shlex.quote(called) if Path(called).name == "lethe" else "lethe"


class DemoService:
    """Starts on entry, stops on exit.

    Args:
        settings: variables of its environment; no other of this shell's for Lethe reach it.
    """

    def __init__(self, data_dir: Path, *, settings: Mapping[str, str] = EARLY_SPARK) -> None:
        self._settings = dict(settings)
        self.data_dir = data_dir
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = data_dir.parent / "serve.log"
        self.secrets = data_dir.parent / "secrets"
        self._process: subprocess.Popen[bytes] | None = None
        self._former: dict[signal.Signals, Any] = {}

    @property
    def command(self) -> str:
        """What starts it again by hand."""
        serve = f"{own_command()} serve --data-dir {shlex.quote(str(self.data_dir))} --port {self.port}"
        return f"LETHE_SECRETS_DIR={shlex.quote(str(self.secrets))} {serve}"

    @property
    def token_file(self) -> Path:
        return self.data_dir / "admin.token"

    def __enter__(self) -> Self:
        # The demo shows the defaults, not whatever this shell is set up for.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("LETHE_")}
        environment |= self._settings
        self.secrets.mkdir(mode=0o700, exist_ok=True)
        environment["LETHE_SECRETS_DIR"] = str(self.secrets)
        arguments = [sys.executable, "-m", "app.cli.demo.bound_service"]
        arguments += ["--data-dir", str(self.data_dir), "--port", str(self.port)]
        self._former = {number: signal.signal(number, signal.default_int_handler) for number in ENDING}
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 -- our own interpreter, our own arguments
                arguments,
                env=environment,
                stdin=subprocess.PIPE,  # its end tells the service that we are gone, after kill -9 too
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl-C is for us; the service is then stopped in order.
                start_new_session=True,
            )
        with ExitStack() as undo:
            undo.callback(self._stop)
            self._wait_until_ready()
            undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def wait(self) -> None:
        """Stay until the service ends by itself (Ctrl-C comes out as KeyboardInterrupt)."""
        assert self._process is not None
        self._process.wait()

    def _wait_until_ready(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_MAX_S
        with Lethe(self.url, timeout_s=5) as client:
            while time.monotonic() < deadline:
                if self._process.poll() is not None:
                    raise ServiceDidNotStart(
                        f"the service ended with {self._process.returncode}:\n{self._tail()}"
                    )
                if self.token_file.exists() and client.is_ready():
                    return
                time.sleep(0.1)
        raise ServiceDidNotStart(f"the service is not ready after {START_MAX_S:g} s:\n{self._tail()}")

    def _stop(self) -> None:
        for number, former in self._former.items():
            signal.signal(number, former)
        if self._process is None:
            return
        assert self._process.stdin is not None
        with self._process.stdin:  # closed when the service has ended: it would be a second signal
            self._end(self._process)

    @staticmethod
    def _end(process: subprocess.Popen[bytes]) -> None:
        if process.poll() is not None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_MAX_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _tail(self) -> str:
        return self.log.read_text(errors="replace")[-LOG_TAIL_CHARS:]

"""Two services and two workers on one PostgreSQL, another one for targets, and a small file system."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from lethe_client import Lethe, RetryPolicy

from tests.chaos.clocked import clock_of
from tests.chaos.clocks import MetadataClock
from tests.forge import forked_child
from tests.http.service_process import NO_TLS
from tests.journeys.service import Process, Service
from tests.postgresql_server import PostgresqlServer, find_binaries, scratch_directory

LEASE_TTL_S = 4.0
START_MAX_S = 90.0
ASKING_MAX_S = 240.0
PLACE_MB = 96
"""Of the file system that becomes full."""
ROOM_MIN_MB = 8
TARGETS = {"fsync": "off", "full_page_writes": "off"}
SETTINGS: Mapping[str, str] = {
    "LETHE_LEASE_TTL_S": str(LEASE_TTL_S),
    "LETHE_LEASE_SELF_STOP_S": "2.5",
    "LETHE_JOB_RETRY_BACKOFF_MAX_S": "1",
    # What fails here comes from faults that are meant: nothing is given up for their number.
    "LETHE_CRASH_LOOP_MAX": "10000",
    "LETHE_JOB_RETRIES_MAX": "10000",
    "LETHE_SPARK__ENABLED": "false",
    "LETHE_PURGE_WORKERS": "2",
    "LETHE_ERASURE_TICK_S": "1",
    "LETHE_ERASURE_WAIT_IN_JOB_S": "1",
    "LETHE_SCHEDULES_POLL_S": "5",
    "LETHE_REPLICATION_LEASE_S": "6",
    "LETHE_ARCHIVE_FREE_MIN_MB": "4",
    "LETHE_DATA_FREE_MIN_MB": "4",
    # Every request of the storm comes from this machine, many of them while everything is away.
    "LETHE_ADDRESS_FAILURES_BURST": "100000",
}
REQUEST_TIMEOUT_S = 10.0


class EitherService(httpx.BaseTransport):
    """Requests go to one of the services; those that are not answered go to the other one next."""

    def __init__(self, services: list[Service]) -> None:
        self._services = services
        self._inner = httpx.HTTPTransport()
        self._turn = 0
        self.broken: list[str] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send it; what no fault explains is kept in `broken`."""
        self._turn += 1
        service = self._services[self._turn % len(self._services)]
        request.url = request.url.copy_with(host="127.0.0.1", port=service.port)
        answer = self._inner.handle_request(request)
        if answer.status_code == 500:
            body = answer.read().decode(errors="replace")
            self.broken.append(f"{request.method} {request.url.path} 500 {body[:500]}")
        return answer

    def close(self) -> None:
        """Give back the connections."""
        self._inner.close()


@dataclass
class Fleet:
    """What runs, and what it runs on.

    Attributes:
        place: the small file system, with the archives and all data directories; None: none could be made.
        clock: of the metadata's server, which is set for all at once.
        clocks: the files that set the clocks of those processes that have one to be set.
        guard: held by whoever ends and starts processes and servers.
    """

    directory: Path
    metadata: PostgresqlServer
    targets: PostgresqlServer
    services: list[Service]
    workers: list[Process]
    place: Path | None
    clock: MetadataClock
    clocks: dict[str, Path] = field(default_factory=dict)
    guard: threading.RLock = field(default_factory=threading.RLock)
    transports: list[EitherService] = field(default_factory=list)
    metadata_url: str = ""
    token: str = ""

    @property
    def processes(self) -> list[Process]:
        """All four."""
        return [*self.services, *self.workers]

    def client(self) -> Lethe:
        """A client of a thread's own that outlives what happens here."""
        transport = EitherService(self.services)
        self.transports.append(transport)
        patience = RetryPolicy(attempts=400, most_s=0.5, total_s=ASKING_MAX_S)
        return Lethe(
            "http://lethe.chaos",
            self.token,
            timeout_s=REQUEST_TIMEOUT_S,
            retries=patience,
            transport=transport,
        )

    def revive(self) -> None:
        """Start whoever has ended by himself, as an init system would."""
        with self.guard:
            for process in self.processes:
                if process.has_ended():
                    process.spawn()

    def start_all(self) -> None:
        """Start all, and wait until both services are ready."""
        if os.environ.get("LETHE_TEST_FORGE") != "0":
            _warm_up()
        for process in self.processes:
            process.spawn()
            if process is self.services[0]:  # it migrates, and writes the token
                self._await_ready(self.services[:1])
        self.token = self.services[0].token
        self._await_ready(self.services)

    def _await_ready(self, services: list[Service]) -> None:
        deadline = time.monotonic() + START_MAX_S
        for service in services:
            while not _is_ready(service):
                assert not service.has_ended(), service.report()
                assert time.monotonic() < deadline, service.report()
                time.sleep(0.05)

    def heal(self) -> None:
        """Everything runs again, awake, with right clocks and room."""
        with self.guard:
            for clock in self.clocks.values():
                clock.unlink(missing_ok=True)
            self.clock.set(0.0)
            if self.place is not None:
                (self.place / "filling").unlink(missing_ok=True)
            for process in self.processes:
                if not process.has_ended():
                    with contextlib.suppress(ProcessLookupError):
                        process.thaw()
            self.revive()
        deadline = time.monotonic() + START_MAX_S
        while not all(_is_ready(service) for service in self.services):
            self.revive()
            assert time.monotonic() < deadline, [service.report() for service in self.services]
            time.sleep(0.1)


def _warm_up() -> None:
    """Whoever forks processes loads what erases before the storm: meanwhile he hears of no end."""
    child = forked_child()
    child.kill()
    child.wait(60)
    for stream in (child.stdin, child.stdout):
        if stream is not None:
            stream.close()


def _is_ready(service: Service) -> bool:
    try:
        return httpx.get(f"{service.url}/readyz", timeout=5, verify=NO_TLS).status_code == 200
    except httpx.TransportError:
        return False


@contextmanager
def small_place(directory: Path) -> Iterator[Path | None]:
    """A file system of PLACE_MB; None where this account may not mount one."""
    directory.mkdir(mode=0o755)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={PLACE_MB}m,mode=755", "lethe-chaos", str(directory)]
    done = subprocess.run(mount, capture_output=True, check=False) if os.geteuid() == 0 else None
    if done is None or done.returncode != 0:
        yield None
        return
    try:
        yield directory
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], capture_output=True, check=False)


def _processes(
    stack: ExitStack, directory: Path, base: Path, settings: Mapping[str, str], clocks: dict[str, Path]
) -> list[Process]:
    serving = {**settings, "LETHE_MIGRATE": "true"}
    made: list[Process] = [Service(base / f"service{number}", serving) for number in (1, 2)]
    made += [Process("worker", base / f"worker{number}", settings) for number in (1, 2)]
    for process in made[1::2]:  # one of each kind has a clock that jumps
        clock = directory / f"{process.data_dir.name}.clock"
        clocks[process.data_dir.name] = clock
        clock_of(process, clock)
    for process in made:
        stack.callback(lambda process=process: None if process.has_ended() else process.kill9())
    return made


@contextmanager
def fleet(directory: Path) -> Iterator[Fleet]:
    """All of it, started; ended at the end, however it stands then."""
    with ExitStack() as stack:
        binaries = find_binaries(stack.enter_context(scratch_directory("lethe-binaries-")))
        servers = []
        for settings in ({}, TARGETS):
            server = PostgresqlServer(
                binaries,
                stack.enter_context(scratch_directory()),
                settings={"max_connections": "200", **settings},
            )
            server.start()
            stack.callback(server.stop)
            servers.append(server)
        place = stack.enter_context(small_place(directory / "place"))
        url = servers[0].create_database("metadata")
        clock = MetadataClock(servers[0].conninfo("metadata"))
        clock.set_up("metadata")
        base = place or directory / "place"
        clocks: dict[str, Path] = {}
        settings = {**SETTINGS, "LETHE_METADATA_URL": url, "LETHE_ARCHIVE_ROOT": str(base / "archive")}
        processes = _processes(stack, directory, base, settings, clocks)
        for process in processes:  # their logs are no part of what may be full
            process.log = directory / f"{process.data_dir.name}.log"
            process.settings["LETHE_SECRETS_DIR"] = str(directory / "secrets")
        (directory / "secrets").mkdir(mode=0o700)
        services = [each for each in processes if isinstance(each, Service)]
        workers = [each for each in processes if not isinstance(each, Service)]
        made = Fleet(
            directory, servers[0], servers[1], services, workers, place, clock, clocks, metadata_url=url
        )
        made.start_all()
        yield made

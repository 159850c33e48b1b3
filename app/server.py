"""The processes of Lethe: `serve`, `worker`, `migrate` and `recover --offline`; each returns its exit code.

Exit codes: 0, 64 usage, 70 bug, 75 try again (the data directory or the port is taken, the
metadata is away), 78 configuration.
"""

import os
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import structlog
import uvicorn
from fastapi import FastAPI

from app.auth.actions import Action
from app.auth.rows import audited
from app.auth.service import ensure_admin_token
from app.db import Database
from app.errors import MetadataBusy, MetadataUnavailable, ServiceError
from app.handlers import recover as recover_target
from app.jobs.running.instances import InstanceBusy, InstanceLock
from app.kit.door import Door, Listener
from app.kit.http.protocol import timed_by
from app.logs import BOUNDS, configure_logging
from app.main import create_app
from app.readiness import Readiness, room_of
from app.room import Room
from app.settings import Settings
from app.starting import (
    EXIT_BUSY,
    EXIT_CONFIGURATION,
    CannotStart,
    Misconfigured,
    bind,
    bring_to_head,
    check_certificate,
    check_places,
    check_settings,
    check_verbs,
    door_limits,
    open_metadata,
    start_tracing,
    tell_unusable_secrets,
    using,
)
from app.stores.checks.models import RecoveryRead
from app.stores.service import get_store
from app.tracing import TRACING
from app.working import Worker

EXIT_OK = 0
EXIT_FAILED = 1
MEGABYTE = 1_048_576
ROOT = 0
NO_SIGNAL = 0
"""The process ends by itself."""
OFFLINE = "lethe recover --offline"
logger = structlog.get_logger("lethe.server")


class CertificateFiles:
    """Certificate and key of the service, taken anew when their files are replaced.

    Connections that are open keep the former one; files that do not fit are told, and change nothing.
    """

    def __init__(self, certificate: Path, key: Path) -> None:
        self._files = (certificate, key)
        self._seen = self._marks()

    def look(self, context: ssl.SSLContext) -> None:
        """Load them where they are others than before."""
        marks = self._marks()
        if marks == self._seen:
            return
        self._seen = marks
        try:
            check_certificate(*self._files)
            context.load_cert_chain(*self._files, password="")
        except (CannotStart, OSError) as error:
            logger.error("the new certificate is not used, the former one stays", error=str(error))
        else:
            logger.info("certificate replaced", file=str(self._files[0]))

    def _marks(self) -> list[tuple[int, int, int] | None]:
        found: list[tuple[int, int, int] | None] = []
        for file in self._files:
            try:
                at = file.stat()
            except OSError:  # in the middle of its replacement
                found.append(None)
            else:
                found.append((at.st_ino, at.st_mtime_ns, at.st_size))
        return found


class Server(uvicorn.Server):
    """uvicorn that drains: on SIGTERM it answers 503 on /readyz until the jobs have stopped, then ends."""

    def __init__(self, config: uvicorn.Config, *, drain: Callable[[], None], door: Door) -> None:
        super().__init__(config)
        self._certificates: CertificateFiles | None = None
        if config.ssl_certfile is not None and config.ssl_keyfile is not None:
            self._certificates = CertificateFiles(Path(config.ssl_certfile), Path(config.ssl_keyfile))
        self._drain = drain
        self._draining: threading.Thread | None = None
        self.door = door
        self.exit_code = EXIT_OK

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """First signal: drain; second: leave at once."""
        if self._draining is not None:
            self.force_exit = True
            self.should_exit = True
            return
        self._draining = threading.Thread(
            target=self._drain_and_exit, args=(sig,), name="lethe-drain", daemon=True
        )
        self._draining.start()

    def _drain_and_exit(self, sig: int) -> None:
        try:
            tell_stopping(sig)  # not in the signal's handler: it may have interrupted a line
            self._drain()
        finally:
            self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Say where it listens as soon as it does."""
        await super().startup(sockets)
        for listener in sockets or ():
            host, port, *_scope = listener.getsockname()
            scheme = "https" if self.config.is_ssl else "http"
            address = f"[{host}]" if ":" in host else host
            logger.info("listening", url=f"{scheme}://{address}:{port}")

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second; what is late is looked for once."""
        if counter % 10 == 0:
            self.door.sweep()
            BOUNDS.sum_up()
            if self._certificates is not None and self.config.ssl is not None:
                self._certificates.look(self.config.ssl)
        return await super().on_tick(counter)

    def leave(self, code: int) -> None:
        """End with a code; from any thread."""
        self.exit_code = code
        self.handle_exit(NO_SIGNAL, None)


def tell_stopping(sig: int) -> None:
    """Say in the log that the process ends, and by what."""
    logger.info("stopping", signal=None if sig == NO_SIGNAL else signal.Signals(sig).name)


def serve(settings: Settings) -> int:
    """Run API, runner and housekeeping until SIGTERM; returns the exit code."""
    configure_logging()
    os.umask(0o077)
    try:
        check_verbs()
        check_settings(settings)
        start_tracing(settings)
        database = open_metadata(settings)
        with using(settings.data_dir):
            worker = Worker(settings, database, role="serve")
            bring_to_head(database, may_migrate=settings.migrate)
            tell_unusable_secrets(database, settings)
            with database.transaction() as db:
                ensure_admin_token(db, settings.data_dir, now=database.now(db))
        sockets = bind(settings.host, settings.port)
    except InstanceBusy as error:
        return _refuse(str(error), EXIT_BUSY)
    except (MetadataUnavailable, MetadataBusy) as error:  # it has gone since it was looked at
        return _refuse(error.detail, EXIT_BUSY)
    except CannotStart as error:
        return _refuse(str(error), error.exit_code)
    return _run_server(settings, database, worker, sockets)


def _run_server(settings: Settings, database: Database, worker: Worker, sockets: list[socket.socket]) -> int:
    spark = worker.spark
    readiness = Readiness(
        runner_alive=lambda: worker.runner.is_alive,
        spark_failed=lambda: spark is not None and spark.is_failed,
        schema=lambda: worker.schema.found,
    )
    room_of(readiness, database, Room(settings.data_dir, settings.data_free_min_mb * MEGABYTE))
    # Whoever came here has asked the metadata what time it is: nothing of the API's loop has to.
    app = create_app(
        settings,
        database,
        clock=worker.clock,
        readiness=readiness,
        wake_runner=worker.runner.wake,
        spark=spark,
        instance_id=worker.lock.id,
    )
    app.state.ear = worker.ear
    worker.changed = app.state.told

    def drain() -> None:
        readiness.stopping = True
        worker.stop()
        app.state.watch.end_waits()
        app.state.feed.end_waits()

    if os.geteuid() == ROOT:
        logger.warning("this process is root: run it as an account of its own")
    server = _server_of(app, settings, drain)
    threading.Thread(target=_start, args=(worker, server), name="lethe-start", daemon=True).start()
    server.run(sockets=[Listener.over(bound, server.door) for bound in sockets])
    TRACING.stop()
    database.close()
    logger.info("stopped", role=worker.role, exit_code=server.exit_code)
    return server.exit_code


def _server_of(app: FastAPI, settings: Settings, drain: Callable[[], None]) -> Server:
    door = Door(door_limits(settings))
    return Server(
        uvicorn.Config(
            app,
            http=timed_by(door),
            ssl_certfile=settings.tls_cert,
            ssl_keyfile=settings.tls_key,
            proxy_headers=settings.behind_proxy,
            forwarded_allow_ips=settings.proxy_addresses,
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=2,
        ),
        drain=drain,
        door=door,
    )


def _start(worker: Worker, server: Server) -> None:
    """Begin to take work; leave with 78 when every store has seen a newer metadata than this."""
    worker.start_when_possible()
    if worker.every_store_is_ahead():
        logger.error(
            "every store is ahead of this metadata (EPOCH_AHEAD): is it an old copy? "
            "`lethe recover STORE --offline` takes a store back"
        )
        server.leave(EXIT_CONFIGURATION)


def run_worker(settings: Settings) -> int:
    """Run jobs without an API, on a PostgreSQL metadata, until SIGTERM; returns the exit code."""
    configure_logging()
    os.umask(0o077)
    try:
        check_verbs()
        database = open_metadata(settings)
        if database.is_sqlite:
            raise Misconfigured("a worker needs the PostgreSQL metadata that its service uses")
        check_places(settings)
        start_tracing(settings)
        bring_to_head(database, may_migrate=False)
        tell_unusable_secrets(database, settings)
        with using(settings.data_dir):
            worker = Worker(settings, database, role="worker")
    except InstanceBusy as error:
        return _refuse(str(error), EXIT_BUSY)
    except CannotStart as error:
        return _refuse(str(error), error.exit_code)
    return _wait_for_signal(worker, database)


def _wait_for_signal(worker: Worker, database: Database) -> int:
    ended = threading.Event()
    seen = [NO_SIGNAL]

    def end(number: int, _frame: FrameType | None) -> None:
        seen[0] = number
        ended.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    # The metadata may have gone since it was looked at: it is waited for.
    threading.Thread(target=worker.start_when_possible, name="lethe-start", daemon=True).start()
    ended.wait()
    tell_stopping(seen[0])
    worker.stop()
    TRACING.stop()
    database.close()
    logger.info("stopped", role=worker.role, exit_code=EXIT_OK)
    return EXIT_OK


def migrate(settings: Settings) -> int:
    """Bring the metadata to head; returns the exit code."""
    configure_logging()
    try:
        database = open_metadata(settings)
        with using(settings.data_dir):
            bring_to_head(database, may_migrate=True)
    except CannotStart as error:
        return _refuse(str(error), error.exit_code)
    database.close()
    return EXIT_OK


def recover(settings: Settings, store_id: str) -> tuple[int, RecoveryRead | None]:
    """Take a store back while no service runs: where every store is ahead, none stays up to be asked.

    Returns: the exit code, and what was done.
    """
    configure_logging()
    try:
        database = open_metadata(settings)
        if database.is_sqlite and not Path(database.url.database or "").is_file():
            raise Misconfigured(f"there is no metadata in {settings.data_dir}")
        with using(settings.data_dir):
            lock = InstanceLock(settings.data_dir)
        bring_to_head(database, may_migrate=False)
        with database.reading() as db:
            store = get_store(db, store_id)
        done = recover_target(database, settings, store, OFFLINE)
        with database.transaction() as db:
            subject, at = ("store", store_id), database.now(db)
            detail = done.model_dump()
            db.add(
                audited(Action.STORE_RECOVER, subject, at=at, actor=OFFLINE, store=store_id, detail=detail)
            )
    except InstanceBusy as error:
        return _refuse(f"{error}: ask it, without --offline", EXIT_BUSY), None
    except CannotStart as error:
        return _refuse(str(error), error.exit_code), None
    except ServiceError as error:
        return _refuse(f"{error.code}: {error.detail}", EXIT_FAILED), None
    database.close()
    lock.release()
    return EXIT_OK, done


def _refuse(detail: str, code: int) -> int:
    print(f"lethe: {detail}", file=sys.stderr)
    return code

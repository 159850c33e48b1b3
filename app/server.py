"""The processes of Lethe: `serve`, `worker`, `migrate` and `recover --offline`; each returns its exit code.

Exit codes: 0, 64 usage, 70 bug, 75 try again (the data directory or the port is taken, the
metadata is away), 78 configuration.
"""

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import structlog
import uvicorn
from sqlmodel import select

from app.auth.models import AuditEvent
from app.auth.service import ensure_admin_token
from app.backups.settling import keep_backups
from app.clock import SystemClock
from app.db import Database
from app.erase.attempt import Workshop
from app.erase.certificate import issue_missing
from app.erase.errors import SigningKeyUnusable
from app.erase.tick import Look
from app.errors import MetadataBusy, MetadataUnavailable, ServiceError
from app.handlers import is_ahead, task_kinds
from app.handlers import recover as recover_target
from app.jobs.claims import Claimer
from app.jobs.instances import InstanceBusy, InstanceLock, heartbeat, register_instance
from app.jobs.runner import Runner
from app.jobs.service import wake
from app.jobs.spark_hands import HandsSource
from app.jobs.spark_service import engines_of, spark_service
from app.jobs.suspension import store_key
from app.kit.ids import new_id
from app.logs import configure_logging
from app.main import VERSION, Readiness, create_app
from app.purge.tick import tick_once
from app.retention import forget_rows, remove_expired_archives
from app.settings import Settings
from app.starting import (
    EXIT_BUSY,
    EXIT_CONFIGURATION,
    CannotStart,
    Misconfigured,
    bind,
    bring_to_head,
    check_settings,
    open_metadata,
    using,
)
from app.stores.findings import RecoveryRead
from app.stores.models import Store
from app.stores.service import end_past_suspensions, get_store, parallel_limits, suspended_stores

EXIT_OK = 0
EXIT_FAILED = 1
HEARTBEAT_S = 15.0
STOP_BUDGET_S = 13.5
"""For jobs and Spark together, of the 15 s that a stop may take."""
START_RETRY_S = 1.0
HOUSEKEEPING_EVERY_BEATS = 20
EPOCH_STORES_MAX = 200
OFFLINE = "lethe recover --offline"
logger = structlog.get_logger("lethe.server")


class Worker:
    """What `serve` and `worker` share: the instance, its runner and its housekeeping."""

    def __init__(self, settings: Settings, database: Database, *, role: str) -> None:
        self.settings = settings
        self.database = database
        self.role = role
        self.lock = InstanceLock(settings.data_dir)
        self._stopped = threading.Event()
        self.clock = clock = SystemClock()
        labels = frozenset({*settings.labels, f"instance/{self.lock.id}"})
        self.changed: Callable[[str], None] = lambda _job_id: None
        self.spark = spark_service(settings, clock, instance_id=self.lock.id)
        workshop = Workshop(HandsSource(settings, self.spark).take, process=new_id("prc"))
        self.runner = Runner(
            claimer=Claimer(
                instance_id=self.lock.id,
                labels=labels,
                lease_ttl_s=settings.lease_ttl_s,
                crash_loop_max=settings.crash_loop_max,
                recovered_at_once=settings.runner_jobs_max,
            ),
            kinds=task_kinds(engines_of(settings, clock, self.spark), workshop),
            database=database,
            settings=settings,
            clock=clock,
            parallel_limits=parallel_limits,
            suspended_stores=lambda db: suspended_stores(db, now=clock.now()),
            changed=lambda job_id: self.changed(job_id),
        )
        self._keeper = threading.Thread(target=self._keep, name="lethe-housekeeping", daemon=True)
        self._eraser = threading.Thread(target=self._look_at_erasers, name="lethe-eraser", daemon=True)

    def start(self) -> None:
        """Register, recover, claim."""
        with self.database.transaction() as db:
            register_instance(
                db,
                self.lock.id,
                role=self.role,
                version=VERSION,
                labels=self.settings.labels,
                now=self.database.now(db),
            )
        keep_backups(self.database, self.settings, clock=self.clock)
        self.runner.start()
        if self.spark is not None:
            self.spark.start()
        self._keeper.start()
        self._eraser.start()
        logger.info("started", role=self.role, instance=self.lock.id, labels=self.settings.labels)

    def start_when_possible(self) -> None:
        """Start, waiting for a metadata database that is away."""
        while not self._stopped.is_set():
            try:
                self.start()
            except (MetadataUnavailable, MetadataBusy) as error:
                logger.warning("metadata away", error=error.detail)
                self._stopped.wait(START_RETRY_S)
            else:
                return

    def stop(self) -> None:
        """Come to a safe point and give the leases back."""
        begun = time.monotonic()
        stopped = self.runner.stop(self.settings.stop_grace_s)
        if not stopped:
            logger.warning("jobs did not stop in time; their leases will run out")
        if self.spark is not None:
            self.spark.stop(STOP_BUDGET_S - (time.monotonic() - begun))
        self._stopped.set()
        for thread in (self._keeper, self._eraser):
            if thread.is_alive():
                thread.join(2.0)
        self._beat(stopped=True)
        self.lock.release()

    def _beat(self, *, stopped: bool = False) -> None:
        try:
            with self.database.transaction() as db:
                now = self.database.now(db)
                heartbeat(db, self.lock.id, now=now, stopped=stopped)
                for store in end_past_suspensions(db, now=now):
                    wake(db, store_key(store), now=now)
            if not stopped:
                keep_backups(self.database, self.settings, clock=self.clock)
        except (MetadataUnavailable, MetadataBusy) as error:
            logger.warning("metadata away", error=error.detail)

    def _keep(self) -> None:
        beats = 0
        while not self._stopped.wait(HEARTBEAT_S):
            self._beat()
            self._tick()
            if self.spark is not None:
                self.spark.retry_master()
            beats += 1
            if beats % HOUSEKEEPING_EVERY_BEATS == 1:
                self._clean()

    def _tick(self) -> None:
        """Submit the purges that recur and are due."""
        try:
            if tick_once(self.database, self.settings, now=self.clock.now(), changed=self._tell):
                self.runner.wake()
        except (MetadataUnavailable, MetadataBusy) as error:
            logger.warning("metadata away", error=error.detail)

    def _look_at_erasers(self) -> None:
        """Every few seconds: which cycles are due, and which parameters of erasers have changed."""
        while not self._stopped.wait(self.settings.erasure_tick_s):
            try:
                if Look(self.database, self.settings, self.clock.now(), self._tell).run():
                    self.runner.wake()
            except (MetadataUnavailable, MetadataBusy) as error:
                logger.warning("metadata away", error=error.detail)

    def _tell(self, changed: str) -> None:
        self.changed(changed)

    def _clean(self) -> None:
        try:
            self._certify()
            forget_rows(self.database)
            remove_expired_archives(self.database, self.settings, instance_id=self.lock.id)
        except (MetadataUnavailable, MetadataBusy, OSError) as error:
            logger.warning("housekeeping failed", error=str(error))

    def _certify(self) -> None:
        """Sign what nobody has asked for yet: the rows of a cycle go before its certificate does."""
        try:
            issue_missing(self.database, self.settings, instance_id=self.lock.id, now=self.clock.now())
        except SigningKeyUnusable as error:
            logger.error("certificates cannot be signed", error=error.detail)

    def every_store_is_ahead(self) -> bool:
        """Whether each registered store has seen a greater epoch than this metadata ever gave."""
        with self.database.reading() as db:
            stores = db.exec(select(Store).limit(EPOCH_STORES_MAX)).all()
        return bool(stores) and all(is_ahead(self.database, store, self.settings) for store in stores)


class Server(uvicorn.Server):
    """uvicorn that drains: on SIGTERM it answers 503 on /readyz until the jobs have stopped, then ends."""

    def __init__(self, config: uvicorn.Config, *, drain: Callable[[], None]) -> None:
        super().__init__(config)
        self._drain = drain
        self._draining: threading.Thread | None = None
        self.exit_code = EXIT_OK

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """First signal: drain; second: leave at once."""
        if self._draining is not None:
            self.force_exit = True
            self.should_exit = True
            return
        self._draining = threading.Thread(target=self._drain_and_exit, name="lethe-drain", daemon=True)
        self._draining.start()

    def _drain_and_exit(self) -> None:
        try:
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

    def leave(self, code: int) -> None:
        """End with a code; from any thread."""
        self.exit_code = code
        self.handle_exit(0, None)


def serve(settings: Settings) -> int:
    """Run API, runner and housekeeping until SIGTERM; returns the exit code."""
    configure_logging()
    os.umask(0o077)
    try:
        check_settings(settings)
        database = open_metadata(settings)
        with using(settings.data_dir):
            worker = Worker(settings, database, role="serve")
            bring_to_head(database, may_migrate=settings.migrate)
            with database.transaction() as db:
                ensure_admin_token(db, settings.data_dir, now=database.now(db))
        sockets = bind(settings.host, settings.port)
    except InstanceBusy as error:
        return _refuse(str(error), EXIT_BUSY)
    except CannotStart as error:
        return _refuse(str(error), error.exit_code)
    return _run_server(settings, database, worker, sockets)


def _run_server(settings: Settings, database: Database, worker: Worker, sockets: list[socket.socket]) -> int:
    spark = worker.spark
    readiness = Readiness(
        runner_alive=lambda: worker.runner.is_alive,
        spark_failed=lambda: spark is not None and spark.is_failed,
    )
    app = create_app(
        settings,
        database,
        readiness=readiness,
        wake_runner=worker.runner.wake,
        spark=spark,
        instance_id=worker.lock.id,
    )
    worker.changed = app.state.watch.notify

    def drain() -> None:
        readiness.stopping = True
        worker.stop()
        app.state.watch.end_waits()

    server = Server(
        uvicorn.Config(
            app,
            ssl_certfile=settings.tls_cert,
            ssl_keyfile=settings.tls_key,
            proxy_headers=settings.behind_proxy,
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=2,
        ),
        drain=drain,
    )
    threading.Thread(target=_start, args=(worker, server), name="lethe-start", daemon=True).start()
    server.run(sockets=sockets)
    database.close()
    return server.exit_code


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
        database = open_metadata(settings)
        if database.is_sqlite:
            raise Misconfigured("a worker needs the PostgreSQL metadata that its service uses")
        bring_to_head(database, may_migrate=False)
        with using(settings.data_dir):
            worker = Worker(settings, database, role="worker")
    except InstanceBusy as error:
        return _refuse(str(error), EXIT_BUSY)
    except CannotStart as error:
        return _refuse(str(error), error.exit_code)
    return _wait_for_signal(worker, database)


def _wait_for_signal(worker: Worker, database: Database) -> int:
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: ended.set())
    worker.start()
    ended.wait()
    worker.stop()
    database.close()
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
            db.add(
                AuditEvent(
                    id=new_id("aud"),
                    at=database.now(db),
                    actor=OFFLINE,
                    action="store.recover",
                    subject_type="store",
                    subject_id=store_id,
                    store=store_id,
                    detail=done.model_dump(),
                )
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

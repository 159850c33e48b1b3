"""The processes of Lethe: `serve`, `worker`, `migrate` and `recover --offline`; each returns its exit code.

Exit codes: 0, 64 usage, 70 bug, 75 try again (the data directory or the port is taken, the
metadata is away), 78 configuration.
"""

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import structlog
from fastapi import FastAPI

from app.auth.actions import Action
from app.auth.rows import audited
from app.auth.service import ensure_admin_token
from app.crew.api_process import answer
from app.crew.keeper import Crew
from app.crew.messages import Word
from app.crew.nursery import Nursery
from app.crew.serving import EXIT_OK, Server, server_of, tell_stopping
from app.db import Database
from app.errors import MetadataBusy, MetadataUnavailable, ServiceError
from app.handlers import recover as recover_target
from app.jobs.running.instances import InstanceBusy, InstanceLock
from app.kit.door import Listener
from app.kit.http.first import Part
from app.kit.shared_rates import SharedTable
from app.logs import configure_logging
from app.main import create_app
from app.readiness import Readiness, room_of
from app.replication.replica.replicas import note_supplied
from app.room import Room
from app.settings import Settings, variables_like_settings
from app.starting import (
    EXIT_BUSY,
    EXIT_CONFIGURATION,
    CannotStart,
    Misconfigured,
    bind,
    bind_first,
    bring_to_head,
    check_places,
    check_settings,
    check_verbs,
    open_metadata,
    start_tracing,
    tell_unknown_settings,
    tell_unusable_secrets,
    using,
)
from app.stores.checks.models import RecoveryRead
from app.stores.service import get_store
from app.tracing import TRACING
from app.working import Worker

EXIT_FAILED = 1
MEGABYTE = 1_048_576
ROOT = 0
OFFLINE = "lethe recover --offline"
NO_START = (InstanceBusy, CannotStart, MetadataUnavailable, MetadataBusy)
"""What ends a start. The metadata may be gone at every step of it, not only where it is opened."""
logger = structlog.get_logger("lethe.server")


class _Beside(NamedTuple):
    """What the first of several processes has for the others."""

    nursery: Nursery
    inner: socket.socket
    """Where it hears them."""


def serve(settings: Settings) -> int:
    """Run API, runner and housekeeping until SIGTERM; returns the exit code."""
    configure_logging()
    tell_unknown_settings(variables_like_settings())
    os.umask(0o077)
    try:
        check_verbs()
        check_settings(settings)
        nursery = Nursery(answer) if settings.api_processes > 1 else None  # before there is any thread
        start_tracing(settings)
        database = open_metadata(settings)
        with using(settings.data_dir):
            worker = Worker(settings, database, role="serve")
            bring_to_head(database, may_migrate=settings.migrate)
            tell_unusable_secrets(database, settings)
            with database.transaction() as db:
                token_file = ensure_admin_token(db, settings.data_dir, now=database.now(db))
            logger.info("the admin token, for commands and the console, is in a file", file=str(token_file))
            sockets = bind(settings.host, settings.port)
            beside = None if nursery is None else _Beside(nursery, bind_first(settings.data_dir))
    except NO_START as error:
        return _refuse_start(error)
    return _run_server(settings, database, worker, sockets, beside)


def _run_server(
    settings: Settings,
    database: Database,
    worker: Worker,
    sockets: list[socket.socket],
    beside: _Beside | None,
) -> int:
    readiness = _readiness_of(worker)
    table = None if beside is None else SharedTable.create()
    # Whoever came here has asked the metadata what time it is: nothing of the API's loop has to.
    app = create_app(
        settings,
        database,
        clock=worker.clock,
        readiness=readiness,
        wake_runner=worker.runner.wake,
        spark=worker.spark,
        instance_id=worker.lock.id,
        part=Part(table=table),
    )
    app.state.ear = worker.ear
    worker.changed = app.state.told
    crew: Crew | None = None

    def drain() -> None:
        readiness.stopping = True
        if crew is not None:
            crew.say(Word.DRAIN)
        worker.stop()
        app.state.watch.end_waits()
        app.state.feed.end_waits()
        app.state.change_feeds.end_waits()
        if crew is not None:
            crew.leave()

    if os.geteuid() == ROOT:
        logger.warning("this process is root: run it as an account of its own")
    server = server_of(app, settings, drain, is_inner=beside is not None)
    listened = sockets
    if beside is not None and table is not None:
        crew = _crew_of(worker, sockets, table, app, beside.nursery, partial(server.leave, EXIT_BUSY))
        listened = [beside.inner]
    threading.Thread(target=_start, args=(worker, server, crew), name="lethe-start", daemon=True).start()
    server.run(sockets=[Listener.over(each, server.door) for each in listened])
    TRACING.stop()
    database.close()
    logger.info("stopped", role=worker.role, exit_code=server.exit_code)
    return server.exit_code


def _readiness_of(worker: Worker) -> Readiness:
    spark, settings = worker.spark, worker.settings
    readiness = Readiness(
        runner_alive=lambda: worker.runner.is_alive,
        spark_failed=lambda: spark is not None and spark.is_failed,
        schema=lambda: worker.schema.found,
    )
    room_of(readiness, worker.database, Room(settings.data_dir, settings.data_free_min_mb * MEGABYTE))
    return readiness


def _crew_of(
    worker: Worker,
    sockets: list[socket.socket],
    table: SharedTable,
    app: FastAPI,
    nursery: Nursery,
    broken: Callable[[], None],
) -> Crew:
    """The processes that answer the API; this one answers them alone."""
    crew = Crew(
        worker.settings,
        nursery=nursery,
        instance_id=worker.lock.id,
        sockets=sockets,
        table=table,
        supplied=note_supplied,
        rings=worker.database.bell.set,
        broken=broken,
    )
    app.state.requests, app.state.feeds_shown = crew.figures, None
    if worker.ear is not None:
        app.state.ear = crew.ear_with(worker.ear)
    crew.start()
    return crew


def _start(worker: Worker, server: Server, crew: Crew | None) -> None:
    """Begin to take work; leave with 78 when every store has seen a newer metadata than this."""
    worker.start_when_possible()
    if crew is not None:
        crew.say(Word.STARTED)
    if worker.every_store_is_ahead():
        logger.error(
            "every store is ahead of this metadata (EPOCH_AHEAD): it is an old copy, or another Lethe has "
            "worked there. Stop the other one; then each store is taken back by the command",
            command=f"lethe recover STORE --offline --data-dir {worker.settings.data_dir}",
        )
        server.leave(EXIT_CONFIGURATION)


def run_worker(settings: Settings) -> int:
    """Run jobs without an API, on a PostgreSQL metadata, until SIGTERM; returns the exit code."""
    configure_logging()
    tell_unknown_settings(variables_like_settings())
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
    except NO_START as error:
        return _refuse_start(error)
    return _wait_for_signal(worker, database)


def _wait_for_signal(worker: Worker, database: Database) -> int:
    with _signals(signal.SIGTERM, signal.SIGINT) as came:
        # The metadata may have gone since it was looked at: it is waited for.
        threading.Thread(target=worker.start_when_possible, name="lethe-start", daemon=True).start()
        tell_stopping(came.recv(1)[0])
        worker.stop()
        TRACING.stop()
        database.close()
        logger.info("stopped", role=worker.role, exit_code=EXIT_OK)
    return EXIT_OK


@contextmanager
def _signals(*numbers: int) -> Iterator[socket.socket]:
    """A socket that brings the number of each signal that comes; the main thread's.

    One that the kernel gives to another thread, or that comes right before a wait, ends no wait for a lock.
    """
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.setblocking(False)
        wakes = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        former = {number: signal.signal(number, lambda _number, _frame: None) for number in numbers}
        try:
            yield ours
        finally:
            for number, before in former.items():
                signal.signal(number, before)
            signal.set_wakeup_fd(wakes)


def migrate(settings: Settings) -> int:
    """Bring the metadata to head; returns the exit code."""
    configure_logging()
    os.umask(0o077)
    try:
        database = open_metadata(settings)
        with using(settings.data_dir):
            bring_to_head(database, may_migrate=True)
    except NO_START as error:
        return _refuse_start(error)
    database.close()
    return EXIT_OK


def recover(settings: Settings, store_id: str) -> tuple[int, RecoveryRead | None]:
    """Take a store back while no service runs: where every store is ahead, none stays up to be asked.

    Returns: the exit code, and what was done.
    """
    configure_logging()
    os.umask(0o077)
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
    except NO_START as error:
        return _refuse_start(error), None
    except ServiceError as error:
        return _refuse(f"{error.code}: {error.detail}", EXIT_FAILED), None
    database.close()
    lock.release()
    return EXIT_OK, done


def _refuse_start(error: Exception) -> int:
    detail = error.detail if isinstance(error, ServiceError) else str(error)
    if isinstance(error, InstanceBusy):
        detail += "; use that one, or choose another --data-dir"
    return _refuse(detail, error.exit_code if isinstance(error, CannotStart) else EXIT_BUSY)


def _refuse(detail: str, code: int) -> int:
    print(f"lethe: {detail}", file=sys.stderr)
    return code

"""create_app(): routers, errors, and the life of the application."""

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated

import anyio.to_thread
import sqlalchemy as sa
import structlog
from fastapi import Depends, FastAPI, Request
from fastapi.middleware.cors import CORSMiddleware
from starlette.datastructures import State
from starlette.responses import Response

from app import errors
from app.archives.api import router as archives_router
from app.audit.api import router as chain_router
from app.auth.access import Requirement, requires
from app.auth.api import router as auth_router
from app.auth.gate import Gate
from app.auth.refusals import Refusals
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.auth.token_cache import TokenCache
from app.backups.api import router as backups_router
from app.clock import Clock, SystemClock
from app.console.mounting import add_console
from app.db import Database
from app.description import describe
from app.erase.api import router as erase_router
from app.erase.certificates.api import router as certificates_router
from app.events.api import router as events_router
from app.events.cleanup.api import router as cleanups_router
from app.events.cleanup.switch.api import router as switches_router
from app.events.health.api import router as health_router
from app.events.looks_api import router as looks_router
from app.events.preconditions.api import router as preconditions_router
from app.events.waits.api import router as waits_router
from app.extinction.api import router as extinction_router
from app.extinction.attest_api import router as attest_router
from app.extinction.forget_api import router as forget_router
from app.extinction.log_api import router as extinction_log_router
from app.extinction.models import STATUS_BODY_MAX_BYTES
from app.fleet.api import router as fleet_router
from app.fleet.events_api import router as fleet_events_router
from app.fleet.stream import FeedWatch
from app.handlers import STORE_HOOKS, secret_users
from app.hooks.api import router as webhooks_router
from app.hooks.deliveries_api import router as deliveries_router
from app.jobs.abandon_api import router as abandon_router
from app.jobs.api import router as jobs_router
from app.jobs.batches.api import router as batch_router
from app.jobs.engines.spark_api import router as spark_router
from app.jobs.throttle_api import router as throttle_router
from app.jobs.watch import JobWatch
from app.kit.conditional import IfNoneMatch, is_current
from app.kit.head import HeadAsGet
from app.kit.http.routes import RouteGroups
from app.kit.http.routing import add_routes
from app.kit.http.stalled_readers import StalledReaders
from app.kit.http.unread import refuse_unread
from app.kit.problems import problems
from app.kit.request_figures import RequestFigures
from app.kit.request_scope import BodyLimit, RequestScope
from app.kit.texts.distribution import installed_version
from app.metrics.exposition import render_metrics
from app.parameters.api import router as parameters_router
from app.protection.abort_api import router as abort_router
from app.protection.api import router as protection_router
from app.protection.waiting import WaitingRoom
from app.purge.api import router as purge_router
from app.readiness import Readiness, add_probes
from app.replication.agreements.api import router as agreements_router
from app.replication.agreements.compare_api import router as compare_router
from app.replication.agreements.sessions.api import router as replication_sessions_router
from app.replication.audits.api import router as audits_router
from app.replication.audits.digests_api import router as digests_router
from app.replication.consumer.api import router as replicas_router
from app.replication.consumer.dead_letters.api import router as dead_letters_router
from app.replication.consumer.dead_letters.parking import ParkingLot
from app.replication.consumer.discards.api import router as discard_router
from app.replication.consumer.keys.api import router as known_keys_router
from app.replication.decide.api import router as replication_router
from app.replication.peer.content_digest import AnswerDigests
from app.replication.replica.changes_api import router as changes_router
from app.replication.replica.entries_api import router as entries_router
from app.replication.replica.grouping import ChangeWriters
from app.replication.replica.replicas import close_idle_replicas
from app.replication.supplier.clock_api import router as clock_router
from app.replication.trimming.api import router as trimming_router
from app.schedules.api import router as schedules_router
from app.schedules.windows.api import router as windows_router
from app.secrets.api import router as secrets_router
from app.settings import Settings
from app.stores.api import router as stores_router
from app.stores.parameters_api import router as store_parameters_router
from app.tracing import TRACING
from app.verbs.purges import PURGINGS
from app.verbs.table import SUBMITTERS, bounds_of, scopes_of
from spark.replication.proofs.values import PROOF_MAX_BYTES

if TYPE_CHECKING:  # it needs the extra `spark`
    from app.jobs.engines.spark_service import SparkService

DESCRIPTION = (
    "Lethe makes replicated data go away safely: purges, erasure, extinction, event cleanup, and the "
    "replication that must come first. Errors are application/problem+json with a stable `code`."
)
logger = structlog.get_logger("lethe.http")
# Those that are asked most come first: of one group a request is matched with one after the other.
ROUTERS = (
    jobs_router,
    stores_router,
    store_parameters_router,
    purge_router,
    erase_router,
    certificates_router,
    extinction_router,
    attest_router,
    forget_router,
    extinction_log_router,
    archives_router,
    protection_router,
    abort_router,
    backups_router,
    replication_router,
    trimming_router,
    replicas_router,
    digests_router,
    dead_letters_router,
    audits_router,
    changes_router,
    entries_router,
    agreements_router,
    replication_sessions_router,
    compare_router,
    discard_router,
    clock_router,
    known_keys_router,
    events_router,
    looks_router,
    health_router,
    waits_router,
    preconditions_router,
    cleanups_router,
    switches_router,
    batch_router,
    abandon_router,
    throttle_router,
    spark_router,
    schedules_router,
    windows_router,
    parameters_router,
    secrets_router,
    webhooks_router,
    deliveries_router,
    fleet_router,
    fleet_events_router,
    auth_router,
    chain_router,
)


def create_app(
    settings: Settings,
    database: Database,
    *,
    clock: Clock | None = None,
    readiness: Readiness | None = None,
    wake_runner: Callable[[], None] = lambda: None,
    spark: "SparkService | None" = None,
    instance_id: str = "",
) -> FastAPI:
    """Build the application over an opened metadata database.

    Args:
        wake_runner: called when a job may have work or orders; the runner belongs to the caller.
        spark: the pool of this process; it belongs to the caller too.
        instance_id: of this process's data directory: a restart knows by it what its own past has left.
    """
    watch = JobWatch(database, interval_s=settings.watch_interval_s, waiters_max=settings.waiters_max)
    writers = ChangeWriters(database, settings, clock or SystemClock())
    refusals = Refusals(clock or SystemClock())
    feed = FeedWatch(database, clock or SystemClock(), listeners_max=settings.waiters_max)
    app = FastAPI(
        title="Lethe",
        version=installed_version(),
        description=DESCRIPTION,
        lifespan=_life(watch, feed, writers, refusals, settings),
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        dependencies=[Depends(refuse_unread)],
        redirect_slashes=False,  # it would lead where the client's Host header says
        telemetry=TRACING.for_requests,
    )
    told = _tells(watch.notify, feed.notify)
    changed = _tells(lambda _job_id: wake_runner(), told)
    state = app.state
    state.settings, state.database, state.watch, state.feed = settings, database, watch, feed
    state.tokens = TokenCache(database, (clock or SystemClock()).boottime_s)
    state.clock, state.readiness = clock or SystemClock(), readiness or Readiness()
    state.changed, state.told, state.change_writers = changed, told, writers
    state.spark, state.instance_id = spark, instance_id
    state.requests, state.refusals = RequestFigures(), refusals
    state.ear = None  # who starts a worker beside it says who listens
    _install_verbs(state)
    _install_guards(state, settings)
    errors.install(app)
    _add_middleware(app, settings)
    _add_routes(app)
    add_console(app, settings)
    return app


def _tells(*acts: Callable[[str], object]) -> Callable[[str], None]:
    """One that tells all of them of a job, one after the other."""

    def told(job_id: str) -> None:
        for act in acts:
            act(job_id)

    return told


def _life(
    watch: JobWatch, feed: FeedWatch, writers: ChangeWriters, refusals: Refusals, settings: Settings
) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = settings.api_threads_max
        await watch.start()
        await feed.start()
        write = partial(_write_refusals, refusals, app.state.database)
        writing = asyncio.create_task(_now_and_then(write, settings.refusals_written_s))
        yield
        writing.cancel()
        await asyncio.to_thread(write)
        writers.close()
        close_idle_replicas()
        await feed.close()
        await watch.close()

    return lifespan


async def _now_and_then(act: Callable[[], None], interval_s: float) -> None:
    while True:
        await asyncio.sleep(interval_s)
        await asyncio.to_thread(act)


def _write_refusals(refusals: Refusals, database: Database) -> None:
    try:
        refusals.write(database)
    except (errors.MetadataBusy, errors.MetadataUnavailable, sa.exc.SQLAlchemyError) as error:
        logger.warning("refused requests cannot be written to the audit now", error=type(error).__name__)


def _install_verbs(state: State) -> None:
    """What the floors below are told of the verbs and stores above them."""
    state.store_hooks, state.batch_submitters = STORE_HOOKS, SUBMITTERS
    state.scopes_of, state.purgings, state.secret_users = scopes_of, PURGINGS, secret_users
    state.bounds_of = bounds_of


def _install_guards(state: State, settings: Settings) -> None:
    """Who may come in, and how many may wait."""
    state.waiting_room = WaitingRoom(settings.waiters_max)
    state.parking = _parking(settings)
    state.oidc_keys = None
    if (oidc := settings.oidc).issuer is not None:
        from app.auth.oidc.keys import Keys, Provider

        state.oidc_keys = Keys(oidc, Provider(oidc).fetch)


def _parking(settings: Settings) -> ParkingLot:
    return ParkingLot(
        in_flight=settings.replication_in_flight,
        batches_max=settings.replication_batches_max,
        per_token_max=settings.replication_batches_per_token_max,
        wait_max_s=settings.replication_parking_s,
    )


def _add_middleware(app: FastAPI, settings: Settings) -> None:
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
            allow_headers=["*"],
            expose_headers=["ETag", "Location", "Retry-After", "X-Request-ID", "Idempotency-Replayed"],
        )
    app.add_middleware(HeadAsGet)
    app.add_middleware(StalledReaders, stalled_s=settings.stream_stalled_s)
    app.add_middleware(Gate, settings=settings)
    app.add_middleware(
        RequestScope,
        figures=app.state.requests,
        body_max_bytes=settings.request_body_max_bytes,
        body_limits=(
            BodyLimit(
                re.compile(r"/v1/replicas/[^/]+/sessions/[^/]+/batches"),
                settings.replication_batch_max_bytes + PROOF_MAX_BYTES,
                "BATCH_TOO_LARGE",
            ),
            BodyLimit(re.compile(r"/v1/stores/[^/]+/changes"), settings.replication_bulk_max_bytes),
            BodyLimit(re.compile(r"/v1/stores/[^/]+/extinction-status:query"), STATUS_BODY_MAX_BYTES),
        ),
    )
    app.add_middleware(AnswerDigests)


def _add_routes(app: FastAPI) -> None:
    for router in ROUTERS:
        add_routes(app, router)
    add_probes(app)
    _add_documents(app)
    app.router.middleware_stack = RouteGroups(app.router)


def _add_documents(app: FastAPI) -> None:
    @cache
    def rendered() -> tuple[bytes, str]:
        """The description and its version; to make it takes most of a second, and it does not change."""
        body = json.dumps(describe(app), ensure_ascii=False, separators=(",", ":")).encode()
        return body, hashlib.sha256(body).hexdigest()[:32]

    @app.get(
        "/metrics",
        summary="Figures for Prometheus",
        operation_id="metrics",
        tags=["operation"],
        responses=problems() | {200: {"content": {"text/plain": {}}, "description": "Exposition format"}},
        response_class=Response,
    )
    def metrics(request: Request, caller: Annotated[Caller, Depends(requires(Scope.JOBS_READ))]) -> Response:
        """Read from the metadata, so that every instance tells the same; lethe_spark_* is its own.

        A token that is limited to stores sees the figures of these, and nothing of the service itself.
        """
        text = render_metrics(
            request.app.state.database,
            alive_within_s=request.app.state.settings.lease_ttl_s,
            spark=request.app.state.spark,
            requests=request.app.state.requests,
            ear=request.app.state.ear,
            stores=caller.visible_stores(),
        )
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get(
        "/openapi.json",
        summary="This description",
        operation_id="get_openapi",
        tags=["operation"],
        dependencies=[Depends(Requirement(()))],
        responses=problems()
        | {
            200: {"content": {"application/json": {}}, "description": "OpenAPI 3.1"},
            304: {"description": "Still the document of If-None-Match"},
        },
        response_class=Response,
    )
    def openapi_document(if_none_match: IfNoneMatch = None) -> Response:
        """OpenAPI 3.1 of this very service, for any token."""
        body, version = rendered()
        headers = {"ETag": f'"{version}"'}
        if is_current(if_none_match, version):
            return Response(status_code=304, headers=headers)
        return Response(body, media_type="application/json", headers=headers)

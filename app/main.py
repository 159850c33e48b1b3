"""create_app(): routers, errors, and the life of the application."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated

import anyio.to_thread
import sqlalchemy as sa
import structlog
from fastapi import Depends, FastAPI, Request
from fastapi.middleware.cors import CORSMiddleware
from starlette.datastructures import State
from starlette.responses import Response

from app import errors
from app.auth.access import Requirement, requires
from app.auth.gate import Gate
from app.auth.refusals import Refusals
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.auth.token_cache import TokenCache
from app.clock import Clock, SystemClock
from app.console.mounting import add_console
from app.db import Database
from app.description import rendered
from app.extinction.models import STATUS_BODY_MAX_BYTES
from app.fleet.stream import FeedWatch
from app.handlers import STORE_HOOKS, secret_users
from app.jobs.watch import JobWatch
from app.kit.conditional import IfNoneMatch, is_current
from app.kit.head import HeadAsGet
from app.kit.http.first import ALONE, Part
from app.kit.http.routes import RouteGroups
from app.kit.http.routing import add_routes
from app.kit.http.stalled_readers import StalledReaders
from app.kit.http.unread import refuse_unread
from app.kit.problems import problems
from app.kit.request_figures import RequestFigures
from app.kit.request_scope import BodyLimit, RequestScope
from app.kit.texts.distribution import installed_version
from app.metrics.exposition import render_metrics
from app.protection.waiting import WaitingRoom
from app.readiness import Readiness, add_probes
from app.replication.consumer.dead_letters.parking import ParkingLot
from app.replication.feed.watch import ChangeFeeds
from app.replication.peer.content_digest import AnswerDigests
from app.replication.replica.grouping import ChangeWriters
from app.replication.replica.models import ENTRY_BODY_MAX_BYTES
from app.replication.replica.replicas import close_idle_replicas
from app.routers import ROUTERS
from app.settings import Settings
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


def create_app(
    settings: Settings,
    database: Database,
    *,
    clock: Clock | None = None,
    readiness: Readiness | None = None,
    wake_runner: Callable[[], None] = lambda: None,
    spark: "SparkService | None" = None,
    instance_id: str = "",
    part: Part = ALONE,
) -> FastAPI:
    """Build the application over an opened metadata database.

    Args:
        wake_runner: called when a job may have work or orders; the runner belongs to the caller.
        spark: the pool of this process; it belongs to the caller too.
        instance_id: of this process's data directory: a restart knows by it what its own past has left.
        part: where several processes are one service.
    """
    watch = JobWatch(database, interval_s=settings.watch_interval_s, waiters_max=settings.waiters_max)
    clock = clock or SystemClock()
    change_feeds = ChangeFeeds(database, settings, clock)
    writers = ChangeWriters(database, settings, clock, told=change_feeds.notify)
    refusals = Refusals(clock, table=part.table)
    feed = FeedWatch(database, clock, listeners_max=settings.waiters_max)
    app = FastAPI(
        title="Lethe",
        version=installed_version(),
        description=DESCRIPTION,
        lifespan=_life(watch, feed, change_feeds, writers, refusals, settings),
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        dependencies=[Depends(refuse_unread)],
        redirect_slashes=False,  # it would lead where the client's Host header says
        telemetry=TRACING.for_requests,
    )
    state, told = app.state, _tells(watch.notify, feed.notify)
    state.settings, state.database, state.watch, state.feed = settings, database, watch, feed
    state.tokens, state.clock, state.refusals = TokenCache(database, clock.boottime_s), clock, refusals
    state.change_writers, state.change_feeds, state.ear = writers, change_feeds, None  # a worker has an ear
    state.feeds_shown = change_feeds  # in its figures; None: those of others tell of them
    state.changed, state.told = _tells(lambda _job_id: wake_runner(), told), told
    state.instance_id, state.owner, state.spark = instance_id, part.owner(instance_id), spark
    state.readiness, state.requests = readiness or Readiness(), RequestFigures()
    _install_verbs(state)
    _install_guards(state, settings)
    _add_middleware(app, settings, part)
    _add_routes(app, settings)
    return app


def _tells(*acts: Callable[[str], object]) -> Callable[[str], None]:
    """One that tells all of them of a job, one after the other."""

    def told(job_id: str) -> None:
        for act in acts:
            act(job_id)

    return told


def _life(
    watch: JobWatch,
    feed: FeedWatch,
    change_feeds: ChangeFeeds,
    writers: ChangeWriters,
    refusals: Refusals,
    settings: Settings,
) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = settings.api_threads_max
        await watch.start()
        await feed.start()
        await change_feeds.start()
        write = partial(_write_refusals, refusals, app.state.database)
        writing = asyncio.create_task(_now_and_then(write, settings.refusals_written_s))
        yield
        writing.cancel()
        await asyncio.to_thread(write)
        writers.close()
        close_idle_replicas()
        await change_feeds.close()
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


def _add_middleware(app: FastAPI, settings: Settings, part: Part) -> None:
    errors.install(app)
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
    app.add_middleware(Gate, settings=settings, table=part.table)
    if part.first is not None:
        from app.kit.http.handing_over import HandOver

        app.add_middleware(HandOver, door=part.first)
    app.add_middleware(
        RequestScope,
        is_told=part.table is None or part.first is not None,
        figures=app.state.requests,
        body_max_bytes=settings.request_body_max_bytes,
        body_limits=(
            BodyLimit(
                re.compile(r"/v1/replicas/[^/]+/sessions/[^/]+/batches"),
                settings.replication_batch_max_bytes + PROOF_MAX_BYTES,
                "BATCH_TOO_LARGE",
            ),
            BodyLimit(re.compile(r"/v1/stores/[^/]+/changes"), settings.replication_bulk_max_bytes),
            BodyLimit(re.compile(r"/v1/stores/[^/]+/entries/[^/]+/[^/]+"), ENTRY_BODY_MAX_BYTES),
            BodyLimit(re.compile(r"/v1/stores/[^/]+/extinction-status:query"), STATUS_BODY_MAX_BYTES),
            BodyLimit(
                re.compile(r"/console/.*", re.DOTALL),
                settings.request_body_max_bytes,
                is_refused_at_once=False,
            ),
        ),
    )
    app.add_middleware(AnswerDigests)


def _add_routes(app: FastAPI, settings: Settings) -> None:
    for router in ROUTERS:
        add_routes(app, router)
    add_probes(app)
    _add_metrics(app)
    _add_documents(app)
    app.router.middleware_stack = RouteGroups(app.router)
    add_console(app, settings)


def _add_metrics(app: FastAPI) -> None:
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
            change_feeds=request.app.state.feeds_shown,
            stores=caller.visible_stores(),
        )
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


def _add_documents(app: FastAPI) -> None:
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
        body, version = rendered(app)
        headers = {"ETag": f'"{version}"'}
        if is_current(if_none_match, version):
            return Response(status_code=304, headers=headers)
        return Response(body, media_type="application/json", headers=headers)

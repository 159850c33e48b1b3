"""create_app(): routers, errors, and the life of the application."""

import hashlib
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cache
from importlib.metadata import version
from typing import Annotated

import anyio.to_thread
from fastapi import Depends, FastAPI, Request
from fastapi.dependencies.models import Dependant
from fastapi.middleware.cors import CORSMiddleware
from fastapi.routing import APIRoute
from starlette.datastructures import State
from starlette.responses import Response

from app import errors
from app.archives.api import router as archives_router
from app.auth.access import Requirement, requires
from app.auth.api import router as auth_router
from app.auth.gate import Gate
from app.auth.oidc.keys import Keys, Provider
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.backups.api import router as backups_router
from app.clock import Clock, SystemClock
from app.db import Database
from app.description import describe
from app.erase.api import router as erase_router
from app.erase.certificates.api import router as certificates_router
from app.events.api import router as events_router
from app.events.cleanup.api import router as cleanups_router
from app.events.cleanup.switch.api import router as switches_router
from app.events.preconditions.api import router as preconditions_router
from app.events.waits.api import router as waits_router
from app.extinction.api import router as extinction_router
from app.extinction.attest_api import router as attest_router
from app.extinction.forget_api import router as forget_router
from app.extinction.log_api import router as extinction_log_router
from app.extinction.models import STATUS_BODY_MAX_BYTES
from app.handlers import STORE_HOOKS, secret_users
from app.hooks.api import router as webhooks_router
from app.hooks.deliveries_api import router as deliveries_router
from app.jobs.abandon_api import router as abandon_router
from app.jobs.api import router as jobs_router
from app.jobs.batches.api import router as batch_router
from app.jobs.engines.spark_api import router as spark_router
from app.jobs.engines.spark_service import SparkService
from app.jobs.throttle_api import router as throttle_router
from app.jobs.watch import JobWatch
from app.kit.conditional import IfNoneMatch, is_current
from app.kit.head import HeadAsGet
from app.kit.json_bodies import TwiceNamed, loads
from app.kit.problems import problems
from app.kit.request_figures import RequestFigures
from app.kit.request_scope import BodyLimit, RequestScope
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
from app.verbs.purges import PURGINGS
from app.verbs.table import SUBMITTERS, scopes_of, takes_throttle
from spark.replication.proofs.values import PROOF_MAX_BYTES

DESCRIPTION = (
    "Lethe makes replicated data go away safely: purges, erasure, extinction, event cleanup, and the "
    "replication that must come first. Errors are application/problem+json with a stable `code`."
)
VERSION = version("lethe")
ROUTERS = (
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
    waits_router,
    preconditions_router,
    cleanups_router,
    switches_router,
    batch_router,
    jobs_router,
    abandon_router,
    throttle_router,
    spark_router,
    schedules_router,
    windows_router,
    parameters_router,
    secrets_router,
    webhooks_router,
    deliveries_router,
    auth_router,
)


def create_app(
    settings: Settings,
    database: Database,
    *,
    clock: Clock | None = None,
    readiness: Readiness | None = None,
    wake_runner: Callable[[], None] = lambda: None,
    spark: SparkService | None = None,
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
    app = FastAPI(
        title="Lethe",
        version=VERSION,
        description=DESCRIPTION,
        lifespan=_life(watch, writers, threads_max=settings.api_threads_max),
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,  # it would lead where the client's Host header says
    )

    def changed(job_id: str) -> None:
        wake_runner()
        watch.notify(job_id)

    state = app.state
    state.settings, state.database, state.watch = settings, database, watch
    state.clock = clock or SystemClock()
    state.readiness = readiness or Readiness()
    state.changed, state.change_writers = changed, writers
    state.spark, state.instance_id = spark, instance_id
    state.requests = RequestFigures()
    _install_verbs(state)
    _install_guards(state, settings)
    errors.install(app)
    _add_middleware(app, settings)
    _add_routes(app)
    return app


def _life(
    watch: JobWatch, writers: ChangeWriters, *, threads_max: int
) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = threads_max
        await watch.start()
        yield
        writers.close()
        close_idle_replicas()
        await watch.close()

    return lifespan


def _install_verbs(state: State) -> None:
    """What the floors below are told of the verbs and stores above them."""
    state.store_hooks, state.batch_submitters = STORE_HOOKS, SUBMITTERS
    state.scopes_of, state.purgings, state.secret_users = scopes_of, PURGINGS, secret_users
    state.takes_throttle = takes_throttle


def _install_guards(state: State, settings: Settings) -> None:
    """Who may come in, and how many may wait."""
    state.waiting_room = WaitingRoom(settings.waiters_max)
    state.parking = _parking(settings)
    oidc = settings.oidc
    state.oidc_keys = None if oidc.issuer is None else Keys(oidc, Provider(oidc).fetch)


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


def _query_names(dependant: Dependant) -> set[str]:
    """The query parameters of a route and of all that it depends on."""
    own = {parameter.alias for parameter in dependant.query_params}
    return own.union(*(_query_names(child) for child in dependant.dependencies))


def _refuse_unknown_query(request: Request) -> None:
    """Refuse a change whose query has a name that nobody reads: a typo in `validate_only` must not purge."""
    route = request.scope.get("route")
    if request.method in ("GET", "HEAD") or not isinstance(route, APIRoute):
        return
    unknown = sorted(set(request.query_params) - _query_names(route.dependant))
    if unknown:
        wrong = [
            {"pointer": f"query:{name[:100]}", "detail": "there is no such parameter"} for name in unknown
        ]
        raise errors.InvalidRequest("a query parameter is not known", errors=wrong)


async def _refuse_doubled_keys(request: Request) -> None:
    """Refuse JSON in which a key is given twice; FastAPI has read it and kept the last value."""
    body = getattr(request, "_body", b"")
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if not body or not (content_type == "application/json" or content_type.endswith("+json")):
        return
    try:
        loads(body)
    except TwiceNamed as error:
        raise errors.InvalidJson(str(error)) from error
    except (ValueError, RecursionError):
        return  # whoever reads it says what is wrong with it


def _add_routes(app: FastAPI) -> None:
    each = [Depends(_refuse_unknown_query), Depends(_refuse_doubled_keys)]
    for router in ROUTERS:
        app.include_router(router, dependencies=each)
    add_probes(app)
    _add_documents(app)


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
        settings: Settings = request.app.state.settings
        text = render_metrics(
            request.app.state.database,
            alive_within_s=settings.lease_ttl_s,
            spark=request.app.state.spark,
            requests=request.app.state.requests,
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

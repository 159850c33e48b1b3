"""`/v1/spark-pool`: the pooled Spark session of the instance that answers."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Request
from sqlmodel import Session
from starlette.responses import Response

from app.auth.access import requires_unlimited, settings_of
from app.auth.actions import Action
from app.auth.mutation import Answer, IdempotencyKeyHeader, mutate
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.jobs.engines.choice import missing_spark
from app.jobs.models import PoolAction, PoolRecycle, SparkPoolRead
from app.kit.http.routing import new_router
from app.kit.problems import problems
from app.settings import EngineChoice

if TYPE_CHECKING:  # it needs the extra `spark`
    from app.jobs.engines.spark_service import SparkService

router = new_router(tags=["operation"])
Reader = Annotated[Caller, Depends(requires_unlimited(Scope.JOBS_READ))]
Admin = Annotated[Caller, Depends(requires_unlimited(Scope.ADMIN))]


def spark_of(request: Request) -> "SparkService | None":
    """The Spark side of this process."""
    found: SparkService | None = request.app.state.spark
    return found


def check_room(request: Request, engine: EngineChoice | None) -> None:
    """Raise PoolQueueFull when a request names Spark, and enough jobs of this process wait for it already."""
    spark = spark_of(request)
    if engine == "SPARK" and spark is not None:
        spark.check_room()


def _enabled(request: Request) -> "SparkService":
    spark = spark_of(request)
    if spark is None:
        raise missing_spark(settings_of(request))
    return spark


@router.get(
    "/v1/spark-pool",
    response_model=SparkPoolRead,
    summary="Look at the Spark pool",
    operation_id="get_spark_pool",
    responses=problems(409),
)
def get_pool(request: Request, caller: Reader) -> SparkPoolRead:
    """State, slots, queue, what runs, counters and limits, of the instance that answers."""
    return _enabled(request).read()


def _change(
    request: Request,
    caller: Caller,
    body: PoolAction | PoolRecycle,
    verb: str,
    act: Callable[["SparkService"], None],
) -> Response:
    """Order something; the pool carries it out in the background.

    An order whose transaction fails may have been heard all the same: given again it changes nothing.
    """
    spark = _enabled(request)

    def effect(_db: Session) -> Answer:
        act(spark)
        return Answer(body=spark.read(), status=200, audit=body.model_dump())

    instance = spark.read().instance
    return mutate(
        request,
        caller,
        effect,
        action=Action(f"spark-pool.{verb}"),
        subject=("spark_pool", instance),
        body=body,
    )


@router.post(
    "/v1/spark-pool:recycle",
    response_model=SparkPoolRead,
    summary="Replace the JVM",
    operation_id="recycle_spark_pool",
    responses=problems(409),
)
def post_recycle(
    body: PoolRecycle, request: Request, caller: Admin, idempotency_key: IdempotencyKeyHeader = None
) -> Response:
    """Start another JVM once what runs has ended; also the way out of FAILED. Waiting jobs stay."""
    return _change(request, caller, body, "recycle", lambda spark: spark.recycle(force=body.force))


@router.post(
    "/v1/spark-pool:drain",
    response_model=SparkPoolRead,
    summary="Give no more slots",
    operation_id="drain_spark_pool",
    responses=problems(409),
)
def post_drain(
    body: PoolAction, request: Request, caller: Admin, idempotency_key: IdempotencyKeyHeader = None
) -> Response:
    """What runs goes on; jobs that need Spark become WAITING, AUTO runs inline, until `:resume`."""
    return _change(request, caller, body, "drain", lambda spark: spark.pool.drain())


@router.post(
    "/v1/spark-pool:resume",
    response_model=SparkPoolRead,
    summary="Give slots again",
    operation_id="resume_spark_pool",
    responses=problems(409),
)
def post_resume(
    body: PoolAction, request: Request, caller: Admin, idempotency_key: IdempotencyKeyHeader = None
) -> Response:
    """Take back `:drain`."""
    return _change(request, caller, body, "resume", lambda spark: spark.pool.resume())

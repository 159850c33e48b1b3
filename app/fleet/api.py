"""`/v1/overview`, and the series of a store."""

from collections import defaultdict
from datetime import timedelta
from typing import Annotated, Final, Literal

from fastapi import Depends, Query

from app.auth.access import ClockDep, DatabaseDep, SettingsDep, requires
from app.auth.rows import StoreName
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.errors import Unprocessable
from app.figures.rows import SeriesPoint
from app.figures.series import ADDED, DAY, MONTH, Series, piece_of, read_points, unit_of
from app.fleet.attention import SHOWN_DEFAULT, SHOWN_MAX, Limits, Shown
from app.fleet.models import AttentionCode, OverviewRead, SeriesPointRead, SeriesRead, StoreSeries
from app.fleet.overview import OverviewFilter, overview
from app.kit.durations import parse_duration
from app.kit.http.routing import new_router
from app.kit.pagination import PageToken
from app.kit.problems import problems
from app.kit.values import Text
from app.stores.api import StoreId, read_row
from app.stores.labels import parse_labels
from app.stores.models import StoreKind

router = new_router(tags=["fleet"])
Reader = Annotated[Caller, Depends(requires(Scope.JOBS_READ))]
StoreReader = Annotated[Caller, Depends(requires(Scope.STORES_READ))]
PAGE_DEFAULT: Final = 25
PAGE_MAX: Final = 200
WAIT_LIMIT: Final = "PT1H"
WAIT_MAX: Final = timedelta(days=365)
LENGTHS: Final = {"DAY": DAY, "MONTH": MONTH}


def _wait_limit(text: str) -> timedelta:
    try:
        found = parse_duration(text)
    except (ValueError, OverflowError):
        raise _no_wait() from None
    if not timedelta(0) <= found <= WAIT_MAX:
        raise _no_wait()
    return found


def _no_wait() -> Unprocessable:
    detail = f"waits_longer_than: an ISO 8601 duration such as PT1H, of {WAIT_MAX.days} days at most"
    return Unprocessable(detail, code="INVALID_REQUEST")


@router.get(
    "/v1/overview",
    response_model=OverviewRead,
    summary="All stores at one look",
    operation_id="get_overview",
    responses=problems(),
)
def get_overview(
    caller: Reader,
    database: DatabaseDep,
    settings: SettingsDep,
    clock: ClockDep,
    store: Annotated[list[StoreName], Query(max_length=100)] = [],  # noqa: B006
    kind: Annotated[list[StoreKind], Query(max_length=10)] = [],  # noqa: B006
    label: Annotated[list[Text], Query(max_length=20, description="NAME=VALUE; all must match.")] = [],  # noqa: B006
    waits_longer_than: Annotated[
        Text, Query(max_length=40, description="From when on a wait needs somebody; ISO 8601.")
    ] = WAIT_LIMIT,
    attention_code: Annotated[
        list[AttentionCode], Query(max_length=20, description="What needs somebody: of these codes alone.")
    ] = [],  # noqa: B006
    attention_max: Annotated[
        int, Query(ge=0, le=SHOWN_MAX, description="So much of what needs somebody.")
    ] = SHOWN_DEFAULT,
    page_size: Annotated[int, Query(ge=1, le=PAGE_MAX, description="Stores of one page.")] = PAGE_DEFAULT,
    page_token: PageToken = "",
) -> OverviewRead:
    """What needs somebody first, the counters, and a page of stores with what they do; no target is asked.

    Store, kind and label narrow the page and what needs somebody, which then has no jobs of no store and no
    instances. Counters are of all that the token may see.
    A token that is limited to stores sees those. `age`: how old a store's health is (`store.check.period`).
    """
    return overview(
        database,
        caller,
        OverviewFilter(store, kind, parse_labels(label)),
        limits=Limits(_wait_limit(waits_longer_than), timedelta(seconds=settings.lease_ttl_s)),
        shown=Shown(attention_max, attention_code),
        now=clock.now(),
        page_size=page_size,
        page_token=page_token,
    )


@router.get(
    "/v1/stores/{store_id}/series",
    response_model=StoreSeries,
    summary="What a store did of late",
    operation_id="get_store_series",
    responses=problems(404),
)
def get_series(
    store_id: StoreId,
    caller: StoreReader,
    database: DatabaseDep,
    clock: ClockDep,
    window: Annotated[
        Literal["DAY", "MONTH"], Query(description="24 hours by PT10M, or 30 days by PT6H.")
    ] = "DAY",
    name: Annotated[list[Series], Query(max_length=10)] = [],  # noqa: B006
) -> StoreSeries:
    """For small pictures: rows and bytes removed, backlog, lag, how long aborts took; each counted once.

    `backlog` has a value for each check of the store: the rows of its tables, as the target estimates them.
    SLONY: `backlog` (in events) and `lag_seconds` have one for each check and each job that looks: of the
    receiver that is furthest behind.
    """
    kind = read_row(database, store_id, caller).kind
    length, now = LENGTHS[window], clock.now()
    with database.reading() as db:
        points = read_points(db, store_id, length, now=now)
    by_name: dict[str, list[SeriesPointRead]] = defaultdict(list)
    for point in points:
        by_name[point.name].append(_point(point))
    return StoreSeries(
        store=store_id,
        window=window,
        step=timedelta(seconds=length.step_s),
        begins_at=piece_of(now - length.shown, length.step_s) + timedelta(seconds=length.step_s),
        ends_at=now,
        series=[
            SeriesRead(name=each, unit=unit_of(each, kind), adds_up=each in ADDED, points=by_name[each.value])
            for each in Series
            if not name or each in name
        ],
    )


def _point(point: SeriesPoint) -> SeriesPointRead:
    return SeriesPointRead(
        at=point.at,
        sum=point.total,
        mean=point.total / max(1, point.number),
        max=point.most,
        last=point.last,
    )

"""What recurs and has not succeeded: since when each store owes a success of a verb.

Rules:
- a verb recurs on a store while a schedule of this store, a parameter or an agreement says so;
- a success is owed from the first end without one, or the first refusal of a schedule, after the last success
  (of a schedule: since it is there), however often it recurs, and also where there was never any success.
  What still runs or waits owes nothing;
- each pair of store and verb is one step in an index: how many jobs there are changes nothing.
"""

from datetime import datetime
from typing import Any

from prometheus_client.core import GaugeMetricFamily, Metric
from sqlalchemy import String, and_, case, cast, func, literal, null, or_, select, union
from sqlmodel import col

from app.db import UtcDateTime
from app.erase.rows import ErasureStore
from app.erase.service import JOB_ERASURE
from app.events.cleanup.models import JOB_CLEANUP
from app.figures.rows import Figure
from app.figures.sums import Name
from app.jobs.rows import Job
from app.jobs.states import TERMINAL, JobState
from app.metrics.scope import Scrape
from app.replication.agreements.sessions.service import JOB_SESSION
from app.replication.rows import Agreement, AgreementState
from app.schedules.models import Outcome
from app.schedules.rows import Schedule, ScheduleFiring
from app.sweeps.purging import JOB_PURGE
from app.sweeps.rows import SweepTick

WITHOUT_SUCCESS = sorted(TERMINAL - {JobState.SUCCEEDED})


def owed_successes(scrape: Scrape) -> Metric:
    """Since when a success is owed, of what recurs and owes one."""
    family = GaugeMetricFamily(
        "lethe_success_owed_timestamp_seconds",
        "When what recurs on the store first ended without a success, or was refused, after its last one, as"
        " Unix time; nothing where none is owed.",
        labels=["store", "verb"],
    )
    owed: dict[tuple[str, str], datetime] = {}
    for query in (_of_jobs(scrape), _of_refusals(scrape)):
        for store, verb, since in scrape.db.execute(query).all():
            if since is not None:
                owed[store, verb] = min(since, owed.get((store, verb), since))
    for (store, verb), since in sorted(owed.items()):
        family.add_metric([store, verb], since.timestamp())
    return family


def _last_success(store: Any, verb: Any) -> Any:
    figure = select(col(Figure.at)).where(
        col(Figure.name) == Name.LAST_SUCCESS.value, col(Figure.store) == store, col(Figure.label) == verb
    )
    return figure.correlate_except(Figure).scalar_subquery()


def _of_jobs(scrape: Scrape) -> Any:
    pairs = union(*_sources()).subquery()
    last = _last_success(pairs.c.store, pairs.c.verb)
    failed = select(func.min(Job.finished_at)).where(
        col(Job.kind) == pairs.c.verb,
        col(Job.state).in_(WITHOUT_SUCCESS),
        col(Job.store) == pairs.c.store,
        or_(last.is_(None), col(Job.finished_at) > last),
        or_(pairs.c.there_since.is_(None), col(Job.finished_at) >= pairs.c.there_since),
    )
    since = failed.correlate(pairs).scalar_subquery()
    return select(pairs.c.store, pairs.c.verb, since).where(scrape.sees(pairs.c.store))


def _sources() -> list[Any]:
    """Store and verb of all that recurs, and since when where that is known."""
    of_tick = case((col(SweepTick.kind) == JOB_CLEANUP, JOB_CLEANUP), else_=JOB_PURGE)
    unknown = cast(null(), UtcDateTime)

    def source(store: Any, verb: Any, *conditions: Any, there_since: Any = unknown) -> Any:
        names = store.label("store"), cast(verb, String).label("verb"), there_since.label("there_since")
        return select(*names).where(*conditions)

    return [
        source(
            col(Schedule.store),
            col(Schedule.verb),
            col(Schedule.store).is_not(None),
            ~col(Schedule.is_paused),
            there_since=col(Schedule.created_at),
        ),
        source(col(SweepTick.store), of_tick),
        source(col(ErasureStore.store), literal(JOB_ERASURE), col(ErasureStore.seen_enabled).is_(True)),
        source(
            col(Agreement.store),
            literal(JOB_SESSION),
            col(Agreement.interval_s).is_not(None),
            col(Agreement.state) != AgreementState.REMOVED,
        ),
    ]


def _of_refusals(scrape: Scrape) -> Any:
    """Of schedules whose last due time made no job: the first of these refusals."""
    last = _last_success(col(Schedule.store), col(Schedule.verb))
    refused = select(func.min(ScheduleFiring.due_at)).where(
        col(ScheduleFiring.schedule_id) == col(Schedule.id),
        col(ScheduleFiring.outcome) == Outcome.REFUSED.value,
        or_(last.is_(None), col(ScheduleFiring.due_at) > last),
    )
    since = refused.correlate(Schedule).scalar_subquery()
    is_refused = and_(~col(Schedule.is_paused), col(Schedule.last_outcome) == Outcome.REFUSED.value)
    query = select(col(Schedule.store), col(Schedule.verb), since).where(
        is_refused, scrape.sees(Schedule.store)
    )
    return query.where(col(Schedule.store).is_not(None))

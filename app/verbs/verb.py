"""What the service knows of a kind of job: one row of the table of verbs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, Protocol

from pydantic import BaseModel

from app.auth.scopes import Scope
from app.db import Database
from app.erase.cycle.attempt import Workshop
from app.jobs.batches.service import ChildSubmitter
from app.jobs.engines.choice import Engines
from app.jobs.models import ThrottleSetting
from app.jobs.running.context import JobContext
from app.jobs.running.deadlines import A_DAY
from app.settings import Settings
from app.stores.models import StoreKind

Params = Mapping[str, Any]
"""The parameters of a job, as its row keeps them."""
Task = Callable[[JobContext], Mapping[str, Any]]
Scopes = frozenset[Scope]


class Limits(StrEnum):
    """What holds a verb to the store's limits (`max_rows`, `max_fraction`, `max_bytes`)."""

    BEFORE_THE_FIRST_DELETE = "BEFORE_THE_FIRST_DELETE"
    """Its plan is held against them before anything is removed."""
    REMOVES_NOTHING = "REMOVES_NOTHING"
    """It reads, waits or brings back: there is nothing to bound."""
    CONFIRMED_BY_ALL = "CONFIRMED_BY_ALL"
    """Only what every receiver has confirmed goes, and a table is emptied whole: there is no half of it."""
    OF_THE_CONSUMER = "OF_THE_CONSUMER"
    """What goes, goes at the consumer, by the word of its admin."""
    AS_ITS_SOURCE = "AS_ITS_SOURCE"
    """What goes has gone where it was copied from."""


@dataclass(frozen=True, slots=True)
class Tools:
    """What tasks work with."""

    engines: Engines
    workshop: Workshop


class Submit(Protocol):
    """Submits what is due."""

    def __call__(
        self, database: Database, settings: Settings, *, now: datetime, changed: Callable[[str], None]
    ) -> Sequence[str]:
        """Returns the jobs that were made.

        Args:
            changed: told of each.
        """
        ...


class Loop(StrEnum):
    """The thread of a worker in which a recurrence runs."""

    BEAT = "BEAT"
    ERASER = "ERASER"
    SUPPLIER = "SUPPLIER"


@dataclass(frozen=True, slots=True)
class Recurrence:
    """A verb that the service submits by itself.

    Args:
        make: makes what submits, which may remember things from turn to turn.
    """

    loop: Loop
    make: Callable[[], Submit]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a PLAN job does for a verb: the same look, nothing written."""

    params: type[BaseModel]
    result: type[BaseModel]
    task: Callable[[Tools], Task]


_NEEDED: Any = None
"""A column that every verb must fill: `check_table` names the one that is empty."""


NOWHERE: frozenset[StoreKind] = frozenset()
"""No kind of store: no throttle acts on a verb that reads, waits, or does one thing at once."""


BOUNDS: Final = frozenset(ThrottleSetting.model_fields)


def nothing_more(_params: Params) -> Scopes:
    """No request of this kind needs a scope besides."""
    return frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """A kind of job; of PURGE there are two, told apart by `kind` of its parameters.

    Args:
        acts: values of `kind` in the parameters that mean this verb; empty: it is the only one.
        stores: the kinds of stores that are asked for it; empty: it is asked of what a job has left.
        scope: what a token needs to start it.
        more_scopes: what some requests need besides, by their parameters.
        request: the body of the POST that makes it.
        prepare: from that body to the parameters, where a function does it.
        params, result: as `/v1/jobs` shows them.
        task: makes the function that runs.
        proof: returns only when nothing of the job writes at its target any more.
        limits: what holds it to the store's limits.
        throttled_at: the kinds of stores at which `PATCH throttle` acts on it; empty: it takes no throttle.
        bounds: which of its bounds act there.
        plan: what a PLAN job does for it.
        recurrence: how the service submits it by itself.
        batch: makes a child of a batch, or the job of a schedule.
        scheduled: makes the job of a schedule of one store, where no batch is made of it.
        wait_max: how long a job may wait for one thing where `job.wait.max` is not set; None: it has a
            deadline of its own.
    """

    kind: str
    acts: frozenset[str] = frozenset()
    stores: frozenset[StoreKind] = _NEEDED
    scope: Scope = _NEEDED
    more_scopes: Callable[[Params], Scopes] = nothing_more
    request: type[BaseModel] = _NEEDED
    prepare: Callable[..., Any] | None = None
    params: type[BaseModel] = _NEEDED
    result: type[BaseModel] = _NEEDED
    task: Callable[[Tools], Task] = _NEEDED
    proof: Callable[[JobContext], None] = _NEEDED
    limits: Limits = _NEEDED
    throttled_at: frozenset[StoreKind] = _NEEDED
    bounds: frozenset[str] = BOUNDS
    plan: Plan | None = None
    recurrence: Recurrence | None = None
    batch: ChildSubmitter | None = None
    scheduled: ChildSubmitter | None = None
    wait_max: timedelta | None = A_DAY

    @property
    def obeys_windows(self) -> bool:
        """Whether windows hold it: all that removes something at a target that is Lethe's to slow down."""
        return self.limits in (Limits.BEFORE_THE_FIRST_DELETE, Limits.CONFIRMED_BY_ALL)

    @property
    def name(self) -> str:
        """For messages."""
        return f"{self.kind} {'/'.join(sorted(self.acts))}".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Carrier:
    """A kind of job that stands for others: it needs what they need.

    Args:
        carried: kind and parameters of what a job of this kind plans or submits.
        wait_max: as of a verb.
    """

    kind: str
    carried: Callable[[Params], tuple[str, Params]]
    params: Sequence[type[BaseModel]]
    result: Sequence[type[BaseModel]]
    task: Callable[[Tools], Task]
    proof: Callable[[JobContext], None]
    wait_max: timedelta | None = A_DAY

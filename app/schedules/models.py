"""Schedules as clients see them."""

import json
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, Final, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from app.auth.rows import StoreName
from app.jobs.models import JobError
from app.jobs.states import JobState
from app.kit.durations import Duration
from app.kit.model import Model
from app.schedules.rules import MissedRuns, ScheduleOverlap
from app.schedules.windows.models import CRON_TEXT, LABELS_MAX, Cron, Labels, ShortName
from app.stores.fields import TimeZone

JITTER_MOST: Final = timedelta(hours=1)
BODY_MAX_CHARS: Final = 20_000
VERB_TEXT: Final = (
    "A kind of job: PURGE, EVENT_CLEANUP, EVENT_SYNC, LOG_SWITCH or ERASURE; with `store` also"
    " REPLICATION_SESSION, AUDIT, ERASURE_VERIFY (of its newest cycle that has ended) and ARCHIVE_VERIFY (of"
    " its newest archive)."
)
_EXAMPLE: Final[dict[str, Any]] = {
    "name": "nightly",
    "verb": "PURGE",
    "body": {"kind": "OUTGOING"},
    "labels": {"region": "eu"},
    "cron": "30 2 * * *",
    "time_zone": "Europe/Berlin",
    "jitter": "PT10M",
    "overlap": "FORBID",
    "missed": "RUN_ONCE",
}


def _short(value: timedelta) -> timedelta:
    if not timedelta(0) <= value <= JITTER_MOST:
        raise ValueError("between PT0S and PT1H")
    return value


Jitter = Annotated[Duration, AfterValidator(_short)]


class ScheduleCreate(Model):
    """A new schedule."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [_EXAMPLE]})

    name: ShortName | None = None
    verb: str = Field(max_length=40, description=VERB_TEXT)
    body: dict[str, Any] = Field(description="As the POST of that verb takes it; looked at again each time.")
    store: StoreName | None = Field(default=None, description="The store; else `labels`.")
    labels: Labels | None = Field(
        default=None,
        min_length=1,
        max_length=LABELS_MAX,
        description="All stores that have all of these when it comes: a batch of jobs.",
    )
    cron: Cron = Field(description=CRON_TEXT)
    time_zone: TimeZone = "UTC"
    jitter: Jitter = Field(
        default=timedelta(0),
        description="It comes so much later at most: always by the same part of it. Up to PT1H.",
    )
    overlap: ScheduleOverlap = Field(
        default=ScheduleOverlap.FORBID,
        description="While its last job has not ended: FORBID leaves a due time out, QUEUE begins it (one,"
        " however many have come) when that job has ended.",
    )
    missed: MissedRuns = Field(
        default=MissedRuns.SKIP,
        description="Due times of more than a minute ago: SKIP leaves them out, RUN_ONCE makes up one"
        " for all.",
    )

    @model_validator(mode="after")
    def _one_selection(self) -> Self:
        if (self.store is None) == (self.labels is None):
            raise ValueError("exactly one of store and labels")
        if len(json.dumps(self.body)) > BODY_MAX_CHARS:
            raise ValueError(f"body: at most {BODY_MAX_CHARS} characters of JSON")
        return self


class Outcome(StrEnum):
    """What became of a due time."""

    SUBMITTED = "SUBMITTED"
    REFUSED = "REFUSED"
    SKIPPED_RUNNING = "SKIPPED_RUNNING"
    SKIPPED_SUSPENDED = "SKIPPED_SUSPENDED"
    SKIPPED_MISSED = "SKIPPED_MISSED"
    QUEUED = "QUEUED"
    SKIPPED_REFUSED = "SKIPPED_REFUSED"
    """Of what recurs by a parameter."""


class Firing(Model):
    """The last due time of a schedule."""

    due: datetime | None = Field(description="Of its cron, without the jitter.")
    at: datetime | None
    outcome: str = Field(description=f"One of {', '.join(Outcome)}; of a session of an agreement its own.")
    detail: str | None = Field(description="Why there is no job.")
    job_id: str | None
    job_state: JobState | None = Field(default=None, description="Of that job, now; null: it is forgotten.")
    job_error: JobError | None = None


class ScheduleRead(Model):
    """A schedule, or what recurs by a parameter or an agreement: `source` says which."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"id": f"sch_{'0' * 26}", "source": None}
                | _EXAMPLE
                | {
                    "store": None,
                    "interval": None,
                    "is_paused": False,
                    "token_id": f"tok_{'0' * 26}",
                    "created_by": "admin",
                    "created_at": "2026-11-23T10:00:00Z",
                    "next_due": "2026-11-24T01:30:00Z",
                    "next_at": "2026-11-24T01:34:10Z",
                    "queued_due": None,
                    "last": None,
                }
            ]
        }
    )

    id: str
    source: str | None = Field(
        description="Null: a schedule. Else read only here: the parameter or the agreement that asks for it."
    )
    name: str | None = None
    verb: str
    body: dict[str, Any]
    store: str | None
    labels: dict[str, str] | None
    cron: str | None = Field(description="Null: it recurs by `interval`.")
    time_zone: str | None
    interval: Duration | None = Field(default=None, description="Of what recurs by an interval.")
    jitter: Duration | None = None
    overlap: ScheduleOverlap | None = None
    missed: MissedRuns | None = None
    is_paused: bool = False
    token_id: str | None = Field(default=None, description="It acts with the rights of this token.")
    created_by: str | None = None
    created_at: datetime | None = None
    next_due: datetime | None = Field(default=None, description="By its cron; null: none, or it is paused.")
    next_at: datetime | None = Field(description="When it is looked at next: with the jitter.")
    queued_due: datetime | None = Field(default=None, description="What waits for its last job to end.")
    last: Firing | None = Field(description="Null: nothing has come yet.")


class NextRun(Model):
    """A time at which a schedule comes."""

    due: datetime = Field(description="By its cron.")
    at: datetime = Field(description="With its jitter.")
    local: str = Field(description="`due` in the schedule's zone.")


class NextRuns(Model):
    """The times at which a schedule comes, paused or not."""

    items: list[NextRun]

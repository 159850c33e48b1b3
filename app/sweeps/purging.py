"""Purges between the domains: all come in by one route, and the domain whose tables go does them.

What all of them must know stands here: the name of their jobs, the plan of a purge CHANGELOG as clients see
it, and what the route calls: check, look, submit.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol

from pydantic import BaseModel
from sqlmodel import Session

from app.auth.service import Caller
from app.db import Database
from app.jobs.rows import Job
from app.settings import Settings
from app.stores.models import StoreKind
from app.stores.rows import Store

JOB_PURGE: Final = "PURGE"
CHANGELOG: Final = "CHANGELOG"


@dataclass(frozen=True, slots=True)
class Looked:
    """A request that may be submitted: its snapshot, and what a look at the target found, of the domain."""

    params: BaseModel
    found: object = None


class Purging(Protocol):
    """Makes purges of some kinds; a module does."""

    @property
    def STORE_KIND(self) -> StoreKind:  # noqa: N802 -- a constant of the module
        """Of the stores that have such tables."""
        ...

    def look(
        self,
        database: Database,
        store: Store,
        fields: Mapping[str, Any],
        *,
        settings: Settings,
        now: datetime,
        for_write: bool,
    ) -> Looked:
        """The snapshot of a request, its target looked at where it can be.

        Args:
            fields: what the client has set, as JSON.
        Raises: ServiceError.
        """
        ...

    def submit(
        self,
        db: Session,
        store: Store,
        looked: Looked,
        *,
        caller: Caller,
        reason: str | None,
        settings: Settings,
        now: datetime,
    ) -> Job:
        """Queue the job.

        Args:
            store: locked, and the same as when it was looked at.
        Raises: ConflictingJob, QueueFull.
        """
        ...

    def submit_unseen(
        self,
        db: Session,
        store: Store,
        fields: Mapping[str, Any],
        *,
        caller: Caller,
        reason: str | None,
        settings: Settings,
        now: datetime,
        parent_id: str | None,
    ) -> Job:
        """Queue the job of a request whose target is looked at when it runs.

        Raises: StoreKindWrong, ConflictingJob, QueueFull.
        """
        ...


Purgings = Mapping[str, Purging]
"""Kind of purge to who makes it."""

"""Purges between the domains: all come in by one route, and the domain whose tables go does them.

What all of them must know stands here: the name of their jobs, what a kind of purge is to the route, and how
a request that was looked at becomes a job.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Protocol

from sqlmodel import Session

from app.auth.service import Caller
from app.db import Database
from app.errors import InvalidRequest
from app.jobs.models import ThrottleSetting
from app.jobs.rows import Job
from app.jobs.submission import ClaimingParams, submit_claiming
from app.settings import Settings
from app.stores.models import StoreKind
from app.stores.rows import Store

JOB_PURGE: Final = "PURGE"
CHANGELOG: Final = "CHANGELOG"
TOMBSTONES: Final = "TOMBSTONES"


def nothing(_db: Session, _caller: Caller) -> None:
    """A look that has nothing to keep."""


class PurgeSnapshot(ClaimingParams, Protocol):
    """Parameters of a purge, of any kind."""

    @property
    def throttle(self) -> ThrottleSetting | None:
        """How fast it may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """A request that may be submitted, and what a look at the target found.

    Args:
        params: the snapshot that the job keeps.
        resource: what the job will claim.
        identity: of the target, where it was just asked; None: as the store knows it.
        keep: done in the transaction that makes the job, before it; may raise ServiceError.
    """

    params: PurgeSnapshot
    resource: str
    identity: str | None = None
    keep: Callable[[Session, Caller], None] = nothing


class Look(Protocol):
    """Checks a request, and looks at its target."""

    def __call__(
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Purging:
    """A kind of purge, as the route of all purges knows it.

    Args:
        store_kind: of the stores that have such tables.
        look: the snapshot of a request, its target looked at.
        unseen: the same where the target is looked at when the job runs; raises StoreKindWrong,
            InvalidRequest.
        own: fields of a request that only this kind knows.
        refused: fields that this kind does not know, and the kind that alone does; None: there are several.
    """

    store_kind: StoreKind
    look: Look
    unseen: Callable[[Session, Store, Mapping[str, Any]], Looked]
    own: frozenset[str] = frozenset()
    refused: Mapping[str, str | None] = field(default_factory=dict)


Purgings = Mapping[str, Purging]
"""Kind of purge to what the route knows of it."""


def check_fields(purgings: Purgings, kind: str, said: set[str], *, at: str = "") -> None:
    """Raise InvalidRequest where a request says something that its kind does not know.

    Args:
        said: names of the fields that the client has set.
        at: where the request lies in the body.
    """
    unknown = dict(purgings[kind].refused) | _of_others(purgings, kind)
    errors = [
        {"pointer": f"{at}/{name}", "detail": _senseless(kind, only)}
        for name, only in unknown.items()
        if name in said
    ]
    if errors:
        raise InvalidRequest(f"{len(errors)} field(s) are not valid", errors=errors)


def _of_others(purgings: Purgings, kind: str) -> dict[str, str | None]:
    """The fields that only other kinds know: which one, None: several."""
    found: dict[str, str | None] = {}
    for other, purging in purgings.items():
        for name in purging.own - purgings[kind].own:
            found[name] = None if name in found else other
    return found


def _senseless(kind: str, only: str | None) -> str:
    told = f"makes no sense for {kind}"
    return told if only is None else f"{told}: only a purge {only} knows it"


def submit_looked(
    db: Session,
    store: Store,
    looked: Looked,
    *,
    caller: Caller,
    reason: str | None,
    settings: Settings,
    now: datetime,
    parent_id: str | None = None,
) -> Job:
    """Queue the job of a purge.

    Args:
        store: locked, and the same as when it was looked at.
    Raises: ConflictingJob, QueueFull; what `looked.keep` raises.
    """
    looked.keep(db, caller)
    return submit_claiming(
        db,
        store,
        JOB_PURGE,
        looked.params,
        resource=looked.resource,
        identity=looked.identity,
        throttle=looked.params.throttle,
        caller=caller,
        reason=reason,
        settings=settings,
        now=now,
        parent_id=parent_id,
    )

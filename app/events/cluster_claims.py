"""Which jobs may write to a cluster: one at a time, whichever of its stores they go through.

A cluster has no name of its own that two nodes could be compared by, but its paths: every node keeps the same
rows of sl_path, and no path leads out of a cluster. A writing job takes a claim for each of them.

Invariants:
- all claims of a cluster are taken in one transaction of the metadata, or none: who waits for one holds none;
- they come after the claim of the target, and nobody who holds them waits for a target: no circle;
- two clusters of the same name that share no path do not meet.
"""

import hashlib
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from sqlmodel import Session, col, select

from app.jobs.claims import claim_target
from app.jobs.context import JobContext
from app.jobs.errors import ConflictingJob, JobFailed, JobWaiting
from app.jobs.models import Job, JobClaim, WaitingOn
from app.jobs.service import claim_key, release_claims
from app.jobs.states import TERMINAL
from spark.events.records import Catalog

IDENTITY_PREFIX: Final = "slony:"
DIGEST_CHARS: Final = 40
PATHS_MAX: Final = 1_000
"""More would be a cluster of more than thirty nodes that all know the way to each other; the first in order
are claimed, by every job the same."""
LOOK_AGAIN_S: Final = 5
Place = tuple[str, str]
"""Identity and resource of a row of job_claims."""


class _Taken(Exception):
    """Another job holds a place; what was taken before it goes back."""

    def __init__(self, job_id: str, place: Place) -> None:
        super().__init__(job_id)
        self.job_id = job_id
        self.place = place


def cluster_places(catalog: Catalog, *, identity: str) -> list[Place]:
    """The places of a cluster in job_claims, in order.

    Args:
        identity: of the target; what tells a cluster without paths from another one.
    """
    name = catalog.cluster
    parts: list[tuple[str, ...]] = [
        (name, str(path.server), str(path.client), path.digest) for path in catalog.paths
    ]
    if not parts:
        nodes = ",".join(str(node) for node in sorted(node.id for node in catalog.nodes))
        parts = [(name, nodes, identity)]
    digests = sorted({_digest(part) for part in parts})[:PATHS_MAX]
    return [(f"{IDENTITY_PREFIX}{name}", digest) for digest in digests]


def _digest(parts: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:DIGEST_CHARS]


def claim_cluster(context: JobContext, catalog: Catalog, *, identity: str, queue: bool) -> None:
    """Take the right to write to a cluster until the job ends, or gives it back.

    Raises: JobWaiting (`queue`) or JobFailed: another job writes to the cluster, maybe at another node.
    """
    places = cluster_places(catalog, identity=identity)

    def take(db: Session) -> None:
        context.change(db, {})
        now = context.database.now(db)
        for place in places:
            target_identity, resource = place
            other = claim_target(
                db, job_id=context.job.id, target_identity=target_identity, resource=resource, now=now
            )
            if other is not None:
                raise _Taken(other, place)

    try:
        context.write(take)
    except _Taken as taken:
        raise _conflict(context, taken, queue=queue) from None


def _conflict(context: JobContext, taken: _Taken, *, queue: bool) -> Exception:
    detail = f"{taken.job_id} writes to the same cluster"
    if not queue:
        return JobFailed("CONFLICTING_JOB", detail, retryable=True)
    return JobWaiting(
        [WaitingOn(kind="JOB", ref=taken.job_id)],
        not_before=context.clock.now() + timedelta(seconds=LOOK_AGAIN_S),
        wake_key=claim_key(*taken.place),
        overtaken=lambda db: db.get(JobClaim, taken.place) is None,
        detail=detail,
    )


def give_back(context: JobContext) -> None:
    """Give back every claim of a job that goes on waiting without holding anything."""

    def release(db: Session) -> None:
        context.change(db, {})
        release_claims(db, context.job.id, now=context.database.now(db))

    context.write(release)


def refuse_cluster_conflict(db: Session, places: Sequence[Place]) -> None:
    """Refuse a job before it is made where another one writes to the cluster now.

    The claims of the job that runs decide; this answers early.

    Raises: ConflictingJob.
    """
    if not places:
        return
    identity = places[0][0]
    held = (
        select(Job.id)
        .join(JobClaim, col(JobClaim.job_id) == col(Job.id))
        .where(
            JobClaim.target_identity == identity,
            col(JobClaim.resource).in_([resource for _, resource in places]),
            col(Job.state).not_in(sorted(TERMINAL)),
        )
    )
    other = db.exec(held.limit(1)).first()
    if other is not None:
        raise ConflictingJob(other)

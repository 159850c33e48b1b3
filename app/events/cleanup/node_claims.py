"""Which jobs may write to a node: one at a time, a cleanup or a log switch, by whichever store they came.

Both act on the node's own catalog alone. Its events and confirmations are copies of its own, its log tables
and their status (a sequence) are never replicated, and the lock that the program takes for both is a table of
that node; slons clean their nodes at moments of their own. So nothing of one node waits for another.

Rules:
- the node's claim comes after the claim of the target, and nobody who holds it waits for a target: no circle;
- a job that waits without writing gives it back, with everything else it holds;
- what may still write after a claim was given back (a session whose client went away) holds the cluster's own
  lock until its transaction ends: every step takes that lock, and reads the catalog anew under it.
Source: facts/slony, sections 1 to 4.
"""

from sqlmodel import Session, col, select

from app.jobs.errors import ConflictingJob, JobFailed, JobWaiting
from app.jobs.models import WaitingOn
from app.jobs.rows import Job, JobClaim
from app.jobs.running.claims import claim_target, is_free
from app.jobs.running.context import JobContext
from app.jobs.running.sql_target import CONFLICT_LOOK_AGAIN
from app.jobs.service import claim_key, release_claims
from app.jobs.states import TERMINAL
from spark.events.records import Catalog

Place = tuple[str, str]
"""Identity and resource of a row of job_claims."""


def node_place(catalog: Catalog, *, identity: str) -> Place:
    """The place of a node in job_claims.

    Args:
        identity: of the target: the server by what it says of itself, and the database.
    """
    return identity, f"{catalog.schema}.node"


def claim_node(context: JobContext, catalog: Catalog, *, identity: str, queue: bool) -> None:
    """Take the right to write to a node until the job ends, or gives it back.

    Raises: JobWaiting (`queue`) or JobFailed: another job writes to the node.
    """
    place = node_place(catalog, identity=identity)

    def take(db: Session) -> str | None:
        context.change(db, {})
        now = context.database.now(db)
        return claim_target(db, job_id=context.job.id, target_identity=place[0], resource=place[1], now=now)

    other = context.write(take)
    if other is not None:
        raise _conflict(context, other, place, queue=queue)


def _conflict(context: JobContext, other: str, place: Place, *, queue: bool) -> Exception:
    detail = f"{other} writes to the same node"
    if not queue:
        return JobFailed("CONFLICTING_JOB", detail, retryable=True)
    return JobWaiting(
        [WaitingOn(kind="JOB", ref=other)],
        not_before=context.clock.now() + CONFLICT_LOOK_AGAIN,
        wake_key=claim_key(*place),
        overtaken=lambda db: is_free(db, *place),
        detail=detail,
    )


def give_back(context: JobContext) -> None:
    """Give back every claim of a job that goes on waiting without holding anything."""

    def release(db: Session) -> None:
        context.change(db, {})
        release_claims(db, context.job.id, now=context.database.now(db))

    context.write(release)


def refuse_node_conflict(db: Session, place: Place | None) -> None:
    """Refuse a job before it is made where another one writes to the node now.

    The claims of the job that runs decide; this answers early.

    Args:
        place: of the node; None: it could not be asked.
    Raises: ConflictingJob.
    """
    if place is None:
        return
    held = (
        select(Job.id)
        .join(JobClaim, col(JobClaim.job_id) == col(Job.id))
        .where(
            JobClaim.target_identity == place[0],
            JobClaim.resource == place[1],
            col(Job.state).not_in(sorted(TERMINAL)),
        )
    )
    other = db.exec(held.limit(1)).first()
    if other is not None:
        raise ConflictingJob(other)

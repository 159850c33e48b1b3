"""The parent of a batch: waits for its children and tells what became of each store."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from sqlmodel import Session, col, select

from app.jobs.context import JobContext
from app.jobs.errors import JobFailed, JobWaiting
from app.jobs.models import Job, WaitingOn
from app.jobs.queries import count_children
from app.jobs.service import children_key
from app.jobs.states import TERMINAL, JobState

JOB_BATCH = "BATCH"
LOOK_AGAIN = timedelta(seconds=5)


def run_batch(context: JobContext) -> Mapping[str, Any]:
    """Wait for the children, then tell what became of each store.

    Raises: JobWaiting: children are left. JobFailed: CHILDREN_FAILED, with the results.
    """
    counts = context.write(lambda db: count_children(db, context.job.id))
    done = sum(count for state, count in counts.items() if state in TERMINAL)
    total = sum(counts.values())
    context.progress(unit="jobs", done=done, total=total, force=True)
    if done < total:
        waiting_on = [WaitingOn(kind="CHILDREN", ref=f"{total - done} of {total}")]
        raise JobWaiting(
            waiting_on,
            not_before=context.clock.now() + LOOK_AGAIN,
            wake_key=children_key(context.job.id),
            overtaken=lambda db: count_children(db, context.job.id) != counts,
        )
    result = context.write(lambda db: _results(db, context))
    failed = [name for name, item in result["stores"].items() if item["state"] != JobState.SUCCEEDED]
    if failed:
        detail = f"{len(failed)} of {len(result['stores'])} stores: {', '.join(failed[:20])}"
        raise JobFailed("CHILDREN_FAILED", detail, result=result)
    return result


def _results(db: Session, context: JobContext) -> dict[str, Any]:
    children = db.exec(select(Job).where(Job.parent_id == context.job.id).order_by(col(Job.store))).all()
    stores: dict[str, Any] = {
        str(child.store): {
            "job_id": child.id,
            "state": child.state,
            "engine": child.engine,
            "error": child.error,
            "removed": (child.result or {}).get("removed"),
        }
        for child in children
    }
    refused = context.job.params.get("refused", {})
    stores |= {name: {"job_id": None, "state": "REFUSED", "error": error} for name, error in refused.items()}
    return {"stores": stores}


def prove_children_silent(context: JobContext) -> None:
    """Return when no child runs: each has ended or is PAUSED.

    Raises: JobWaiting.
    """
    counts = context.write(lambda db: count_children(db, context.job.id))
    busy = sum(count for state, count in counts.items() if state not in TERMINAL | {JobState.PAUSED})
    if busy:
        raise JobWaiting([], not_before=None, detail=f"{busy} children still run")

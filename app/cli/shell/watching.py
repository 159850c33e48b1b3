"""Following a job to its end, and saying how it ended."""

from collections.abc import Iterable, Mapping
from typing import Any

from lethe_client import TERMINAL, Job

from app.cli.shell.exits import ExitCode
from app.cli.shell.progress import display
from app.cli.shell.session import Interrupted, Session


def follow(
    session: Session, job: Job, *, until: Iterable[str] = TERMINAL, timeout_s: float | None = None
) -> Job:
    """Show the job's progress until it is in one of these states or has ended.

    Raises: Interrupted: Ctrl-C, which leaves the job alone.
    """
    last = job
    try:
        with display() as shown:
            for last in session.client.jobs.follow(job.id, until=until, timeout_s=timeout_s):
                shown.show(last)
    except KeyboardInterrupt:
        raise Interrupted(last) from None
    return last


def finish(session: Session, job: Job, *, wait: bool, timeout_s: float | None) -> int:
    """Follow a job that was just made to its end, or leave it alone and say how to watch it."""
    if wait:
        session.out.note(f"Job {job.id} (Ctrl-C leaves it running)")
        return outcome(session, follow(session, job, timeout_s=timeout_s))
    session.out.document(job.raw)
    session.out.say(f"Job {job.id} is {job.state}.")
    session.out.note(f"Watch it: lethe job watch {job.id}")
    return ExitCode.OK


def outcome(session: Session, job: Job) -> int:
    """Print the ended job and return the command's exit code."""
    session.out.document(job.raw)
    warnings = (job.result or {}).get("warnings") or ()
    if job.kind == "PURGE" and job.result:
        _purge_result(session, job.result, engine=job.engine, is_whole=job.state == "SUCCEEDED")
    elif job.kind == "BATCH" and job.result:
        _batch_result(session, job.result)
    elif job.result:
        session.out.facts(job.result)
        warnings = () if not session.out.json else warnings  # they are among the facts
    for warning in warnings:
        session.out.note(f"warning: {warning_text(warning)}")
    if job.state == "SUCCEEDED":
        return ExitCode.OK
    note_failure(session, job)
    if job.state == "FAILED":
        _note_retry(session, job)
    return ExitCode.FAILED


def _note_retry(session: Session, job: Job) -> None:
    """Say how to do it again; limits that were raised since hold for what is submitted anew alone."""
    if job.error and job.error.code == "LIMIT_EXCEEDED":
        session.out.note("  Once the limits of the store are raised, give the command again as it was.")
        session.out.note(f"  Once less would go, with the limits of this job: lethe job retry {job.id}")
        return
    session.out.note(f"  When the cause is gone: lethe job retry {job.id}")


def note_failure(session: Session, job: Job) -> None:
    """Say beside the result that a job did not succeed, and why."""
    error = f"{job.error.code}: {job.error.detail}" if job.error else (job.reason or "no reason given")
    session.out.note(f"lethe: job {job.id} {job.state}: {error}")
    if job.error:
        session.out.note(f"  What it means: lethe explain {job.error.code}")


def warning_text(warning: Any) -> str:
    """One line of a warning as plans and results carry it."""
    if not isinstance(warning, Mapping):
        return str(warning)
    parts = [str(warning.get("code", "")), str(warning.get("table") or "")]
    if warning.get("count") is not None:
        parts.append(f"{warning['count']:,}")
    head = " ".join(part for part in parts if part)
    sample = ", ".join(str(each) for each in warning.get("sample") or ())
    text = f"{head}: {warning.get('detail', '')}".rstrip(": ")
    return f"{text} (such as {sample})" if sample else text


def _batch_result(session: Session, result: Mapping[str, Any]) -> None:
    rows = []
    for store, child in sorted((result.get("stores") or {}).items()):
        removed = child.get("removed")
        error = child.get("error") or {}
        trouble = f"{error.get('code')}: {error.get('detail')}" if error else None
        rows.append(
            [
                store,
                child.get("state"),
                child.get("engine"),
                sum(removed.values()) if removed else None,
                trouble,
            ]
        )
    session.out.table(["store", "state", "engine", "removed rows", "error"], rows)


def _fewer(number: int | None, *, is_whole: bool) -> str | None:
    """How many rows of a plan did not go: an ended purge has looked at each of them, another has not."""
    if not number:
        return None
    return f"{number:,} (they are not there any more, or are needed now)" if is_whole else f"{number:,}"


def _purge_result(session: Session, result: Mapping[str, Any], *, engine: str, is_whole: bool) -> None:
    removed = result.get("removed") or {}
    at_least = "at least " if result.get("counts") == "AT_LEAST" else ""
    session.out.table(["removed from", f"{at_least}rows"], list(removed.items()))
    stranded = result.get("stranded") or {}
    archive = result.get("archive") or {}
    resent = result.get("resent_after_purge") or {}
    session.out.facts(
        {
            "cut-off": result.get("cutoff"),
            "rows of the plan that did not go": _fewer(result.get("fewer_than_planned"), is_whole=is_whole),
            "batches of stranded nodes marked OK": stranded.get("marked") or None,
            "stranded rows captured again": stranded.get("recaptured"),
            "archive": archive.get("directory"),
            "archive files": archive.get("files"),
            "archived rows": archive.get("rows"),
            "units": result.get("units"),
            "run by": engine,
            "longest hold (ms)": result.get("longest_hold_ms"),
        }
    )
    if stranded.get("kept"):
        columns = ["stranded rows that stay", "rows", "data ids such as"]
        stay = [
            [each["code"], each["count"], ", ".join(map(str, each["sample"]))] for each in stranded["kept"]
        ]
        session.out.table(columns, stay)
        session.out.note(f"What it means: lethe explain {stranded['kept'][0]['code']}")
    if result.get("kind") == "CHANGELOG":
        columns = ["rid", "removed", "left", "held", "held by", "purged up to"]
        names = ("rows_removed", "rows_left", "rows_held", "held_by", "purged")
        rows = [[str(each["rid"]), *(each.get(name) for name in names)] for each in result["rids"]]
        session.out.table(columns, rows)
    if result.get("kind") == "TOMBSTONES":
        kept = [[str(each["rid"]), each["rows_left"], each["rows_held"]] for each in result.get("rids") or ()]
        session.out.table(["rid of the delete", "left", "held"], kept)
        session.out.facts({"held by": ", ".join(result.get("held_by") or ()) or None})
    if resent.get("count"):
        session.out.table(
            ["resent after purge: batch", "node", "rows", "cause"],
            [
                [each.get(name) for name in ("batch_id", "node_id", "rows", "cause")]
                for each in resent["items"]
            ],
        )

"""`lethe job`: watch and control what is running."""

from itertools import islice
from typing import Annotated

import typer
from lethe_client import Job

from app.cli.shell.arguments import LIMIT_DEFAULT, JobId, Limit, States, Timeout
from app.cli.shell.exits import ExitCode
from app.cli.shell.job_options import OptionalReason
from app.cli.shell.job_table import job_table
from app.cli.shell.output import on_stdout
from app.cli.shell.progress import describe
from app.cli.shell.session import Interrupted, Session, on_service
from app.cli.shell.store_filter import note_unknown_stores
from app.cli.shell.watching import finish, follow, outcome

app = typer.Typer(
    name="job", no_args_is_help=True, add_completion=False, help="Watch and control what is running."
)

Wait = Annotated[bool, typer.Option("--wait", help="Wait until it is so.")]


@app.command("list")
@on_service
def list_jobs(
    session: Session,
    *,
    state: States = None,
    kind: Annotated[list[str] | None, typer.Option(help="Only of this kind. Repeatable.")] = None,
    store: Annotated[list[str] | None, typer.Option(help="Only of this store. Repeatable.")] = None,
    parent: Annotated[str | None, typer.Option(help="Children of this job.")] = None,
    limit: Limit = LIMIT_DEFAULT,
) -> int:
    """List jobs, newest first, a line each. A wide terminal also shows progress and reason.

    Example: lethe job list --state RUNNING --state WAITING
    """
    found = session.client.jobs.list(
        states=[each.upper() for each in state or ()],
        kinds=[each.upper() for each in kind or ()],
        stores=store or (),
        parent=parent,
    )
    jobs = list(islice(found, limit))
    session.out.document({"items": [job.raw for job in jobs]})
    if not session.out.json:
        console = on_stdout()
        console.print(job_table(jobs, width=console.width))
    if not jobs:
        note_unknown_stores(session, store or ())
    return ExitCode.OK


@app.command("show")
@on_service
def show(session: Session, job: JobId) -> int:
    """Show one job with its result. Exit 0 also where the job itself failed.

    Example: lethe job show job_01jdb5q6w3r8m2k4n7p9s0t1v2
    """
    _show(session, session.client.jobs.get(job))
    return ExitCode.OK


@app.command("watch")
@on_service
def watch(session: Session, job: JobId, *, timeout: Timeout = None) -> int:
    """Follow a job to its end; with --json its events as JSON lines. Exit 1 where it did not succeed.

    Example: lethe job watch job_01jdb5q6w3r8m2k4n7p9s0t1v2 --timeout 600
    """
    if session.out.json:
        if timeout is not None:
            raise typer.BadParameter("the stream of events has none", param_hint="--timeout with --json")
        return _watch_events(session, job)
    return outcome(session, follow(session, session.client.jobs.get(job), timeout_s=timeout))


@app.command("pause")
@on_service
def pause(
    session: Session,
    job: JobId,
    *,
    reason: OptionalReason = None,
    wait: Wait = False,
    timeout: Timeout = None,
) -> int:
    """Stop a job at its next safe point, to go on later.

    Example: lethe job pause job_01jdb5q6w3r8m2k4n7p9s0t1v2 --wait
    """
    return _settle(
        session, session.client.jobs.pause(job, reason=reason), "PAUSED", wait=wait, timeout_s=timeout
    )


@app.command("resume")
@on_service
def resume(session: Session, job: JobId, *, reason: OptionalReason = None) -> int:
    """Let a paused job go on.

    Example: lethe job resume job_01jdb5q6w3r8m2k4n7p9s0t1v2
    """
    _show(session, session.client.jobs.resume(job, reason=reason))
    return ExitCode.OK


@app.command("abort")
@on_service
def abort(
    session: Session,
    job: JobId,
    *,
    reason: OptionalReason = None,
    wait: Wait = False,
    timeout: Timeout = None,
) -> int:
    """End a job; ABORTED is said only when it writes no more.

    Example: lethe job abort job_01jdb5q6w3r8m2k4n7p9s0t1v2 --reason "wrong store"
    """
    aborted = session.client.jobs.abort(job, reason=reason)
    return _settle(session, aborted, "ABORTED", wait=wait, timeout_s=timeout)


@app.command("abandon")
@on_service
def abandon(
    session: Session,
    job: JobId,
    *,
    reason: Annotated[str, typer.Option(help="Why nobody can ask its target any more; it is kept.")],
) -> int:
    """End a job whose target is gone for good, as an admin: nobody proves that it writes no more.

    Example: lethe job abandon job_01jdb5q6w3r8m2k4n7p9s0t1v2 --reason "the server was scrapped"
    """
    _show(session, session.client.jobs.abandon(job, reason=reason))
    return ExitCode.OK


@app.command("retry")
@on_service
def retry(session: Session, job: JobId, *, reason: OptionalReason = None) -> int:
    """Make a new job of a failed one. Without --reason it has the reason of the former one.

    Example: lethe job retry job_01jdb5q6w3r8m2k4n7p9s0t1v2 --reason "the disk has room again"
    """
    return finish(session, session.client.jobs.retry(job, reason=reason), wait=False, timeout_s=None)


@app.command("throttle")
@on_service
def throttle(
    session: Session,
    job: JobId,
    *,
    rows_per_s: Annotated[
        float | None, typer.Option("--rows-per-s", min=0, help="At most so many rows.")
    ] = None,
    bytes_per_s: Annotated[
        float | None, typer.Option("--bytes-per-s", min=0, help="At most so many bytes.")
    ] = None,
    intensity: Annotated[
        float | None, typer.Option("--intensity", min=0, max=1, help="Share of the time that is worked.")
    ] = None,
    off: Annotated[bool, typer.Option("--off", help="No limit any more.")] = False,
) -> int:
    """Change the pace of a job that is running.

    Example: lethe job throttle job_01jdb5q6w3r8m2k4n7p9s0t1v2 --rows-per-s 5000
    """
    given = any(value is not None for value in (rows_per_s, bytes_per_s, intensity))
    if given == off:
        raise typer.BadParameter("give a limit, or --off", param_hint="--rows-per-s / --bytes-per-s / --off")
    limits = {"rows_per_s": rows_per_s, "bytes_per_s": bytes_per_s, "intensity": intensity}
    _show(session, session.client.jobs.throttle(job, **limits, lift=off))
    return ExitCode.OK


def _settle(session: Session, job: Job, state: str, *, wait: bool, timeout_s: float | None) -> int:
    """Wait for the state if asked to; exit 1 where the job came to another end first."""
    if wait and job.state != state:
        job = follow(session, job, until=[state], timeout_s=timeout_s)
    _show(session, job)
    return ExitCode.FAILED if wait and job.state != state else ExitCode.OK


def _watch_events(session: Session, job_id: str) -> int:
    try:
        for event in session.client.jobs.events(job_id):
            session.out.line(event.raw)
        job = session.client.jobs.get(job_id)
    except KeyboardInterrupt:
        raise Interrupted(session.client.jobs.get(job_id)) from None
    session.out.line({"type": "job", "job": job.raw})
    return ExitCode.OK if job.state == "SUCCEEDED" else ExitCode.FAILED


def _show(session: Session, job: Job) -> None:
    session.out.document(job.raw)
    error = f"{job.error.code}: {job.error.detail}" if job.error else None
    session.out.facts(
        {
            "job": job.id,
            "kind": job.kind,
            "store": job.store,
            "state": describe(job),
            "reason": job.reason,
            "requested by": job.requested_by,
            "created": job.created_at,
            "started": job.started_at,
            "finished": job.finished_at,
            "attempt": job.attempt or None,
            "crashes": job.crash_count or None,
            "retried from": job.retried_from,
            "silence": "not proved" if job.silence_proved is False else None,
            "fenced off": job.fenced_off_at,
            "error": error,
            "params": job.params,
            "result": job.result,
        }
    )
    for wait in job.waiting_on:
        session.out.facts(
            {
                "until": wait.until,
                "since": wait.since,
                "next look": wait.next_look,
                "cause": wait.cause,
                "help": wait.help,
            },
            title=f"\nWaits for {wait.kind} {wait.ref or ''}".rstrip(),
        )
    codes = [each.kind for each in job.waiting_on] + ([job.error.code] if job.error else [])
    for code in dict.fromkeys(codes):
        session.out.note(f"What it means: lethe explain {code}")

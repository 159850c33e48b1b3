"""`lethe demo`: a purge of a real SymmetricDS database, from registration to a verified archive; then the
erasure of a JE environment, with a backup in the middle and a certificate at the end; then replication.
"""

import shlex
import sqlite3
import tempfile
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from lethe_client import Conflict, Job, Lethe, LetheError, PurgeRequest

from app.cli.demo import data as demo_data
from app.cli.demo.erasure import show_erasure
from app.cli.demo.replication import show_replication
from app.cli.demo.service import DemoService, ServiceDidNotStart, own_command
from app.cli.purge import show_plan
from app.cli.shell.complaints import complaint
from app.cli.shell.exits import Complaint, ExitCode
from app.cli.shell.output import Output
from app.cli.shell.progress import display
from app.cli.shell.session import Interrupted, Session
from app.cli.shell.watching import follow, note_failure, warning_text
from spark.extras import JE

app = typer.Typer(name="demo", add_completion=False)

STORE: Final = "shop"
TABLES: Final = ("sym_data", "sym_data_event", "sym_outgoing_batch")
# Slow enough to be seen and paused, fast enough not to bore.
ROWS_PER_S: Final = 25_000
PAUSE_AT_FRACTION: Final = 0.2
PAUSED_S: Final = 1.0


@app.command("demo")
def demo(
    *,
    keep_serving: Annotated[
        bool, typer.Option("--keep-serving", help="Leave the service running until Ctrl-C.")
    ] = False,
    rows: Annotated[int, typer.Option(min=2_000, max=5_000_000, help="Captured rows.")] = demo_data.ROWS,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")] = False,
) -> int:
    """See it work: a database is purged, a JE environment erased and certified, replicas brought level.

    Example: lethe demo
    """
    out = Output(json=json)
    folder = Path(tempfile.mkdtemp(prefix="lethe-demo-"))
    out.note(f"Everything is in {folder} and stays there.")
    database = folder / "shop.db"
    try:
        out.note(f"Writing a SymmetricDS 3.16 database with {rows:,} captured rows ...")
        demo_data.build(database, now=datetime.now(UTC).replace(tzinfo=None), rows=rows)
        out.note("Starting the service ...")
        with DemoService(folder / "data") as service:
            token = service.token_file.read_text().strip()
            with Lethe(service.url, token) as client:
                code, report = _show(Session(client, out), database)
                if code == ExitCode.OK and not JE.is_installed:
                    out.note(
                        f"No erasure is shown: what reads logs of JE is not installed here ({JE.command})."
                    )
                elif code == ExitCode.OK:
                    code, report["erasure"] = show_erasure(Session(client, out), folder)
                if code == ExitCode.OK:
                    code, report["replication"] = show_replication(
                        Session(client, out), folder, service.secrets
                    )
            out.document({"folder": str(folder), "database": str(database), "url": service.url} | report)
            _tell_how_to_go_on(out, service, report, keep_serving=keep_serving)
            if keep_serving:
                # Ctrl-C is how this is meant to end.
                with suppress(KeyboardInterrupt):
                    service.wait()
    except ServiceDidNotStart as error:
        return out.complain(Complaint("SERVICE_DID_NOT_START", str(error), ExitCode.FAILED))
    except LetheError as error:
        return out.complain(complaint(error))
    except (KeyboardInterrupt, Interrupted):
        out.note(f"Stopped. The folder {folder} stays.")
        return ExitCode.INTERRUPTED
    return code


def _show(session: Session, database: Path) -> tuple[int, dict[str, Any]]:
    """Register, check, plan, purge, compare, verify."""
    client, out = session.client, session.out
    before = count_rows(database)
    client.stores.create(STORE, f"sqlite:///{database}", labels={"site": "demo"})
    check = client.stores.check(STORE)
    ledger = "ledger" if check.ledger else "no ledger"
    out.say(f"\nStore {STORE!r}: layout {check.layout}, {ledger}, can {', '.join(check.can)}")
    plan = client.purges.plan(STORE, PurgeRequest(reason="demo: look first"))
    out.say("\nThe plan (nothing is written yet):")
    show_plan(session, plan)
    request = PurgeRequest(plan_id=plan.plan_id, archive=True, rows_per_s=ROWS_PER_S, reason="demo")
    out.say(f"\nThe purge, throttled to {ROWS_PER_S:,} rows/s:")
    job = _run_with_a_pause(session, client.purges.create(STORE, request), database)
    after = count_rows(database)
    report: dict[str, Any] = {"before": before, "after": after, "job": job.raw, "plan": plan.raw}
    if job.state != "SUCCEEDED":
        note_failure(session, job)
        return ExitCode.FAILED, report
    _tell_engine(session, job)
    result = job.result or {}
    _show_counts(out, before, after, result.get("removed") or {})
    marked = (result.get("stranded") or {}).get("marked")
    waiting = plan.stranded.batches
    out.facts({"batches that wait for the disabled node": waiting, "of these given up": marked})
    for warning in result.get("warnings") or ():
        out.note(f"warning: {warning_text(warning)}")
    verified = follow(session, client.archives.verify(job.id))
    report["verification"] = verified.raw
    archive = result.get("archive") or {}
    out.say("\nThe archive of everything that was removed:")
    out.facts({name: archive.get(name) for name in ("directory", "files", "rows", "bytes")})
    out.facts({"verification": verified.state, **(verified.result or {})})
    return ExitCode.OK if verified.state == "SUCCEEDED" else ExitCode.FAILED, report


def _run_with_a_pause(session: Session, started: Job, database: Path) -> Job:
    """Follow to a fifth, pause and show that nothing moves, resume unthrottled, follow to the end."""
    client, out, job = session.client, session.out, started
    with display() as shown:
        for job in client.jobs.follow(started.id):
            shown.show(job)
            if (job.progress.fraction or 0.0) >= PAUSE_AT_FRACTION:
                break
    if job.ended:
        return job
    try:
        client.jobs.pause(job.id)
    except Conflict:
        # It ended between our look and our word; there is nothing left to pause.
        return client.jobs.wait(job.id)
    job = client.jobs.wait(job.id, until=["PAUSED"])
    if job.state == "PAUSED":
        first = count_rows(database)
        time.sleep(PAUSED_S)
        moved = sum(first.values()) - sum(count_rows(database).values())
        out.note(f"Paused: {sum(first.values()):,} rows are left, {moved:,} went in the last {PAUSED_S:g} s.")
        client.jobs.resume(job.id)
        client.jobs.throttle(job.id, lift=True)
        out.note("Resumed, and the throttle taken away.")
    return follow(session, job)


def _tell_engine(session: Session, job: Job) -> None:
    """Say what ran the units, and why."""
    for event in session.client.jobs.events(job.id):
        if event.type == "engine":
            chosen = event.data
    rows, least = chosen["estimated_rows"], chosen["min_rows"]
    where = "on the pooled Spark session" if chosen["engine"] == "SPARK" else "in the service's own process"
    beyond = "Spark is no faster here" if least is None else f"Spark is taken from {least:,} on"
    because = f"about {rows:,} rows, and {beyond} ({chosen['reason']})"
    session.out.say(f"\nThe units ran {where}: {because}.")


def count_rows(database: Path) -> dict[str, int]:
    """Count straight in the database, not through the service."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=10)) as db:
        return {table: db.execute(f"select count(*) from {table}").fetchone()[0] for table in TABLES}


def _show_counts(
    out: Output, before: Mapping[str, int], after: Mapping[str, int], removed: Mapping[str, int]
) -> None:
    rows: list[list[Any]] = []
    for table in TABLES:
        gone = before[table] - after[table]
        rows.append([table, before[table], after[table], gone, removed.get(table.removeprefix("sym_"))])
    columns = ["table", "rows before", "rows after", "gone", "the job says"]
    out.table(columns, rows, title="\nCounted in the database itself:")


def _tell_how_to_go_on(
    out: Output, service: DemoService, report: Mapping[str, Any], *, keep_serving: bool
) -> None:
    token_file = shlex.quote(str(service.token_file))
    out.say(
        "\nGo on:" if keep_serving else f"\nGo on, after starting the service again with\n  {service.command}"
    )
    out.say(
        f'  curl -H "Authorization: Bearer $(cat {token_file})" {service.url}/v1/jobs/{report["job"]["id"]}'
    )
    out.say(f"  {own_command()} purge stats {STORE} --url {service.url} --token-file {token_file}")
    if keep_serving:
        out.note("The service runs until Ctrl-C.")

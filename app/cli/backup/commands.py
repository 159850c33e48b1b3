"""`lethe backup`: a backup tool around an environment that is being erased."""

import shutil
import tempfile
import time
import uuid
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from lethe_client import BackupEnd, BackupSession, Gone, LetheError, NotFound, TransportFailed

from app.cli.backup.child_command import ChildCommand
from app.cli.backup.files import Kept, list_of, read_kept, with_lists, write_kept, write_whole
from app.cli.backup.lease import AGAIN_S, Renewal, end_in_time
from app.cli.shell.arguments import LIMIT_DEFAULT, Limit, States, StoreId
from app.cli.shell.complaints import complaint
from app.cli.shell.exits import Complaint, ExitCode
from app.cli.shell.session import Session, on_service
from app.kit.durations import parse_duration

app = typer.Typer(
    name="backup",
    no_args_is_help=True,
    add_completion=False,
    help="Copy an environment while it is being erased: no byte of it changes meanwhile.",
)

StoreOption = Annotated[str, typer.Option("--store", metavar="NAME", help="Id of the store.")]
Lease = Annotated[
    str,
    typer.Option("--lease", metavar="DURATION", help="PT30S to PT24H; `lethe backup renew` prolongs it."),
]
RunLease = Annotated[
    str,
    typer.Option(
        "--lease",
        metavar="DURATION",
        help="PT30S to PT24H, renewed four times in it: what the eraser waits for if this command dies, and "
        "how long the service may be away.",
    ),
]
AbortTimeout = Annotated[
    str | None,
    typer.Option("--timeout", metavar="DURATION", help="To stop the eraser; default: the store's."),
]
FileNames = Annotated[
    list[str] | None,
    typer.Option("--file", metavar="NAME", help="Such as 00000003.jdb; repeatable. Default: all."),
]
Mode = Annotated[str | None, typer.Option("--mode", help="BACKUP (default) or NETWORK_RESTORE.")]
Tool = Annotated[str | None, typer.Option("--tool", help="Who copies; default: the command's name.")]
Label = Annotated[str | None, typer.Option("--label", help="What for.")]
SessionFile = Annotated[
    Path, typer.Option("--session-file", metavar="PATH", help="Where the session's id is kept for the next.")
]
LEASE = "PT10M"
RUN_LEASE = "PT2M"
ABORT_TIMEOUT_S = 30.0
FILES_SHOWN_MAX = 20
STANDARD_ERROR = 2


def _duration(value: str | None, option: str) -> float:
    if value is None:
        return ABORT_TIMEOUT_S
    try:
        return parse_duration(value.upper()).total_seconds()
    except (ValueError, OverflowError):
        raise typer.BadParameter(f"{value!r} is no duration such as PT30S", param_hint=option) from None


def _request(
    *,
    mode: str | None,
    files: list[str] | None,
    lease: str,
    timeout: str | None,
    tool: str | None,
    label: str | None,
) -> dict[str, Any]:
    _duration(lease, "--lease")
    _duration(timeout, "--timeout")
    return {
        "mode": None if mode is None else mode.upper(),
        "files": files or None,
        "lease": lease.upper(),
        "erase_abort_timeout": None if timeout is None else timeout.upper(),
        "tool": tool,
        "label": label,
    }


def _begin(session: Session, store: str, request: dict[str, Any], key: str) -> BackupSession:
    wait_s = _duration(request["erase_abort_timeout"], "--timeout")
    until_s, was_sent = time.monotonic() + wait_s, False
    while True:
        try:
            return session.client.backups.begin(store, **request, wait_s=wait_s, idempotency_key=key)
        except TransportFailed as error:  # the same key gets the same answer, also after a restart
            was_sent |= error.maybe_done
            if not was_sent or time.monotonic() >= until_s:
                raise
            session.out.note(f"lethe: no answer yet: {error}")
        time.sleep(AGAIN_S)


def _facts(found: BackupSession) -> dict[str, Any]:
    return {
        "session": found.id,
        "store": found.store,
        "state": found.state,
        "valid": found.valid,
        "files": found.file_count,
        "bytes": found.total_bytes,
        "lease": found.lease,
        "lease ends": found.lease_expires_at,
        "eraser stopped": found.erasure_aborted,
        "ended": found.ended_at,
    }


@app.command("run", context_settings={"allow_interspersed_args": False})
@on_service
def run(
    session: Session,
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="{files}: a list of lines.")],
    *,
    store: StoreOption,
    lease: RunLease = RUN_LEASE,
    timeout: AbortTimeout = None,
    file: FileNames = None,
    mode: Mode = None,
    tool: Tool = None,
    label: Label = None,
) -> int:
    """Run a command while no byte of the environment's files changes; exit with its code.

    In the command `{files}` becomes the path of a list of the files, one a line, and `{files0}` of one with
    NULs. Exit 75: the command did well, but its copy is no backup; try again. A service that restarts
    meanwhile costs nothing, if it is back before the lease is over.

    Example: lethe backup run --store ledger -- restic backup /var/lib/ledger/je
    """
    if shutil.which(command[0]) is None:
        raise typer.BadParameter(f"there is no command {command[0]!r}", param_hint="COMMAND")
    tool = tool or Path(command[0]).name
    request = _request(mode=mode, files=file, lease=lease, timeout=timeout, tool=tool, label=label)
    begun = _begin(session, store, request, str(uuid.uuid4()))
    session.out.note(f"Backup {begun.id}: {begun.file_count} files, {begun.total_bytes:,} bytes")
    with tempfile.TemporaryDirectory(prefix="lethe-backup-") as directory, ExitStack() as undo:
        undo.callback(_end, session, begun, until_s=0.0)
        words = with_lists(command, begun.files, Path(directory))
        code, renewal = _copy(session, begun, words)
        undo.pop_all()
    return _judge(session, begun, code, renewal)


def _copy(session: Session, begun: BackupSession, words: list[str]) -> tuple[int, Renewal]:
    """Run the command under a lease that is renewed; its exit code, and what became of the lease."""
    child = ChildCommand(words, stdout=STANDARD_ERROR if session.out.json else None)
    renewal = Renewal(session.client, begun, session.out, on_loss=child.terminate)
    try:
        code = child.run(started=renewal.start)
    except OSError as error:
        session.out.note(f"lethe: {words[0]} cannot be run: {error.strerror}")
        code = ExitCode.USAGE
    finally:
        renewal.stop()
    return code, renewal


def _end(session: Session, begun: BackupSession, *, until_s: float) -> BackupEnd | LetheError:
    try:
        return end_in_time(session.client, begun.store, begun.id, session.out, until_s=until_s)
    except LetheError as error:
        return error


def _judge(session: Session, begun: BackupSession, code: int, renewal: Renewal) -> int:
    """End the session; the command's own failure comes before ours."""
    lost = renewal.lost
    ended = _end(session, begun, until_s=renewal.held_until_s if lost is None else 0.0)
    valid = isinstance(ended, BackupEnd) and bool(ended.valid) and lost is None
    reason = lost
    if isinstance(ended, LetheError):
        reason = reason or str(ended)
    elif not ended.valid:
        reason = _changed(ended)
    exit_code = code or (ExitCode.OK if valid else ExitCode.TRY_AGAIN)
    session.out.document(
        {
            "session": begun.id,
            "command_exit_code": code,
            "valid": valid,
            "reason": reason,
            "changed": [] if isinstance(ended, LetheError) else [each.raw for each in ended.changed],
        }
    )
    if valid:
        session.out.note(f"Backup {begun.id} is valid" if not code else f"The command failed with {code}")
    else:
        session.out.note(f"lethe: BACKUP_INVALID: {begun.id}: {reason}")
    return exit_code


def _changed(ended: BackupEnd) -> str:
    named = [f"{each.name} {each.fault}" for each in ended.changed[:FILES_SHOWN_MAX]]
    more = len(ended.changed) - len(named)
    return "changed meanwhile: " + ", ".join(named) + (f" and {more} more" if more else "")


@app.command("start")
@on_service
def start(
    session: Session,
    *,
    store: StoreOption,
    session_file: SessionFile,
    lease: Lease = LEASE,
    timeout: AbortTimeout = None,
    file: FileNames = None,
    mode: Mode = None,
    tool: Tool = None,
    label: Label = None,
    files_to: Annotated[
        Path | None,
        typer.Option("--files-to", metavar="PATH", help="Write the paths there, a line each."),
    ] = None,
    files0_to: Annotated[
        Path | None, typer.Option("--files0-to", metavar="PATH", help="The same, each ended by a NUL.")
    ] = None,
) -> int:
    """Begin a backup and keep its id in a file. Repeated while it lasts it answers the same session.

    Example: lethe backup start --store ledger --session-file /run/ledger.session
    """
    request = _request(mode=mode, files=file, lease=lease, timeout=timeout, tool=tool, label=label)
    kept = _going_on(session, session_file, store)
    begun = None if kept is None else _ask(session, session_file, kept)
    if begun is None or not session.client.backups.get(store, begun.id).is_live:
        begun = _ask(session, session_file, Kept(store, str(uuid.uuid4()), request))
    for path, separator in ((files_to, "\n"), (files0_to, "\0")):
        if path is not None:
            write_whole(path, list_of(begun.files, separator))
    session.out.document(begun.raw)
    session.out.facts(_facts(begun))
    return ExitCode.OK


def _ask(session: Session, session_file: Path, kept: Kept) -> BackupSession:
    """Begin the session of a key, or get the answer that it got; whoever comes after a kill asks the same."""
    write_kept(session_file, kept)
    try:
        begun = _begin(session, kept.store, kept.request, kept.key)
    except LetheError as error:
        if not getattr(error, "maybe_done", False):  # an answer: the key has no other
            session_file.unlink(missing_ok=True)
        raise
    write_kept(session_file, replace(kept, session_id=begun.id))
    return begun


def _going_on(session: Session, session_file: Path, store: str) -> Kept | None:
    """The session of the file, if it is still to be answered or still holds."""
    kept = read_kept(session_file)
    if kept is None or kept.session_id is None:
        return kept if kept is None or kept.store == store else None
    try:
        found = session.client.backups.get(kept.store, kept.session_id)
    except NotFound:
        return None
    if not found.is_live:
        return None
    if kept.store != store:
        raise typer.BadParameter(
            f"{session_file} holds a session of {kept.store} that has not ended", param_hint="--session-file"
        )
    return kept


def _named(session_file: Path) -> Kept:
    kept = read_kept(session_file)
    if kept is None or kept.session_id is None:
        raise typer.BadParameter(f"{session_file} holds no session", param_hint="--session-file")
    return kept


@app.command("renew")
@on_service
def renew(
    session: Session,
    *,
    session_file: SessionFile,
    lease: Annotated[
        str | None, typer.Option("--lease", metavar="DURATION", help="Default: as before.")
    ] = None,
) -> int:
    """Hold the files for longer, from now on. Exit 75 once the lease has run out.

    Example: lethe backup renew --session-file /run/ledger.session
    """
    _duration(lease, "--lease")
    kept = _named(session_file)
    try:
        found = session.client.backups.renew(
            kept.store, kept.session_id or "", lease=None if lease is None else lease.upper()
        )
    except Gone as error:
        return _gone(session, error)
    session.out.document(found.raw)
    session.out.facts(_facts(found))
    return ExitCode.OK


@app.command("end")
@on_service
def end(session: Session, *, session_file: SessionFile) -> int:
    """End the backup: exit 0 if every file stayed what it was, 75 if not. Once or ten times the same.

    Example: lethe backup end --session-file /run/ledger.session
    """
    kept = _named(session_file)
    session_id = kept.session_id or ""
    try:
        until_s = time.monotonic() + _duration(kept.request.get("lease"), "--lease")
        ended = end_in_time(session.client, kept.store, session_id, session.out, until_s=until_s)
    except Gone as error:
        return _gone(session, error)
    session.out.document(ended.raw)
    session.out.facts(_facts(ended))
    if ended.valid:
        return ExitCode.OK
    session.out.note(f"lethe: BACKUP_INVALID: {session_id}: {_changed(ended)}")
    return ExitCode.TRY_AGAIN


def _gone(session: Session, error: Gone) -> int:
    said = complaint(error)
    advice = "The copy is no backup; begin another."
    return session.out.complain(Complaint(said.code, said.detail, ExitCode.TRY_AGAIN, advice, said.document))


@app.command("status")
@on_service
def status(session: Session, *, session_file: SessionFile) -> int:
    """Show the session of the file. Exit 0 also where it is over.

    Example: lethe backup status --session-file /run/ledger.session
    """
    kept = _named(session_file)
    found = session.client.backups.get(kept.store, kept.session_id or "")
    session.out.document(found.raw)
    session.out.facts(_facts(found))
    return ExitCode.OK


@app.command("list")
@on_service
def list_sessions(
    session: Session,
    store: StoreId,
    *,
    state: States = None,
    limit: Limit = LIMIT_DEFAULT,
) -> int:
    """List the backups of a store.

    Example: lethe backup list ledger
    """
    states = [each.upper() for each in state or ()]
    found = list(islice(session.client.backups.list(store, states=states), limit))
    session.out.document({"items": [each.raw for each in found]})
    session.out.table(
        ["session", "state", "valid", "tool", "label", "files", "bytes", "begun", "lease ends"],
        [
            [
                each.id,
                each.state,
                each.valid,
                each.tool,
                each.label,
                each.file_count,
                each.total_bytes,
                each.created_at,
                each.lease_expires_at,
            ]
            for each in found
        ],
    )
    return ExitCode.OK

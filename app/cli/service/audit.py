"""`lethe audit`: who has done what, and whether the rows that tell it are as they were written."""

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import IO, Annotated, Any, Final

import typer
from lethe_client.audit_chain import FORMAT, LINE_BYTES_MAX, FileInvalid, VerifiedExport, verify_export
from lethe_client.operation import AuditProblem

from app.cli.shell.arguments import instant
from app.cli.shell.exits import Complaint, ExitCode
from app.cli.shell.session import Session, on_service

app = typer.Typer(
    name="audit", no_args_is_help=True, add_completion=False, help="Who has done what: list, export, verify."
)
STDOUT: Final = Path("-")
File = Annotated[Path | None, typer.Option("--file", help="An export, checked without any service.")]
Keys = Annotated[
    list[str] | None,
    typer.Option("--key", metavar="ed25519:...", help="Fingerprint that must have signed it. Repeatable."),
]
Since = Annotated[
    Path | None, typer.Option("--since", help="An export of before: the chain must still hold its head.")
]


@app.command("list")
@on_service
def list_rows(
    session: Session,
    *,
    action: Annotated[str | None, typer.Option(help="Such as purge.create.")] = None,
    actor: Annotated[str | None, typer.Option(help="The name of a token.")] = None,
    token: Annotated[str | None, typer.Option(help="The id of a token (tok_...).")] = None,
    store: Annotated[str | None, typer.Option(help="Only of this store.")] = None,
    subject: Annotated[str | None, typer.Option(help="Id of what was made or changed.")] = None,
    after: Annotated[
        str | None, typer.Option(metavar="TIME", help="Since then: RFC 3339, or a date.")
    ] = None,
    before: Annotated[
        str | None, typer.Option(metavar="TIME", help="Until then: RFC 3339, or a date.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="So many at most.")] = 100,
) -> int:
    """List audit rows, newest first.

    Example: lethe audit list --store shop --limit 20
    """
    rows = session.client.audit.list(
        action=action,
        actor=actor,
        token_id=token,
        store=store,
        subject_id=subject,
        created_after=instant(after, option="--after"),
        created_before=instant(before, option="--before"),
    )
    found = list(islice(rows, limit))
    session.out.document({"items": [row.raw for row in found]})
    session.out.table(
        ["seq", "at", "actor", "action", "subject", "store"],
        [[row.seq, row.at, row.actor, row.action, row.subject_id, row.store] for row in found],
    )
    return ExitCode.OK


@app.command("export")
@on_service
def export(
    session: Session,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A new file; - for stdout.")],
) -> int:
    """Write all audit rows as lines of JSON, and the signed head of their chain as the last one.

    Example: lethe audit export audit.jsonl
    """
    chain = session.client.audit.chain()
    rows = 0
    try:
        with _written(file) as out:
            _line(out, {"format": FORMAT, "anchor": asdict(chain.anchor), "adopted_seq": chain.adopted_seq})
            for row in session.client.audit.rows(after_seq=chain.anchor.seq, through_seq=chain.head.seq):
                _line(out, row)
                rows += 1
            _line(out, chain.signed)
    except FileExistsError:
        detail = f"{file} is there already"
        return session.out.complain(
            Complaint("FILE_EXISTS", detail, ExitCode.FAILED, "Name a new file: none is written over.")
        )
    except OSError as error:
        detail = f"{file}: {error.strerror}"
        return session.out.complain(Complaint("FILE_REFUSED", detail, ExitCode.FAILED))
    if file != STDOUT:
        session.out.document({"file": str(file), "rows": rows, "head": asdict(chain.head)})
        session.out.say(f"{rows} rows in {file}, up to row {chain.head.seq}.")
        session.out.note(f"Check it anywhere: lethe audit verify --file {file}")
    return ExitCode.OK


@contextlib.contextmanager
def _written(file: Path) -> Iterator[IO[bytes]]:
    """Stdout, or a new file that is on the disk at the end."""
    if file == STDOUT:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as out:
        yield out
        out.flush()
        os.fsync(out.fileno())


def _line(out: IO[bytes], document: Any) -> None:
    out.write(json.dumps(document, ensure_ascii=False).encode() + b"\n")


@app.command("verify")
@on_service
def verify(session: Session, *, file: File = None, key: Keys = None, since: Since = None) -> int:
    """Check that no audit row was changed, removed, inserted or moved; exit 1 where one was.

    Example: lethe audit verify --file audit.jsonl
    """
    if file is not None and since is not None:
        raise typer.BadParameter("it is for the service's own chain, not for a file", param_hint="--since")
    try:
        return (
            _verify_file(session, file, key or []) if file is not None else _verify(session, since, key or [])
        )
    except FileInvalid as error:
        return session.out.complain(Complaint("FILE_INVALID", str(error), ExitCode.FAILED))
    except OSError as error:
        detail = f"{error.filename}: {error.strerror}"
        return session.out.complain(Complaint("FILE_REFUSED", detail, ExitCode.FAILED))


def _lines(file: Path) -> Iterator[bytes]:
    with file.open("rb") as lines:
        while line := lines.readline(LINE_BYTES_MAX + 1):
            yield line


def _verify_file(session: Session, file: Path, keys: list[str]) -> int:
    found = verify_export(_lines(file), trusted=frozenset(keys))
    problems = [AuditProblem(code=each.code, seq=each.seq, detail=each.detail) for each in found.faults]
    facts = {
        "checked": str(file),
        "rows": found.checked,
        "head": found.head.seq,
        "exported at": found.exported_at,
        "signed with": found.key_id,
    }
    code = _told(session, facts, problems, found.more_faults)
    if found.key_id is not None and not found.is_pinned:
        session.out.note("The signature is of the key that the file itself brings; name yours by --key.")
    return code


def _verify(session: Session, since: Path | None, keys: list[str]) -> int:
    former = None if since is None else _former(since, keys)
    found = session.client.audit.verify()
    problems = list(found.problems)
    if former is not None and not _holds(session, former):
        detail = f"the chain does not hold row {former.head.seq} as the export {since} has it"
        problems.append(AuditProblem(code="EXPORT_DIFFERS", seq=former.head.seq, detail=detail))
    facts = {"checked": "the service's audit rows", "rows": found.checked, "head": found.head.seq}
    if former is not None:
        facts["holds the export up to"] = former.head.seq
    return _told(session, facts, problems, found.more_problems)


def _former(since: Path, keys: list[str]) -> VerifiedExport:
    """An export that is whole itself. Raises: FileInvalid."""
    found = verify_export(_lines(since), trusted=frozenset(keys))
    if found.faults:
        raise FileInvalid(f"{since} does not hold itself: lethe audit verify --file {since}")
    return found


def _holds(session: Session, former: VerifiedExport) -> bool:
    """Whether the row that was the head then is still there; one that was forgotten counts as there."""
    head = former.head
    chain = session.client.audit.chain()
    if head.seq <= chain.anchor.seq:
        return head.seq < chain.anchor.seq or head.hash == chain.anchor.hash
    rows = session.client.audit.rows(after_seq=head.seq - 1, through_seq=head.seq)
    return next((row.get("hash") for row in rows), None) == head.hash


def _told(session: Session, facts: dict[str, Any], problems: list[AuditProblem], more: int) -> int:
    session.out.document(
        {
            "ok": not problems,
            **{name.replace(" ", "_"): value for name, value in facts.items()},
            "problems": [asdict(each) for each in problems],
            "more_problems": more,
        }
    )
    session.out.facts(facts)
    for each in problems:
        session.out.note(f"{each.code}: {each.detail}")
    if not problems:
        session.out.say("Nothing is wrong with these rows.")
        return ExitCode.OK
    session.out.note(
        f"{len(problems) + more} problems. docs/reference/operations.md tells what each of them means."
    )
    return ExitCode.FAILED

"""`lethe certificate`: what a cycle has erased, signed; fetched, and checked without the service."""

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from lethe_client.certificates import (
    DOCUMENT_BYTES_MAX,
    CertificateInvalid,
    VerifiedCertificate,
    verify_certificate,
)

from app.cli.erasure.certificate_files import BAD, Finding, Outcome, compare_directory
from app.cli.shell.arguments import StoreId, Timeout
from app.cli.shell.exits import Complaint, ExitCode
from app.cli.shell.job_options import Wait
from app.cli.shell.output import Output
from app.cli.shell.session import Session, on_service
from app.cli.shell.streams import Words
from app.cli.shell.watching import finish

app = typer.Typer(
    name="certificate",
    no_args_is_help=True,
    add_completion=False,
    help="Certificates of erasure: fetch, check without the service, read the environment again.",
)

CURRENT: Final = "current"
FINGERPRINT: Final = re.compile(r"ed25519:[0-9a-f]{64}")
UNPINNED: Final = (
    "No key was named: the signature holds for the key inside the file, and anybody can make such a file. "
    "Name the key that you trust: --fingerprint, from `lethe certificate keys` or from your own records."
)
CycleId = Annotated[str, typer.Argument(metavar="[CYCLE]", help="Id of the cycle; default: the newest.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]


@app.command("get")
@on_service
def get(
    session: Session,
    store: StoreId,
    cycle: CycleId = CURRENT,
    *,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Default: standard output.")
    ] = None,
) -> int:
    """Fetch the certificate of a cycle that has ended: the same bytes for ever.

    Example: lethe certificate get ledger -o certificate.json
    """
    content = session.client.erasure.certificate(store, cycle)
    if output is None:
        Words(sys.stdout).write_bytes(content)
        return ExitCode.OK
    try:
        output.write_bytes(content)
    except OSError as error:
        detail = f"{output} cannot be written: {error.strerror}"
        return session.out.complain(Complaint("FILE_UNWRITABLE", detail, ExitCode.FAILED))
    session.out.document({"file": str(output), "bytes": len(content)})
    session.out.say(f"{output}: {len(content):,} bytes. Check it: lethe certificate verify {output}")
    return ExitCode.OK


@app.command("keys")
@on_service
def keys(session: Session) -> int:
    """List the public keys; what a retired one has signed holds for ever.

    Example: lethe certificate keys
    Example: lethe signing-key list
    """
    found = list(session.client.signing_keys.list())
    session.out.document({"items": [key.raw for key in found]})
    session.out.table(
        ["fingerprint", "instance", "created", "retired"],
        [(key.id, key.instance, key.created_at, key.retired_at) for key in found],
    )
    return ExitCode.OK


@app.command("recheck")
@on_service
def recheck(
    session: Session,
    store: StoreId,
    cycle: CycleId = CURRENT,
    *,
    wait: Wait = True,
    timeout: Timeout = None,
) -> int:
    """Let the service read the environment again. Exit 1 where something in use leads to an erased entry.

    Example: lethe certificate recheck ledger
    """
    job = session.client.erasure.verify(store, cycle)
    return finish(session, job, wait=wait, timeout_s=timeout)


@app.command("verify")
def verify(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The certificate.")],
    *,
    fingerprint: Annotated[
        list[str] | None,
        typer.Option("--fingerprint", metavar="KEY", help="A key that may have signed it. Repeatable."),
    ] = None,
    directory: Annotated[
        Path | None,
        typer.Option("--directory", metavar="DIR", help="Hash the environment's files again and compare."),
    ] = None,
    json: Json = False,
) -> int:
    """Check a certificate without the service. Exit 1 where it does not hold, or a file is not as proved.

    Example: lethe certificate verify certificate.json
    """
    trusted = frozenset(fingerprint or ())
    for each in trusted:
        if FINGERPRINT.fullmatch(each) is None:
            raise typer.BadParameter(f"{each!r} is not ed25519: and 64 digits", param_hint="--fingerprint")
    out = Output(json=json)
    try:
        found = verify_certificate(_read(file), trusted=trusted)
        facts = _facts(found)
        files = None if directory is None else _compare(found.certificate, directory)
    except CertificateInvalid as error:
        return out.complain(Complaint("CERTIFICATE_INVALID", f"{file}: {error}", ExitCode.FAILED))
    except OSError as error:
        return out.complain(Complaint("FILE_UNREADABLE", f"{file}: {error.strerror}", ExitCode.FAILED))
    except (KeyError, TypeError, ValueError) as error:
        detail = f"{file}: its signature holds, but it does not say what its format asks for ({error})"
        return out.complain(Complaint("CERTIFICATE_INVALID", detail, ExitCode.FAILED))
    _show(out, found, facts, files)
    return ExitCode.FAILED if files and any(each.outcome in BAD for each in files) else ExitCode.OK


def _read(file: Path) -> bytes:
    with file.open("rb") as opened:
        return opened.read(DOCUMENT_BYTES_MAX + 1)


def _compare(certificate: Mapping[str, Any], directory: Path) -> list[Finding]:
    if not directory.is_dir():
        raise typer.BadParameter(f"{directory} is no directory", param_hint="--directory")
    return list(compare_directory(certificate, directory))


def _facts(found: VerifiedCertificate) -> dict[str, Any]:
    said, totals = found.certificate, found.certificate["totals"]
    return {
        "store": said["store"],
        "cycle": said["cycle"]["id"],
        "state": said["cycle"]["state"],
        "began": said["cycle"]["started_at"],
        "ended": said["cycle"]["ended_at"],
        "directory": said["environment"]["path"],
        "files": totals["files"],
        "files erased and proved": totals["files_erased_and_proved"],
        "entries erased and proved": totals["entries_erased_and_proved"],
        "files that remain": totals["files_remaining"],
        "what stays readable": ", ".join(str(each["code"]) for each in said["stays_readable"]),
    }


def _show(
    out: Output, found: VerifiedCertificate, facts: Mapping[str, Any], files: Sequence[Finding] | None
) -> None:
    is_as_said = files is None or not any(each.outcome in BAD for each in files)
    out.document(
        {
            "valid": True,
            "key_id": found.key_id,
            "key_was_named": found.is_pinned,
            "facts": {name.replace(" ", "_"): value for name, value in facts.items()},
            "files": None if files is None else [each.document() for each in files],
            "files_are_as_proved": None if files is None else is_as_said,
        }
    )
    pinned = "one that you named" if found.is_pinned else "only the one inside the file"
    out.facts({"signature": "holds", "signed with": found.key_id, "the key is": pinned})
    out.facts(facts)
    if not found.is_pinned:
        out.note(UNPINNED)
    if files is None:
        return
    differing = [each for each in files if each.outcome is not Outcome.SAME]
    out.say(f"{len(files) - len(differing)} of {len(files)} files are as they were proved.")
    if differing:
        rows = [(each.file, each.outcome.value, each.detail) for each in differing]
        out.table(["file", "now", "what that means"], rows)

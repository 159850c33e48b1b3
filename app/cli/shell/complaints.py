"""What an error of the client means for the exit code and for the reader."""

import re
from typing import Any, Final
from urllib.parse import urlsplit

from lethe_client import (
    ConfigurationInvalid,
    LetheError,
    NotAuthenticated,
    PermissionDenied,
    PlanFailed,
    PreconditionFailed,
    ProblemError,
    RequestInvalid,
    ServerFailed,
    TransportFailed,
    UnexpectedAnswer,
    WaitTimedOut,
)

from app.cli.shell.exits import Complaint, ExitCode
from app.cli.shell.field_options import Shown, fault_text
from app.cli.shell.hints import command
from app.cli.shell.missing import shown_by, where_listed, which

CODE: Final = re.compile(r"[A-Z][A-Z0-9_]*")
HERE: Final = re.compile(r"localhost|127(?:\.[0-9]+){3}|::1")
PORT: Final = 8765
NO_OPTIONS: Final[Shown] = {}
SPEAKS_HTTP: Final = "wrong version number"
"""What OpenSSL says of an answer that is no TLS."""


def complaint(error: LetheError, *, options: Shown = NO_OPTIONS) -> Complaint:
    """Say what an error of the client means here.

    Args:
        options: of the command that has asked, which are named beside the fields that they filled.
    """
    if isinstance(error, ProblemError):
        return _of_problem(error, options)
    if isinstance(error, TransportFailed):
        return Complaint("SERVICE_UNREACHABLE", error.detail, ExitCode.TRY_AGAIN, _unreachable(error))
    if isinstance(error, WaitTimedOut):
        advice = f"The job goes on; follow it with: lethe job watch {error.job.id}"
        return Complaint("WAIT_TIMED_OUT", str(error), ExitCode.TRY_AGAIN, advice)
    if isinstance(error, PlanFailed):
        retryable = error.job.error is not None and error.job.error.retryable
        exit_code = ExitCode.TRY_AGAIN if retryable else ExitCode.FAILED
        return Complaint("PLAN_FAILED", str(error), exit_code, f"See: lethe job show {error.job.id}")
    if isinstance(error, ConfigurationInvalid):
        return Complaint("CONFIGURATION_INVALID", str(error), ExitCode.CONFIGURATION)
    if isinstance(error, UnexpectedAnswer):
        advice = "Is --url (LETHE_URL) the address of Lethe, and of a version that this command knows?"
        return Complaint("UNEXPECTED_ANSWER", str(error), ExitCode.CONFIGURATION, advice)
    raise AssertionError(f"an error of the client without an exit code: {type(error).__name__}") from error


def _unreachable(error: TransportFailed) -> str:
    if SPEAKS_HTTP in error.detail.lower().replace("_", " "):
        plain = error.url.replace("https://", "http://", 1)
        return f"The service there speaks http, not https; give it so: --url {plain}"
    advice = "Is the service running, and is its address right: --url, LETHE_URL, lethe profile list?"
    if error.maybe_done:
        return f"{advice} The request may have been carried out: look before you repeat it."
    address = urlsplit(error.url)
    if address.scheme == "http" and HERE.fullmatch(address.hostname or ""):
        port = address.port or 80
        options = {"--data-dir": "DIR", "--port": None if port == PORT else port}
        return f"{advice} Start it: {command('serve', options=options)}"
    return advice


def _stranger(error: ProblemError) -> Complaint:
    """An answer without a code of Lethe's: of another service, or of a proxy."""
    exit_code, _ = _meaning(error)
    detail = f"something answers at {error.url}, but it is not Lethe (HTTP {error.status})"
    advice = "Check --url or LETHE_URL."
    if exit_code is ExitCode.TRY_AGAIN:
        advice += " A proxy answers so while Lethe behind it is away: try again later."
    said = Complaint("UNEXPECTED_ANSWER", detail, exit_code, advice)
    document: dict[str, Any] = {**said.problem(), "status": error.status}
    return Complaint(said.code, detail, exit_code, advice, document)


def _of_problem(error: ProblemError, options: Shown) -> Complaint:
    if not CODE.fullmatch(str(error.document.get("code") or "")):
        return _stranger(error)
    faults = [fault_text(fault, options) for fault in error.errors]
    detail = "; ".join(faults if _is_repeated(error) else [which(error), *faults])
    exit_code, advice = _meaning(error)
    return Complaint(error.code, detail, exit_code, advice, error.document)


def _is_repeated(error: ProblemError) -> bool:
    """Whether the one fault of a request says all that the detail does."""
    fault = str(error.errors[0].get("detail") or "") if len(error.errors) == 1 else ""
    return bool(fault) and error.detail.endswith(fault)


def _meaning(error: ProblemError) -> tuple[ExitCode, str]:
    if isinstance(error, NotAuthenticated):
        return (
            ExitCode.NOT_ALLOWED,
            "Give a valid token: lethe login, LETHE_TOKEN, --token-file, or --data-dir of the service.",
        )
    if isinstance(error, PermissionDenied):
        return ExitCode.NOT_ALLOWED, "The token lacks a scope or this store; see: lethe token list"
    if error.retryable or error.status in (429, 503):
        return ExitCode.TRY_AGAIN, "This passes; try again later."
    if isinstance(error, RequestInvalid):
        return ExitCode.USAGE, ""
    if isinstance(error, PreconditionFailed):
        return ExitCode.FAILED, "It changed in the meantime; look at it again, then repeat."
    if isinstance(error, ServerFailed):
        request = f"The service's log has it under request id {error.request_id}."
        return (ExitCode.BUG if error.status == 500 else ExitCode.FAILED), request
    if error.code == "NOT_FOUND":
        return ExitCode.FAILED, "Check --url or LETHE_URL: it is given without /v1. Or the service is older."
    if listed := where_listed(error):
        return ExitCode.FAILED, listed
    return ExitCode.FAILED, shown_by(error)

"""`lethe ds389 lost`: was anything lost, by files that servers have left. No service is asked."""

import gzip
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated, Any, Final, TypeVar

import typer

from app.cli.shell.exits import Complaint, ExitCode
from app.cli.shell.output import Output
from spark.replication.ds389.evidence import (
    EvidenceUnreadable,
    Session,
    read_changelog,
    read_results,
    read_sessions,
)
from spark.replication.ds389.lost import Evidence, Judged, Lost, Verdict, document_of, find_lost

T = TypeVar("T")
GZIP: Final = b"\x1f\x8b"
FOUND: Final = 1
RIDS: Final = (1, 65_534)
OfServer = "RID=FILE"

Changelogs = Annotated[
    list[str] | None,
    typer.Option("--changelog", metavar=OfServer, help="Export of a server's changelog. Repeatable."),
]
Logs = Annotated[
    list[str] | None,
    typer.Option("--access-log", metavar=OfServer, help="Access log of a server. Repeatable."),
]
Sessions = Annotated[
    list[Path] | None,
    typer.Option(
        "--sessions",
        metavar="FILE",
        help="Error log of a supplier at level 8192, or recorded sessions as JSON lines. Repeatable.",
    ),
]


def lost(
    changelog: Changelogs = None,
    sessions: Sessions = None,
    access_log: Logs = None,
    show_sessions: Annotated[
        bool, typer.Option("--show-sessions", help="What each session should have sent, and did.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> int:
    """Name every change that a server lacks although its RUV covers it. Exit 1 where one is proved.

    Example: lethe ds389 lost --changelog 1=s1.ldif --changelog 2=s2.ldif --sessions /var/log/s1/errors
    """
    out = Output(json=json)
    if not (changelog or sessions or access_log):
        raise typer.BadParameter("give at least one file", param_hint="--changelog / --sessions")
    try:
        evidence = Evidence(
            histories=_of_servers(changelog, "--changelog", read_changelog),
            sessions=_sessions(sessions or []),
            results=_of_servers(access_log, "--access-log", read_results),
        )
    except _Unreadable as error:
        advice = "Give the file of one server, whole, as text or gzip."
        return out.complain(Complaint("EVIDENCE_UNREADABLE", str(error), ExitCode.FAILED, advice))
    verdict = find_lost(evidence)
    out.document(document_of(verdict))
    _say(out, verdict, show_sessions=show_sessions)
    return FOUND if any(each.is_proved for each in verdict.lost) else ExitCode.OK


class _Unreadable(Exception):
    """A file that cannot be used."""


def _of_servers(
    values: Sequence[str] | None, option: str, read: Callable[[Iterator[str]], T]
) -> dict[int, T]:
    found: dict[int, T] = {}
    for value in values or ():
        text, _, name = value.partition("=")
        if not name or not (text.isascii() and text.isdigit()) or not RIDS[0] <= int(text) <= RIDS[1]:
            raise typer.BadParameter(f"{value!r} is not {OfServer}", param_hint=option)
        if int(text) in found:
            raise typer.BadParameter(f"RID {text} is given twice", param_hint=option)
        found[int(text)] = _read(Path(name), read)
    return found


def _sessions(paths: Sequence[Path]) -> list[Session]:
    return [each for path in paths for each in _read(path, read_sessions)]


def _read(path: Path, read: Callable[[Iterator[str]], T]) -> T:
    try:
        with _lines(path) as lines:
            return read(iter(lines))
    except EvidenceUnreadable as error:
        raise _Unreadable(f"{path}: {error}") from error
    except (OSError, EOFError) as error:
        raise _Unreadable(f"{path}: {getattr(error, 'strerror', None) or error}") from error


@contextmanager
def _lines(path: Path) -> Iterator[IO[str]]:
    with path.open("rb") as raw:
        is_gzip = raw.read(len(GZIP)) == GZIP
    opener: Any = gzip.open if is_gzip else open
    with opener(path, "rt", encoding="utf-8", errors="replace") as text:
        yield text


def _say(out: Output, verdict: Verdict, *, show_sessions: bool) -> None:
    proved = sum(each.is_proved for each in verdict.lost)
    suspected = len(verdict.lost) - proved
    out.say(
        f"{verdict.known} changes and {len(verdict.sessions)} sessions are known:"
        f" {proved} lost, {suspected} suspected."
    )
    if verdict.lost:
        out.table(
            ["lost change", "not at RID", "why", "session", "there may be more in"],
            [
                [each.csn, each.server, each.why.value, _session(each, verdict), _stretch(each)]
                for each in verdict.lost
            ],
        )
    if show_sessions:
        out.table(
            ["session", "began", "to RID", "outcome", "should", "sent", "held", "lost"],
            [_row(each) for each in verdict.sessions],
        )


def _session(one: Lost, verdict: Verdict) -> str:
    if one.session is None:
        return "" if one.result is None else f"LDAP result {one.result}"
    by = verdict.sessions[one.session].session
    return f"{by.agreement} {'' if by.at is None else by.at.isoformat(timespec='seconds')}".strip()


def _stretch(one: Lost) -> str:
    return "" if one.upto is None else f"{one.after or 'the first'} to {one.upto}"


def _row(each: Judged) -> list[object]:
    by = each.session
    began = "" if by.at is None else by.at.isoformat(timespec="seconds")
    outcome = each.outcome.value if each.reason is None else f"{each.outcome.value} ({each.reason.value})"
    counts = [len(each.should), len(by.sent), len(each.held), len(each.lost)]
    return [by.agreement, began, by.consumer, outcome, *counts]

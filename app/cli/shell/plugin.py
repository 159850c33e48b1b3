"""What a plugin of Nagios and its like prints and how it ends: one line of status, then lines of findings.

Source: the Monitoring Plugins' development guidelines.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

import typer

from app.cli.shell.exits import Complaint
from app.cli.shell.output import Output

UNKNOWN: Final = 3
_CODES: Final = {"OK": 0, "WARNING": 1, "CRITICAL": 2}
_SEPARATOR: Final = "|"
"""Behind it stand figures: it must not be in the words before."""


class Health(Protocol):
    """What a service says of the state of something."""

    @property
    def status(self) -> str: ...

    @property
    def raw(self) -> Mapping[str, Any]: ...


def exit_code(status: str) -> int:
    """Of OK, WARNING and CRITICAL; all else is UNKNOWN, what only a newer service knows too."""
    return _CODES.get(status, UNKNOWN)


def line(text: str) -> str:
    """A text as one line without figures."""
    return " ".join(text.replace(_SEPARATOR, "/").split())


def status_line(subject: str, status: str, summary: str, figures: Iterable[str]) -> str:
    """The first line; `figures`: each `'label'=value[unit];warn;crit;min`."""
    return f"{subject} {status} - {line(summary)} {_SEPARATOR} {' '.join(figures)}"


def require_one(store: str | None, whole: str | None, *, name: str) -> None:
    """Refuse both, and neither, of a store and a whole that is named by an option.

    Raises: typer.BadParameter.
    """
    if (store is None) == (whole is None):
        detail = f"name a store or a {name}, and one of them"
        raise typer.BadParameter(detail, param_hint=f"STORE / --{name}")


def summed_up(asked: str, details: Sequence[str]) -> str:
    """Who was asked, and what is wrong first."""
    if not details:
        return f"{asked}, nothing is wrong"
    more = len(details) - 1
    return f"{asked}: {details[0]}" + (f" (and {more} more)" if more else "")


def tell(out: Output, subject: str, found: Health, *, first: str, figures: Iterable[str]) -> None:
    """The document, and the line of status; `first`: what is said behind it."""
    out.document(found.raw)
    out.say(status_line(subject, found.status, first, figures))


def unknown(subject: str) -> Callable[[Output, Complaint], int]:
    """How such a command ends when the service cannot be asked: nobody knows."""

    def refused(out: Output, complaint: Complaint) -> int:
        said = f"{complaint.code}: {complaint.detail} {complaint.advice}".strip()
        out.say(f"{subject} UNKNOWN - {line(said)}")
        out.document(complaint.problem())
        return UNKNOWN

    return refused

"""What a plugin of Nagios and its like prints and how it ends: one line of status, then lines of findings.

Source: the Monitoring Plugins' development guidelines.
"""

from collections.abc import Callable, Iterable
from typing import Final

from app.cli.shell.exits import Complaint
from app.cli.shell.output import Output

UNKNOWN: Final = 3
_CODES: Final = {"OK": 0, "WARNING": 1, "CRITICAL": 2}
_SEPARATOR: Final = "|"
"""Behind it stand figures: it must not be in the words before."""


def exit_code(status: str) -> int:
    """Of OK, WARNING and CRITICAL; all else is UNKNOWN, what only a newer service knows too."""
    return _CODES.get(status, UNKNOWN)


def line(text: str) -> str:
    """A text as one line without figures."""
    return " ".join(text.replace(_SEPARATOR, "/").split())


def status_line(subject: str, status: str, summary: str, figures: Iterable[str]) -> str:
    """The first line; `figures`: each `'label'=value[unit];warn;crit;min`."""
    return f"{subject} {status} - {line(summary)} {_SEPARATOR} {' '.join(figures)}"


def unknown(subject: str) -> Callable[[Output, Complaint], int]:
    """How such a command ends when the service cannot be asked: nobody knows."""

    def refused(out: Output, complaint: Complaint) -> int:
        said = f"{complaint.code}: {complaint.detail} {complaint.advice}".strip()
        out.say(f"{subject} UNKNOWN - {line(said)}")
        out.document(complaint.problem())
        return UNKNOWN

    return refused

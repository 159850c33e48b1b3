"""Small acts that want a reason and no plan: each is one operation of the API."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from app.auth.scopes import Scope

Call = tuple[str, tuple[str, ...], Any]
BACKUPS: Final = "/console/backups"
SCHEDULES: Final = "/console/schedules"
VERIFICATIONS: Final = "/console/jobs?kind=ARCHIVE_VERIFY"


@dataclass(frozen=True, slots=True, kw_only=True)
class Doing:
    """An act on one thing.

    Args:
        text: of the button.
        meaning: what it does, for whoever is about to do it.
        scopes: one of them is needed.
        call: from the id and the store (empty: it has none) to method, path and body.
        back: the page that shows what became of it.
    """

    text: str
    meaning: str
    scopes: tuple[Scope, ...]
    call: Callable[[str, str], Call]
    back: str
    is_danger: bool = True


def _ended(things: str) -> Callable[[str, str], Call]:
    """`:end` of one of a store's things, whose id is the subject."""
    return lambda subject, store: ("POST", ("stores", store, things, f"{subject}:end"), None)


def _of_schedule(verb: str, *, meaning: str) -> Doing:
    """A schedule pauses, or comes again: it takes nothing away."""
    return Doing(
        text=f"{verb.capitalize()} the schedule",
        meaning=meaning,
        scopes=(Scope.SCHEDULES_WRITE,),
        call=lambda subject, _: ("POST", ("schedules", f"{subject}:{verb}"), None),
        back=SCHEDULES,
        is_danger=False,
    )


def _deleted(one: str, *, scope: Scope, meaning: str) -> Doing:
    return Doing(
        text=f"Delete the {one}",
        meaning=meaning,
        scopes=(scope,),
        call=lambda subject, _: ("DELETE", (f"{one}s", subject), None),
        back=SCHEDULES,
    )


DOINGS: Final[Mapping[str, Doing]] = {
    "backup-end": Doing(
        text="End the backup",
        meaning="Its files are no longer kept from the eraser. The answer tells whether the copy is valid.",
        scopes=(Scope.BACKUPS_WRITE,),
        call=_ended("backup-sessions"),
        back=BACKUPS,
    ),
    "protection-end": Doing(
        text="End the protection",
        meaning="Its files may be erased from now on, whoever still reads them.",
        scopes=(Scope.BACKUPS_WRITE, Scope.ERASURE_WRITE),
        call=_ended("protections"),
        back=BACKUPS,
    ),
    "erasure-abort": Doing(
        text="Abort erasure in its files",
        meaning=(
            "The round that is at work in a file of this protection ends. The cycle goes on with other files."
        ),
        scopes=(Scope.BACKUPS_WRITE, Scope.ERASURE_WRITE),
        call=lambda subject, store: ("POST", ("stores", store, "erasure:abort"), {"protection_id": subject}),
        back=BACKUPS,
    ),
    "archive-verify": Doing(
        text="Verify the archive",
        meaning="A job reads its files again and holds them against what was written. Nothing is changed.",
        scopes=(Scope.EVIDENCE_VERIFY,),
        call=lambda subject, _: ("POST", ("archives", f"{subject}:verify"), None),
        back=VERIFICATIONS,
        is_danger=False,
    ),
    "schedule-pause": _of_schedule(
        "pause", meaning="Nothing comes of it until it is resumed. A job that runs goes on."
    ),
    "schedule-resume": _of_schedule("resume", meaning="It comes again at its next due time."),
    "schedule-delete": _deleted(
        "schedule",
        scope=Scope.SCHEDULES_WRITE,
        meaning="It is gone, with the note of its last run. Its jobs stay.",
    ),
    "window-delete": _deleted(
        "window",
        scope=Scope.WINDOWS_WRITE,
        meaning="It holds no job any more: jobs that rest because of it begin again.",
    ),
}

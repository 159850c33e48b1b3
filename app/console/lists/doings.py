"""Small acts that want a reason and no plan: each is one operation of the API."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from app.auth.scopes import Scope

Call = tuple[str, tuple[str, ...], Any]
BACKUPS: Final = "/console/backups"
SCHEDULES: Final = "/console/schedules"


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


DOINGS: Final[Mapping[str, Doing]] = {
    "backup-end": Doing(
        text="End the backup",
        meaning="Its files are no longer kept from the eraser. The answer tells whether the copy is valid.",
        scopes=(Scope.BACKUPS_WRITE,),
        call=lambda subject, store: ("POST", ("stores", store, "backup-sessions", f"{subject}:end"), None),
        back=BACKUPS,
    ),
    "protection-end": Doing(
        text="End the protection",
        meaning="Its files may be erased from now on, whoever still reads them.",
        scopes=(Scope.BACKUPS_WRITE, Scope.ERASURE_WRITE),
        call=lambda subject, store: ("POST", ("stores", store, "protections", f"{subject}:end"), None),
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
    "schedule-pause": Doing(
        text="Pause the schedule",
        meaning="Nothing comes of it until it is resumed. A job that runs goes on.",
        scopes=(Scope.SCHEDULES_WRITE,),
        call=lambda subject, _: ("POST", ("schedules", f"{subject}:pause"), None),
        back=SCHEDULES,
        is_danger=False,
    ),
    "schedule-resume": Doing(
        text="Resume the schedule",
        meaning="It comes again at its next due time.",
        scopes=(Scope.SCHEDULES_WRITE,),
        call=lambda subject, _: ("POST", ("schedules", f"{subject}:resume"), None),
        back=SCHEDULES,
        is_danger=False,
    ),
    "schedule-delete": Doing(
        text="Delete the schedule",
        meaning="It is gone, with the note of its last run. Its jobs stay.",
        scopes=(Scope.SCHEDULES_WRITE,),
        call=lambda subject, _: ("DELETE", ("schedules", subject), None),
        back=SCHEDULES,
    ),
    "window-delete": Doing(
        text="Delete the window",
        meaning="It holds no job any more: jobs that rest because of it begin again.",
        scopes=(Scope.WINDOWS_WRITE,),
        call=lambda subject, _: ("DELETE", ("windows", subject), None),
        back=SCHEDULES,
    ),
}

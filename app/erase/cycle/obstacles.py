"""Why nothing can be done now: what a job waits for, and when it is not worth waiting.

The document waits with everything until the cycle's end. A cycle without an end (PT0S) waits for what
somebody else will end: a backup, a lock, a truncation that the engine could do. For the end of the log alone
it would wait for ever where writing has stopped: it ends INCOMPLETE and says so.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from sqlmodel import Session

from app.erase.cycle.attempt import Attempt
from app.erase.cycle.file_work import Blocked
from app.erase.messages import hex_ranges
from app.jobs.errors import JobWaiting
from app.jobs.models import WaitingOn
from app.protection.rows import Protection
from app.protection.service import active_protections, protection_key
from spark.erase.helper.helper import Act, command
from spark.erase.reading.properties import VLSNS_LEFT_DEFAULT
from spark.erase.reasons import Cause

TAIL: Final = "TAIL_OF_LOG"
VLSN_TRUNCATION: Final = "VLSN_TRUNCATION"
EXTINCTION_METADATA: Final = "EXTINCTION_METADATA"
KINDS: Final = {
    Cause.RECOVERY_INTERVAL: TAIL,
    Cause.TAIL_OF_LOG: TAIL,
    Cause.VLSN_INDEX: VLSN_TRUNCATION,
    Cause.NO_VLSN: "NO_VLSN",
    Cause.EXTINCTION_METADATA: EXTINCTION_METADATA,
}
"""Cause of a file to what its job waits for."""
PROTECTIONS_SHOWN_MAX: Final = 5


@dataclass(slots=True)
class Obstacles:
    """What stands in the way of the files that remain.

    Attributes:
        by_file: number -> cause; files without one are free.
        protections: those that cover a file that remains.
        seen: ids and versions of all active protections of the store.
        blocked: files that are left alone for a while without a protection that we know.
    """

    by_file: dict[int, str] = field(default_factory=dict)
    protections: dict[str, Protection] = field(default_factory=dict)
    seen: frozenset[tuple[str, int]] = frozenset()
    blocked: list[Blocked] = field(default_factory=list)

    def causes(self) -> list[str]:
        """Each cause once, in the order of the files."""
        return list(dict.fromkeys(self.by_file.values()))

    def shown(self) -> dict[str, str]:
        """Files by cause, as ranges."""
        return {
            cause: hex_ranges(number for number, each in self.by_file.items() if each == cause)
            for cause in self.causes()
        }


def waits_for(attempt: Attempt, obstacles: Obstacles) -> JobWaiting | None:
    """The wait for what stands in the way; None: nothing of it would end in a cycle without an end."""
    if attempt.cycle.ends_at is None and not _ends_by_itself(attempt, obstacles):
        return None
    waiting_on = _waiting_on(attempt, obstacles)
    times = [row.lease_expires_at for row in obstacles.protections.values()]
    times += [blocked.until for blocked in obstacles.blocked]
    settings = attempt.context.settings
    # Whether an extinction is committed is known soon.
    is_soon = str(Cause.EXTINCTION_METADATA) in obstacles.by_file.values()
    seconds = settings.erasure_environment_look_s if is_soon else settings.erasure_look_again_s
    soonest_s = min([seconds, *((at - attempt.now).total_seconds() for at in times)])
    store = attempt.store.id

    def overtaken(db: Session) -> bool:
        active = active_protections(db, store, now=attempt.now)
        return frozenset((row.id, row.version) for row in active) != obstacles.seen

    return attempt.wait_for(
        waiting_on, max(0.0, soonest_s), wake_key=protection_key(store), overtaken=overtaken
    )


def _ends_by_itself(attempt: Attempt, obstacles: Obstacles) -> bool:
    if obstacles.protections or obstacles.blocked:
        return True
    if str(Cause.EXTINCTION_METADATA) in obstacles.by_file.values():
        return True
    vlsn = (attempt.cycle.plan or {}).get("vlsn") or {}
    return str(Cause.VLSN_INDEX) in obstacles.by_file.values() and bool(vlsn.get("truncate_possible"))


def _waiting_on(attempt: Attempt, obstacles: Obstacles) -> list[WaitingOn]:
    found = [
        WaitingOn(kind="BACKUP", ref=row.backup_session_id or row.id, until=row.lease_expires_at)
        for row in list(obstacles.protections.values())[:PROTECTIONS_SHOWN_MAX]
    ]
    found += [blocked.waiting_on for blocked in obstacles.blocked[:PROTECTIONS_SHOWN_MAX]]
    ends_at = attempt.cycle.ends_at
    for cause in obstacles.causes():
        if cause in KINDS and KINDS[Cause(cause)] not in [item.kind for item in found]:
            found.append(_passing(attempt, Cause(cause), obstacles, ends_at))
    return found


def _passing(attempt: Attempt, cause: Cause, obstacles: Obstacles, until: datetime | None) -> WaitingOn:
    plan: dict[str, Any] = attempt.cycle.plan or {}
    files = obstacles.shown()[str(cause)]
    vlsn = plan.get("vlsn") or {}
    if KINDS[cause] == VLSN_TRUNCATION and vlsn.get("truncate_to_vlsn") is not None:
        files = f"VLSN {vlsn['truncate_to_vlsn']}, file {vlsn['truncate_to_file']:#x}"
        if vlsn.get("truncate_possible"):
            files += f"; with the application closed: {command(attempt.directory, Act.TRUNCATE)}"
        else:
            stay = vlsn.get("left_min", VLSNS_LEFT_DEFAULT)
            files += f"; not yet: {stay:,} VLSNs must stay; this tells more: "
            files += command(attempt.directory, Act.SHOW)
    return WaitingOn(kind=KINDS[cause], ref=files, until=until)

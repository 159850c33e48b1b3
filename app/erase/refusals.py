"""What a refusal of the hands means to a whole job: what passes is waited for, the rest fails it by name."""

from typing import Final

from app.jobs.errors import JobFailed, JobWaiting
from app.jobs.models import WaitingOn
from spark.erase.calls.calls import Refusal, RefusalCode

WHERE_MAX_CHARS: Final = 200
LOG_FILE_CHANGED: Final = "LOG_FILE_CHANGED"
LIVE_BACKUP_UNKNOWN: Final = "LIVE_BACKUP_UNKNOWN"
"""A backup that did not ask us may still be reading; nothing tells when it has ended."""
ENVIRONMENT_IN_USE: Final = "ENVIRONMENT_IN_USE"
LOG_MOVED: Final = "LOG_MOVED"
"""The log was written, or JE has deleted a file, so that a reading did not survive it: it is read anew."""
IN_USE: Final = frozenset({RefusalCode.ENVIRONMENT_IN_USE, RefusalCode.READER_PRESENT})
TRANSIENT: Final = frozenset({RefusalCode.EPOCH_PASSED, RefusalCode.STOPPED, RefusalCode.FILE_LOCKED})
MENDED_BY_A_CLAIM: Final = frozenset({"CONTROL_FILE_MISSING", "CONTROL_FILE_INVALID"})
"""The next attempt makes the control file anew, with every range that the metadata knows."""


def in_use(refusal: Refusal) -> WaitingOn | None:
    """What a job waits for where somebody else has the environment, or writes to it right now."""
    if refusal.code is RefusalCode.LOG_REFUSED and refusal.ref == LIVE_BACKUP_UNKNOWN:
        return WaitingOn(kind="BACKUP_MARKER", ref=where(refusal)[:WHERE_MAX_CHARS])
    changed = refusal.code is RefusalCode.LOG_REFUSED and refusal.ref == LOG_FILE_CHANGED
    if refusal.code is RefusalCode.LOG_MOVED or changed:
        kind = LOG_MOVED
    elif refusal.code in IN_USE:
        kind = ENVIRONMENT_IN_USE
    else:
        return None
    return WaitingOn(kind=kind, ref=(refusal.file or where(refusal))[:WHERE_MAX_CHARS])


def failure(refusal: Refusal) -> JobWaiting | JobFailed:
    """The end of an attempt by a refusal that is not waited for."""
    code = refusal.code
    is_mended = code is RefusalCode.CONTROL_FILE_INVALID and refusal.ref in MENDED_BY_A_CLAIM
    if code in TRANSIENT or is_mended:
        waiting = [WaitingOn(kind=code.value, ref=refusal.detail[:WHERE_MAX_CHARS])]
        return JobWaiting(waiting, not_before=None, transient=True, code=code.value, detail=refusal.detail)
    named = code in (RefusalCode.LOG_REFUSED, RefusalCode.CONTROL_FILE_INVALID)
    name = refusal.ref if named and refusal.ref else code.value
    return JobFailed(name, where(refusal))


def where(refusal: Refusal) -> str:
    """The detail of a refusal, with file and offset before it; its code stands beside it."""
    detail = refusal.detail.removeprefix(f"{refusal.ref}: ") if refusal.ref else refusal.detail
    if refusal.file is None:
        return detail
    place = refusal.file if refusal.offset is None else f"{refusal.file}, offset {refusal.offset}"
    return f"{place}: {detail}"

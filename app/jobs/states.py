"""The states of a job and the one table of its transitions (api.md, Jobs)."""

from collections.abc import Mapping
from enum import StrEnum


class JobState(StrEnum):
    """Where a job stands."""

    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    WAITING = "WAITING"
    PAUSING = "PAUSING"
    PAUSED = "PAUSED"
    ABORTING = "ABORTING"
    ABORTED = "ABORTED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    ABANDONED = "ABANDONED"
    """Ended by an admin's word: its target is gone for good, and nobody can prove that it writes no more."""


TERMINAL = frozenset({JobState.ABORTED, JobState.SUCCEEDED, JobState.FAILED, JobState.ABANDONED})
ACTIVE = frozenset(JobState) - TERMINAL
HELD = frozenset({JobState.RUNNING, JobState.PAUSING, JobState.ABORTING})
"""The states in which a runner holds a lease."""

_S = JobState
TRANSITIONS: Mapping[JobState, frozenset[JobState]] = {
    # QUEUED and WAITING go through PAUSING or ABORTING where an earlier runner may still write: proof first
    _S.QUEUED: frozenset({_S.RUNNING, _S.PAUSED, _S.ABORTED, _S.PAUSING, _S.ABORTING}),
    _S.WAITING: frozenset({_S.RUNNING, _S.PAUSED, _S.ABORTED, _S.PAUSING, _S.ABORTING, _S.ABANDONED}),
    _S.RUNNING: frozenset({_S.WAITING, _S.SUCCEEDED, _S.FAILED, _S.PAUSING, _S.ABORTING, _S.QUEUED}),
    # A resume takes the order back: of the runner that holds it, or (QUEUED) where none does.
    _S.PAUSING: frozenset({_S.PAUSED, _S.ABORTING, _S.RUNNING, _S.QUEUED, _S.ABANDONED}),
    # through ABORTING only a parent, whose many children are aborted piece by piece
    _S.PAUSED: frozenset({_S.QUEUED, _S.ABORTED, _S.ABORTING}),
    _S.ABORTING: frozenset({_S.ABORTED, _S.ABANDONED}),
    _S.ABORTED: frozenset(),
    _S.SUCCEEDED: frozenset(),
    _S.FAILED: frozenset(),
    _S.ABANDONED: frozenset(),
}


def sources_of(target: JobState) -> list[JobState]:
    """The states that may become `target`, for the guard of an UPDATE."""
    return sorted(state for state, targets in TRANSITIONS.items() if target in targets)


def is_allowed(source: JobState, target: JobState) -> bool:
    """Tell whether the table has this transition."""
    return target in TRANSITIONS[source]

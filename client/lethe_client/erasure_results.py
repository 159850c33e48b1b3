"""Erasure cycles, their files and plans, as frozen values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from lethe_client.literals import CycleState, FileState, JobState
from lethe_client.results import Result


@dataclass(frozen=True, kw_only=True)
class Amount(Result):
    """So many entries, and the bytes of their items, by a reason to erase or a cause to keep."""

    code: str
    entries: int = 0
    bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class FileCause(Result):
    """Why nothing of a file is erased."""

    cause: str
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class PlannedFile(Result):
    file: str
    size_bytes: int = 0
    created_at: datetime | None = None
    causes: tuple[FileCause, ...] = ()
    erase: tuple[Amount, ...] = ()
    keep: tuple[Amount, ...] = ()
    reserved: bool = False
    deleted: bool = False


@dataclass(frozen=True, kw_only=True)
class ErasurePlan(Result):
    """What a cycle would do; name `plan_id` in a cycle to erase this and no more. Nothing was written."""

    plan_id: str
    store: str
    mode: str
    kinds: tuple[str, ...] = ()
    cutoff: datetime | None = None
    files: tuple[PlannedFile, ...] = ()
    erase: tuple[Amount, ...] = ()
    keep: tuple[Amount, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    expires_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class ErasureCycle(Result):
    """A cycle; `files` counts files by state, `stats` has the document's names."""

    id: str
    store: str
    job_id: str
    job_state: JobState | None = None
    state: CycleState
    origin: str = ""
    mode: str | None = None
    engine: str = ""
    period: timedelta | None = None
    min_file_age: timedelta | None = None
    duration: timedelta | None = None
    kinds: tuple[str, ...] = ()
    created_at: datetime | None = None
    started_at: datetime | None = None
    cutoff: datetime | None = None
    ends_at: datetime | None = None
    ended_at: datetime | None = None
    throttle: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, int] = field(default_factory=dict)
    plan: Mapping[str, Any] | None = None
    incomplete: Mapping[str, Any] | None = None
    stats: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ErasureFile(Result):
    """One file of a cycle; `raw` has all of it."""

    file: str
    state: FileState
    size_bytes: int = 0
    created_at: datetime | None = None
    causes: tuple[FileCause, ...] = ()
    protected_by: str | None = None
    planned: tuple[Amount, ...] = ()
    kept: tuple[Amount, ...] = ()
    entries_planned: int = 0
    entries_done: int = 0
    entries_erased: int | None = None
    rounds: int = 0
    sha256_before: str | None = None
    sha256_after: str | None = None
    sha256_now: str | None = None
    erasure_generation: int = 0
    proved: bool | None = None
    finished_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class ErasureStats(Result):
    """The document's eleven statistics: of the newest cycle, and of all."""

    store: str
    erasure_cycle_id: str | None = None
    cycle: Mapping[str, Any] = field(default_factory=dict)
    cumulative: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class LogEntry(Result):
    """One entry of the log."""

    file: str
    offset: int
    type: str
    erased: bool
    all_zero: bool
    item_bytes: int = 0

"""The files of an archive, read again: in threads of this process, or by workers of an engine.

Rules:
- the checks come in the order of the entries, and are the same whoever reads;
- a worker's word is enough for a file that is whole. Whatever it does not find so is read here once more, and
  only what this process sees itself is said of it;
- a worker that does not see what this process sees ends the job, which names its machine.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

from app.jobs.engines.choice import Engines, Work
from app.jobs.engines.engine import Engine, borrower_of
from app.jobs.errors import JobFailed
from app.jobs.running.context import JobContext
from app.jobs.running.sql_target import signal_of
from spark.targets.archive.archive import FileCheck, verify
from spark.targets.archive.checking import Reading, reading_work
from spark.targets.errors import ArchiveFailed
from spark.targets.manifest import ManifestEntry
from spark.targets.work import Outcome

UNIT: Final = "files"
FILES_AT_ONCE: Final = 16
"""After so many the job looks whether it must stop."""
WORKERS_MAX: Final = 32
"""Files that a cluster reads at once: all of them come from one storage."""
ACT: Final = (
    "mount LETHE_ARCHIVE_ROOT on every machine of Spark at the same path, readable for its workers, or verify"
    " with the engine INLINE"
)


def choose_engine(
    context: JobContext, engines: Engines, directory: Path, entries: Sequence[ManifestEntry]
) -> Engine:
    """The engine that reads an archive.

    Args:
        directory: where the archive lies.
    """
    settings = context.settings
    # An archive from before a root was named may lie on this machine's own disk.
    is_shared = engines.are_here or (
        engines.is_shared and directory.is_relative_to(settings.effective_archive_root)
    )
    work = Work(
        context.job.params.get("engine") or settings.engine,
        # A folder that is gone has nothing to read.
        sum(entry.bytes for entry in entries) if directory.is_dir() else 0,
        has_ledger=True,  # a file that is read twice is as it was
        archives=True,
        kind="VERIFICATION",
    )
    return replace(engines, is_shared=is_shared).choose(context, work)


def checks_here(context: JobContext, entries: Sequence[ManifestEntry]) -> Iterator[FileCheck]:
    """Read the files in threads of this process; their checks in their order.

    Raises: JobStopped.
    """
    for done in range(0, len(entries), FILES_AT_ONCE):
        context.check()
        context.progress(unit=UNIT, done=done, total=len(entries))
        yield from verify(entries[done : done + FILES_AT_ONCE])


def checks_on(
    context: JobContext, engine: Engine, directory: Path, entries: Sequence[ManifestEntry]
) -> list[FileCheck]:
    """Let workers of an engine read the files; their checks in their order.

    Raises: JobSignal: JobFailed(ARCHIVE_FAILED): a worker does not see what this process sees.
    """
    readings = _Readings(context, len(entries))
    work = reading_work(str(directory))
    with ExitStack() as stack:
        lease = stack.enter_context(engine.lease(work, workers=WORKERS_MAX, borrower=borrower_of(context)))
        stack.callback(context.on_cancel(lease.cancel))
        for outcome in lease.map(iter(entries)):
            context.check()
            readings.take(outcome)
    context.check()  # what was not drawn was not read
    readings.look_again()
    return [readings.found[entry] for entry in entries]


class _Readings:
    """What workers have found so far, and what is still to be looked at here.

    Attributes:
        found: what may be said of a file.
    """

    def __init__(self, context: JobContext, total: int) -> None:
        self.found: dict[ManifestEntry, FileCheck] = {}
        self._context = context
        self._total = total
        self._doubted: dict[ManifestEntry, str] = {}

    def take(self, outcome: Outcome[ManifestEntry, Reading]) -> None:
        """Take how one file's reading ended.

        Raises: JobSignal.
        """
        entry, reading = outcome.unit, outcome.result
        if reading is None:
            self._doubted[entry] = self._not_there(outcome)
        elif reading.check.state == "OK":
            self.found[entry] = reading.check
        else:
            self._doubted[entry] = f"{reading.check.detail}, so {reading.machine} finds, and here it is whole"
        if len(self._doubted) >= FILES_AT_ONCE:
            self.look_again()
        self._context.progress(unit=UNIT, done=len(self.found), total=self._total)

    def _not_there(self, outcome: Outcome[ManifestEntry, Reading]) -> str:
        """A folder that a worker did not find: it may be gone here, too."""
        error = outcome.error
        assert error is not None, "a unit ends with a result or an error"
        if not isinstance(error, ArchiveFailed):
            raise signal_of(self._context, error) from error
        if os.path.isdir(Path(outcome.unit.path).parent):
            raise JobFailed("ARCHIVE_FAILED", f"{error.detail}; {ACT}") from error
        return error.detail

    def look_again(self) -> None:
        """Read here what workers did not find whole.

        Raises: JobStopped; JobFailed: it is whole.
        """
        self._context.check()
        for check in verify(list(self._doubted)):
            if check.state == "OK":
                raise JobFailed("ARCHIVE_FAILED", f"{self._doubted[check.entry]}; {ACT}")
            self.found[check.entry] = check
        self._doubted.clear()

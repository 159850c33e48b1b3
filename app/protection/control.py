"""The control file of a store's environment, kept in step with the rows.

Rules:
- every change reads the rows under the lock of the record: who wrote a row first is never overwritten by
  somebody who has read the rows before;
- the ranges of ACTIVE rows stand in the file, those of ENDED and EXPIRED rows go, those of no row stay: they
  may be another service's, and whoever looks is told;
- whoever raises the epoch, so that somebody may write, brings the ranges of all stores on this directory;
- a row decides: it is ACTIVE before its ranges are written, and over before they go;
- where a greater epoch was seen than ours a protection holds, and webhooks are told (EPOCH_AHEAD).
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import structlog
from sqlmodel import Session, col, select

from app.clock import Clock
from app.db import Database
from app.errors import MetadataBusy, MetadataUnavailable
from app.jobs.running.claims import current_epoch
from app.jobs.running.recovery import tell_ahead
from app.protection.errors import (
    ControlFileBusy,
    EnvironmentNotHere,
    EnvironmentUnusable,
    EpochAhead,
)
from app.protection.rows import EnvironmentClaim, Protection, ProtectionState
from app.settings import Settings
from app.stores.models import StoreKind
from app.stores.rows import Store
from app.stores.service import require_kind
from app.stores.targets import environment_directory
from spark.erase.errors import LogRefused
from spark.erase.reading.directory import file_names
from spark.formats.je import log as je_log
from spark.targets.files import writing_lock
from spark.targets.files.control_errors import ControlError, ControlFileInvalid, ControlFileMissing
from spark.targets.files.control_file import ControlFile
from spark.targets.files.control_record import ControlRecord, ProtectedRange
from spark.targets.files.log_place import log_folders, log_path
from spark.targets.files.mode_bits import may

CONTROL_WAIT_S = 2.0
"""A change of the control file takes milliseconds; whoever holds it for longer is stopped or dead."""
CONTROL_PAUSE_S = 0.005
KNOWN_IDS_MAX = 1_000
logger = structlog.get_logger("lethe.protection")


@dataclass(frozen=True, slots=True)
class Environment:
    """Where the files of a store lie, as this process sees them."""

    store_id: str
    directory: Path


def environment_of(store: Store, settings: Settings) -> Environment:
    """The environment of a store, if this process can see it.

    Raises: StoreKindWrong, StoreUrlRefused, EnvironmentNotHere.
    """
    require_kind(store, StoreKind.JE)
    missing = [
        label for label in store.runs_on if label not in settings.labels and not label.startswith("instance/")
    ]
    if missing:
        detail = f"its files are seen by processes with the labels {', '.join(missing)}; this one lacks them"
        raise EnvironmentNotHere(detail)
    try:
        directory = environment_directory(store, settings)
        is_there = directory.is_dir()
    except OSError as error:
        raise EnvironmentNotHere(f"{store.path} cannot be looked at: {error.strerror}") from error
    if not is_there:
        raise EnvironmentNotHere(f"{directory} is not there, or no directory")
    return Environment(store.id, directory)


def log_files(environment: Environment) -> list[int]:
    """The numbers of the log files that are there, ascending.

    Raises: EnvironmentUnusable: with the code of what the directory is instead.
    """
    try:
        return [je_log.file_number(name) for name in file_names(environment.directory)]
    except LogRefused as error:
        raise EnvironmentUnusable(error.detail, code=error.code) from error


def files_aside(environment: Environment) -> list[int]:
    """The numbers of the files that were renamed to be deleted and are still there (`.del`).

    Raises: EnvironmentUnusable.
    """
    try:
        names = [name for folder in log_folders(environment.directory) for name in os.listdir(folder)]
    except OSError as error:
        detail = f"its files cannot be listed: {error.strerror}"
        raise EnvironmentUnusable(detail, code="ENVIRONMENT_UNREADABLE") from error
    logs = [f"{name.removesuffix('.del')}.jdb" for name in names if name.endswith(".del")]
    numbers = [je_log.file_number(name) for name in logs if je_log.FILE_NAME.fullmatch(name)]
    return [number for number in numbers if number <= je_log.FILE_NUMBER_MAX]


@contextmanager
def control_faults() -> Iterator[None]:
    """Turn what is wrong with a control file into a problem."""
    try:
        yield
    except ControlFileMissing as error:
        raise EnvironmentNotHere(error.detail) from error
    except ControlError as error:
        raise EnvironmentUnusable(error.detail, code=error.code) from error


def ranges_of_row(row: Protection) -> list[ProtectedRange]:
    """What of a row stands in the control file."""
    return [ProtectedRange(row.id, row.kind, first, last) for first, last in row.file_ranges]


class _Edit:
    """One change of the record; afterwards `foreign` has the ids that no row knows.

    Attributes:
        is_ahead: the record has seen a greater epoch than this metadata ever gave, and nobody claims it now.
    """

    def __init__(
        self, database: Database, environment: Environment, *, raise_stop: bool, epoch: int | None
    ) -> None:
        self._database = database
        self._environment = environment
        self._store_id = environment.store_id
        self._raise_stop = raise_stop
        self._epoch = epoch
        self.foreign: list[str] = []
        self.is_ahead = False

    def __call__(self, record: ControlRecord) -> ControlRecord:
        ids = list(dict.fromkeys(held.id for held in record.ranges))
        with self._database.reading() as db:
            claim = db.get(EnvironmentClaim, self._store_id)
            self._refuse_ahead(record, claim)
            # Read after the record: a job of ours that claims it at this moment has its token from before.
            self.is_ahead = self._epoch is None and record.epoch > current_epoch(db)
            epoch = max(claim.epoch if claim else 0, self._epoch or 0)
            active = _active_rows(db, self._store_id)
            if epoch > record.epoch:  # from now on somebody may write here
                active = [*active, *_rows_of_others(db, self._environment)]
            states = _states(db, ids)
        own = [held for row in active for held in ranges_of_row(row)]
        listed = {row.id for row in active}
        over = (ProtectionState.ENDED, ProtectionState.EXPIRED)
        others = [held for held in record.ranges if held.id not in listed and states.get(held.id) not in over]
        self.foreign = [held_id for held_id in ids if held_id not in states]
        stop = record.stop + 1 if self._raise_stop else record.stop
        return replace(record.claimed(epoch), stop=stop, ranges=tuple(dict.fromkeys([*own, *others])))

    def _refuse_ahead(self, record: ControlRecord, claim: EnvironmentClaim | None) -> None:
        """Two metadata may give the same epoch: it is ours if we have noted the claim of it."""
        if self._epoch is None or record.epoch < self._epoch:
            return
        if record.epoch > self._epoch or claim is None or claim.epoch != record.epoch:
            raise EpochAhead(record.epoch, ours=self._epoch, store=self._store_id)


def _active_rows(db: Session, store_id: str) -> Sequence[Protection]:
    """Also those past their lease: that they are over must be written first."""
    query = select(Protection).where(Protection.store == store_id, Protection.state == ProtectionState.ACTIVE)
    return db.exec(query.order_by(col(Protection.id))).all()


def _rows_of_others(db: Session, environment: Environment) -> list[Protection]:
    """The protections by other stores that name the same directory, by whatever path: nobody else may be
    there to write their ranges into a control file that was made anew.
    """
    query = select(Protection, Store.path).where(
        Protection.store == Store.id,
        Protection.store != environment.store_id,
        Protection.state == ProtectionState.ACTIVE,
        Store.kind == StoreKind.JE,
    )
    found = db.exec(query.order_by(col(Protection.id))).all()
    return [row for row, path in found if path is not None and _is_same(path, environment.directory)]


def _is_same(path: str, directory: Path) -> bool:
    try:
        return os.path.samefile(path, directory)
    except OSError:
        return False


def _states(db: Session, ids: Sequence[str]) -> dict[str, str]:
    """The states of the rows of these ids, whatever their store: two may name the same directory."""
    rows = db.exec(select(Protection.id, Protection.state).where(col(Protection.id).in_(ids[:KNOWN_IDS_MAX])))
    return dict(rows.all())


def try_sync(
    database: Database, environment: Environment, *, raise_stop: bool = False, epoch: int | None = None
) -> ControlRecord | None:
    """Bring the control file in step with the rows, once; it is made, or made again, where it must be.

    Args:
        raise_stop: writers at work stop before their next write, even if no range is new.
        epoch: of a claim; only its writers may write from now on.
    Returns: the record in force; None: somebody else changes the file right now.
    Raises: EpochAhead, EnvironmentNotHere, EnvironmentUnusable.
    """
    if epoch is not None and not may(environment.directory, os.R_OK | os.W_OK | os.X_OK):
        detail = f"the mode of {environment.directory} lets nobody write there: give its owner rwx"
        raise EnvironmentUnusable(detail, code="PERMISSION")
    edit = _Edit(database, environment, raise_stop=raise_stop, epoch=epoch)
    with control_faults():
        if not _is_whole(environment.directory) and not _rebuild(database, environment):
            return None
        with ControlFile.open(environment.directory, create=True) as control:
            record = control.change(edit)
    if edit.is_ahead:
        _tell_ahead(database, environment.store_id)
    if edit.foreign and record is not None:
        logger.warning(
            "protected ranges of unknown origin stay",
            store=environment.store_id,
            directory=str(environment.directory),
            ids=edit.foreign,
        )
    return record


def _tell_ahead(database: Database, store: str) -> None:
    """Tell it, or leave it to the next one who finds it: the file is in step already."""
    try:
        tell_ahead(database, store)
    except (MetadataBusy, MetadataUnavailable) as error:
        logger.warning(
            "metadata away: the event of a store that is ahead comes later", store=store, error=error.detail
        )


def _is_whole(directory: Path) -> bool:
    try:
        ControlFile.open(directory, create=True).close()
    except ControlFileInvalid:
        return False
    return True


def _rebuild(database: Database, environment: Environment) -> bool:
    """Make an invalid control file valid again; whether it was possible now."""
    with database.reading() as db:
        claim = db.get(EnvironmentClaim, environment.store_id)
        rows = [*_active_rows(db, environment.store_id), *_rows_of_others(db, environment)]
        ranges = [held for row in rows for held in ranges_of_row(row)]
    record = ControlFile.rebuild(environment.directory, ranges, epoch=claim.epoch if claim else 0)
    if record is not None:
        logger.warning(
            "control file rebuilt from the metadata",
            store=environment.store_id,
            directory=str(environment.directory),
            epoch=record.epoch,
            ranges=len(record.ranges),
        )
    return record is not None


def sync(
    database: Database,
    environment: Environment,
    *,
    clock: Clock,
    raise_stop: bool = False,
    epoch: int | None = None,
) -> ControlRecord:
    """The same, waiting a moment for whoever changes the file.

    Raises: ControlFileBusy, and what try_sync raises.
    """
    deadline_s = clock.boottime_s() + CONTROL_WAIT_S
    while True:
        record = try_sync(database, environment, raise_stop=raise_stop, epoch=epoch)
        if record is not None:
            return record
        if clock.boottime_s() >= deadline_s:
            raise ControlFileBusy
        clock.sleep(CONTROL_PAUSE_S)


def is_in_step(database: Database, environment: Environment) -> bool:
    """Whether the control file has the ranges of all ACTIVE rows, and none of those that are over."""
    try:
        with control_faults(), ControlFile.open(environment.directory, create=False) as control:
            record = control.read()
    except (EnvironmentNotHere, EnvironmentUnusable):
        return False
    held = set(record.ranges)
    with database.reading() as db:
        own = {each for row in _active_rows(db, environment.store_id) for each in ranges_of_row(row)}
        states = _states(db, list({each.id for each in record.ranges}))
    return own <= held and set(states.values()) <= {ProtectionState.ACTIVE}


def busy_files(control: ControlFile, numbers: Sequence[int]) -> list[int]:
    """The files in which a round is at work now: their byte is not to be had shared."""
    busy = []
    for number in numbers:
        if control.try_lock_file(number, exclusive=False):
            control.unlock_file(number)
        else:
            busy.append(number)
    return busy


def written_files(directory: Path, numbers: Sequence[int]) -> list[int]:
    """The files that somebody overwrites now, also one who holds a control file that was removed since."""
    return [number for number in numbers if writing_lock.is_held(log_path(directory, number))]


class Quiet:
    """The way from a protected row to the proof that nobody writes to its files any more, step by step.

    A step neither waits nor sleeps. The proof holds from the moment it is given, because every later round
    reads the range under the lock of its file.

    Args:
        numbers: the files that must be quiet; all of them are covered by the protection.
    """

    def __init__(
        self, database: Database, environment: Environment, protection_id: str, numbers: Sequence[int]
    ) -> None:
        self._database = database
        self._environment = environment
        self._protection_id = protection_id
        self._numbers = list(numbers)
        self._left: list[int] | None = None
        self.was_busy = False

    @property
    def busy(self) -> list[int]:
        """The files for which there is no proof yet."""
        return self._numbers if self._left is None else self._left

    def step(self) -> bool:
        """Try once; whether all is quiet.

        Raises: ServiceError: the control file cannot be used.
        """
        if self._left is None:
            # A round that ends because of what comes next was at work before.
            self.was_busy = self.was_busy or bool(self._peek())
            record = try_sync(self._database, self._environment, raise_stop=True)
            if record is None or not self._is_covered(record):
                return False
            self._left = list(self._numbers)
        self._left = self._look(self._left)
        self.was_busy = self.was_busy or bool(self._left)
        return self._left == []

    def _peek(self) -> list[int]:
        """The files in which a round is at work before anything is changed."""
        with control_faults():
            try:
                with ControlFile.open(self._environment.directory, create=False) as control:
                    return busy_files(control, self._numbers)
            except (ControlFileMissing, ControlFileInvalid):
                return []

    def _look(self, left: Sequence[int]) -> list[int] | None:
        """The files in which a round is still at work; None: the range is lost, and all begins again."""
        with control_faults():
            try:
                with ControlFile.open(self._environment.directory, create=True) as control:
                    if not self._is_covered(control.read()):
                        return None
                    busy = busy_files(control, left)
                    return sorted({*busy, *written_files(self._environment.directory, left)})
            except ControlFileInvalid:
                return None

    def _is_covered(self, record: ControlRecord) -> bool:
        own = [held for held in record.ranges if held.id == self._protection_id]
        return all(any(held.covers(number) for held in own) for number in self._numbers)

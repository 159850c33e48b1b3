"""`lethe recover STORE` for an environment: our epoch above that of its control file."""

from datetime import datetime
from pathlib import Path

from sqlmodel import Session

from app.db import Database
from app.erase.errors import EnvironmentRefused
from app.errors import Conflict
from app.jobs.running.claims import current_epoch, raise_epoch
from app.jobs.running.recovery import forget_ahead
from app.kit.ids import is_id
from app.protection.rows import Protection
from app.protection.service import take_in_protection
from app.settings import Settings
from app.stores.checks.models import RecoveryRead
from app.stores.errors import StoreUrlRefused
from app.stores.rows import Store
from app.stores.targets import environment_directory
from spark.erase.errors import LogRefused
from spark.erase.reading.directory import file_names
from spark.targets.files.control_errors import ControlError, ControlFileMissing
from spark.targets.files.control_file import ControlFile
from spark.targets.files.control_record import ControlRecord, ProtectedRange


def recover_environment(database: Database, settings: Settings, store: Store, actor: str) -> RecoveryRead:
    """Raise our epoch above the control file's, and take in the ranges there that no protection knows.

    It keeps no ledger, so no job of a lost future is found.

    Raises: EnvironmentRefused, StoreUrlRefused, Conflict: the control file cannot be read.
    """
    try:
        directory = environment_directory(store, settings)
        file_names(directory)
        record = _record_in(directory)
    except LogRefused as error:
        raise EnvironmentRefused(error) from error
    except ControlError as error:
        raise Conflict(error.detail, code=error.code) from error
    with database.transaction() as db:
        before = current_epoch(db)
        after = raise_epoch(db, record.epoch) if record is not None and record.epoch > before else before
        if record is not None:
            _take_in(db, store, record, actor, now=database.now(db))
        forget_ahead(db, store.id)
    return RecoveryRead(epoch_before=before, epoch_after=after, foreign_jobs=[])


def is_environment_ahead(database: Database, store: Store, settings: Settings) -> bool | None:
    """Whether the control file of a store has a greater epoch than ours; None: it is not read here."""
    try:
        directory = environment_directory(store, settings)
        if not directory.is_dir():
            return None
        record = _record_in(directory)
    except (StoreUrlRefused, ControlError, OSError):
        return None
    # Read after the control file: a job of ours that claims it at this moment has its token from before.
    with database.reading() as db:
        epoch = current_epoch(db)
    return record is not None and record.epoch > epoch


def _record_in(directory: Path) -> ControlRecord | None:
    try:
        with ControlFile.open(directory, create=False) as control:
            return control.read()
    except ControlFileMissing:
        return None


def _take_in(db: Session, store: Store, record: ControlRecord, actor: str, *, now: datetime) -> None:
    """Make a row of each protection that only the control file remembers; it can be ended then."""
    found: dict[str, list[ProtectedRange]] = {}
    for held in record.ranges:
        found.setdefault(held.id, []).append(held)
    for protection_id, ranges in found.items():
        if is_id("prt", protection_id) and db.get(Protection, protection_id) is None:
            pairs = [(held.first, held.last) for held in ranges]
            take_in_protection(db, store.id, protection_id, ranges[0].kind, pairs, actor=actor, now=now)

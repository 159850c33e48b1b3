"""`lethe recover STORE` for an environment: our epoch above that of its control file."""

from app.db import Database
from app.erase.errors import EnvironmentRefused
from app.errors import Conflict
from app.jobs.running.claims import current_epoch, raise_epoch
from app.jobs.running.recovery import forget_ahead
from app.settings import Settings
from app.stores.checks.models import RecoveryRead
from app.stores.errors import StoreUrlRefused
from app.stores.rows import Store
from app.stores.targets import environment_directory
from spark.erase.errors import LogRefused
from spark.erase.reading.directory import file_names
from spark.targets.files.control_errors import ControlError, ControlFileMissing
from spark.targets.files.control_file import ControlFile


def recover_environment(database: Database, settings: Settings, store: Store, _actor: str) -> RecoveryRead:
    """Raise our epoch above the control file's; it keeps no ledger, so no job of a lost future is found.

    Raises: EnvironmentRefused, StoreUrlRefused, Conflict: the control file cannot be read.
    """
    try:
        file_names(environment_directory(store, settings))
        epoch = _epoch_of(store, settings)
    except LogRefused as error:
        raise EnvironmentRefused(error) from error
    except ControlError as error:
        raise Conflict(error.detail, code=error.code) from error
    with database.transaction() as db:
        before = current_epoch(db)
        after = raise_epoch(db, epoch) if epoch is not None and epoch > before else before
        forget_ahead(db, store.id)
    return RecoveryRead(epoch_before=before, epoch_after=after, foreign_jobs=[])


def is_environment_ahead(database: Database, store: Store, settings: Settings) -> bool:
    """Whether the control file of a store can be read and has a greater epoch than ours."""
    try:
        found = _epoch_of(store, settings)
    except (StoreUrlRefused, ControlError):
        return False
    # Read after the control file: a job of ours that claims it at this moment has its token from before.
    with database.reading() as db:
        epoch = current_epoch(db)
    return found is not None and found > epoch


def _epoch_of(store: Store, settings: Settings) -> int | None:
    try:
        with ControlFile.open(environment_directory(store, settings), create=False) as control:
            return control.read().epoch
    except ControlFileMissing:
        return None

"""Claims of an environment: the epoch of those who may write, and the proof that nobody else does."""

from datetime import datetime

from sqlmodel import Session

from app.clock import Clock, SystemClock
from app.db import Database
from app.jobs.running.recovery import tell_ahead
from app.protection.control import (
    CONTROL_PAUSE_S,
    busy_files,
    control_faults,
    environment_of,
    files_aside,
    log_files,
    sync,
    written_files,
)
from app.protection.errors import EpochAhead
from app.protection.rows import EnvironmentClaim
from app.settings import Settings
from app.stores.rows import Store
from spark.targets.files.control_file import ControlFile

PROOF_PAUSE_MAX_S = 0.05
_SYSTEM_CLOCK = SystemClock()


def _note_claim(db: Session, store_id: str, epoch: int, now: datetime) -> None:
    row = db.get(EnvironmentClaim, store_id, with_for_update=True)
    if row is None:
        row = EnvironmentClaim(store=store_id, epoch=0, claimed_at=now)
    if epoch > row.epoch:
        row.epoch, row.claimed_at = epoch, now
        db.add(row)
        db.flush()


def claim_environment(
    database: Database, settings: Settings, store: Store, *, epoch: int, clock: Clock = _SYSTEM_CLOCK
) -> None:
    """Make `epoch` the one whose writers may write; writers of an earlier one stop before their next write.

    The control file is made or mended where it must be, and has all ranges of this metadata afterwards.

    Raises: EpochAhead: it has seen a greater epoch; EnvironmentNotHere, EnvironmentUnusable, ControlFileBusy.
    """
    environment = environment_of(store, settings)
    sync(database, environment, clock=clock, epoch=epoch)
    # Afterwards: an epoch that was refused is not ours, and a file that is mended never gets one of those.
    with database.transaction() as db:
        _note_claim(db, store.id, epoch, database.now(db))


def prove_no_writer(
    database: Database,
    settings: Settings,
    store: Store,
    *,
    epoch: int,
    deadline_s: float,
    clock: Clock = _SYSTEM_CLOCK,
) -> bool:
    """Whether nobody with an earlier epoch writes any more: raised, then each file's byte had once, shared.

    Args:
        deadline_s: for how many seconds to try.
    Raises: as claim_environment.
    """
    try:
        claim_environment(database, settings, store, epoch=epoch, clock=clock)
    except EpochAhead:  # its job waits for that, and fails by nothing that would tell
        tell_ahead(database, store.id)
        raise
    environment = environment_of(store, settings)
    left = [*log_files(environment), *files_aside(environment)]
    until_s = clock.boottime_s() + deadline_s
    pause_s = CONTROL_PAUSE_S
    while True:
        with control_faults(), ControlFile.open(environment.directory, create=True) as control:
            left = sorted({*busy_files(control, left), *written_files(environment.directory, left)})
        if not left or clock.boottime_s() >= until_s:
            return not left
        clock.sleep(pause_s)
        pause_s = min(pause_s * 2, PROOF_PAUSE_MAX_S)

"""What a writer holds while it writes: the environment, the byte of its file, and leave by the control file.

Nothing is waited for: what is not free is a refusal.
"""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from spark.erase.calls.calls import Mode, RefusalCode
from spark.erase.calls.refusing import Refused
from spark.erase.overwrite.environment_lock import NAME as LOCK_NAME
from spark.erase.overwrite.environment_lock import EnvironmentLock, try_lock
from spark.erase.overwrite.file_layer import OpenFile
from spark.formats.je.log import file_name
from spark.targets.files import writing_lock
from spark.targets.files.control_errors import ControlError, PermissionRefused
from spark.targets.files.control_file import ControlFile
from spark.targets.files.mode_bits import may


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to write to one file, until the stop counter changes, or JE's lock file is taken away."""

    control: ControlFile
    number: int
    stop: int
    environment: EnvironmentLock | None

    def check_stop(self) -> None:
        """See that nobody has asked us to stop, and that JE is still kept out; before every write.

        Raises: Refused: STOPPED.
        """
        try:
            found = self.control.stop_counter()
            is_locked = self.environment is None or self.environment.is_in_place()
        except ControlError as error:
            raise refused_by_control(error) from error
        if not is_locked:
            detail = f"{LOCK_NAME} was removed or replaced: its lock keeps nobody out any more"
            raise Refused(RefusalCode.STOPPED, detail, file=file_name(self.number))
        if found != self.stop:
            detail = f"the stop counter is {found}; it was {self.stop} when the file was locked"
            raise Refused(RefusalCode.STOPPED, detail, file=file_name(self.number))


@contextmanager
def environment_locked(directory: Path) -> Iterator[EnvironmentLock]:
    """Keep every JE process out.

    Raises: Refused: ENVIRONMENT_IN_USE, PERMISSION, CONTROL_FILE_INVALID.
    """
    try:
        lock = try_lock(directory)
    except ControlError as error:
        raise refused_by_control(error) from error
    if lock is None:
        detail = "somebody holds JE's lock: a process has the environment open, or it is worked on"
        raise Refused(RefusalCode.ENVIRONMENT_IN_USE, detail, file=LOCK_NAME)
    with lock:
        yield lock


@contextmanager
def claimed_file(directory: Path, number: int, *, epoch: int, mode: Mode) -> Iterator[Claim]:
    """Take what a writer needs, in this order: environment (CLOSED), byte of the file, record.

    The record is read under the lock of the byte: whoever protects the file later must wait for that lock.

    Raises: Refused: ENVIRONMENT_IN_USE, FILE_LOCKED, EPOCH_PASSED, PROTECTED, PERMISSION,
        CONTROL_FILE_INVALID.
    """
    if not may(directory, os.R_OK | os.W_OK | os.X_OK):
        detail = "the mode of the directory lets nobody write there"
        raise Refused(RefusalCode.PERMISSION, detail, file=file_name(number))
    environment: AbstractContextManager[EnvironmentLock | None] = nullcontext()
    if mode == Mode.CLOSED:
        environment = environment_locked(directory)
    with environment as held, _opened_control(directory) as control:
        if not _try_lock_file(control, number):
            detail = "somebody else holds the lock of the file"
            raise Refused(RefusalCode.FILE_LOCKED, detail, file=file_name(number))
        try:
            yield Claim(control, number, _stop_in_force(control, number, epoch), held)
        finally:
            control.unlock_file(number)


def lock_written(claim: Claim, directory: Path, file: OpenFile) -> None:
    """Lock the data file itself until it is closed: the byte in a control file that is gone tells nothing.

    From here on whoever makes a new control file finds this lock; who made one before is found by us.

    Raises: Refused: FILE_LOCKED, STOPPED, CONTROL_FILE_INVALID.
    """
    try:
        is_ours = writing_lock.try_lock(file.descriptor)
        is_in_place = claim.control.is_in_place(directory)
    except ControlError as error:
        raise refused_by_control(error) from error
    if not is_ours:
        detail = "somebody else overwrites it, and holds another control file"
        raise Refused(RefusalCode.FILE_LOCKED, detail, file=file.name)
    if not is_in_place:
        raise Refused(RefusalCode.STOPPED, "the control file was removed or replaced", file=file.name)


@contextmanager
def _opened_control(directory: Path) -> Iterator[ControlFile]:
    try:
        control = ControlFile.open(directory, create=False)
    except ControlError as error:
        raise refused_by_control(error) from error
    with control:
        yield control


def _try_lock_file(control: ControlFile, number: int) -> bool:
    try:
        return control.try_lock_file(number, exclusive=True)
    except ControlError as error:
        raise refused_by_control(error) from error


def _stop_in_force(control: ControlFile, number: int, epoch: int) -> int:
    try:
        record = control.read()
    except ControlError as error:
        raise refused_by_control(error) from error
    if record.epoch != epoch:
        detail = f"the control file has epoch {record.epoch}, the call has {epoch}"
        raise Refused(RefusalCode.EPOCH_PASSED, detail, ref=str(record.epoch), file=file_name(number))
    if covering := record.covering(number):
        ids = ",".join(sorted({each.id for each in covering}))
        raise Refused(RefusalCode.PROTECTED, f"protected by {ids}", ref=ids, file=file_name(number))
    return record.stop


def refused_by_control(error: ControlError) -> Refused:
    """Turn what is wrong with the control file, a lock or the medium into a refusal."""
    code = RefusalCode.CONTROL_FILE_INVALID
    if isinstance(error, PermissionRefused):
        code = RefusalCode.PERMISSION
    return Refused(code, error.detail, ref=error.code)

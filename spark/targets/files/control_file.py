"""The control file of a JE environment: which of its files nobody may write to, and who may write at all.

Invariants:
- `lethe.control` is never unlinked and never replaced by us; it is whole from the moment it can be seen.
- Slots, and the counter, are written under the exclusive lock of byte 2^62 only. A change goes to the slot
  that is not in force; a tear leaves the other one in force.
- Neither epoch nor stop ever sinks. A higher epoch, and a range more, raise `stop`.
- The record is the truth, the counter its shadow for writers at work: first the slot is durable, then the
  counter is written. A writer remembers `record.stop` and stops when `stop_counter()` is another number.
  After a crash between the two it is, for every writer that has read the new record, until the next reader
  or changer has raised the counter; one that had read the old record finishes its round, which nobody was
  promised would stop. A counter above the record means that the slot in force was lost: ControlFileInvalid.
- A lock belongs to the descriptor of one ControlFile, which never crosses a fork.
- A counter of -1 says that this file does not stand for the environment any more: cut off, replaced, removed.

Nothing here waits, retries a lock, or asks for the time.
"""

import os
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from spark.targets.files import beside_log, control_record
from spark.targets.files.control_errors import ControlFileInvalid, ControlFileMissing, MediumRefused
from spark.targets.files.control_record import COUNTER, COUNTER_MAX, ControlRecord, ProtectedRange
from spark.targets.files.system_calls import SYSTEM, SystemCalls

NAME: Final = "lethe.control"
RECORD_BYTE: Final = 2**62
STOP_OF_NOBODY: Final = -1
READS_MAX: Final = 8


class ControlFile:
    """One open descriptor of a control file; never used across fork."""

    def __init__(self, fd: int, directory: os.stat_result, calls: SystemCalls) -> None:
        self._fd = fd
        self._calls = calls
        self._pid = os.getpid()
        self._identity = (directory.st_dev, directory.st_ino, calls.fstat(fd).st_ino)

    @classmethod
    def open(cls, directory: Path, *, create: bool, calls: SystemCalls = SYSTEM) -> Self:
        """Open the control file of an environment.

        Args:
            create: make one where there is none; its record has epoch 0 and no ranges.
        Raises: ControlFileMissing, ControlFileInvalid (mend it by `rebuild`), MediumRefused, NotRegular,
            PermissionRefused, ControlFileFailed.
        """
        found = cls._open(directory, create=create, calls=calls)
        with ExitStack() as undo:
            undo.callback(found.close)
            found.read()
            undo.pop_all()
        return found

    @classmethod
    def rebuild(
        cls, directory: Path, ranges: Iterable[ProtectedRange], *, epoch: int, calls: SystemCalls = SYSTEM
    ) -> ControlRecord | None:
        """Make a missing or invalid control file valid again from what the metadata knows.

        Epoch and stop are at least those of any slot that can be read. Ranges that the file itself holds stay
        (whoever knows better releases them by `change`); those of a copy, which were made for another
        place, do not.

        Args:
            ranges: of all protections that are in force.
            epoch: the highest one that was ever given out for this environment.
        Returns: the record in force; None: somebody else changes it right now, try again.
        """
        given = tuple(ranges)
        with cls._open(directory, create=True, calls=calls) as found:
            return found._under_lock(lambda: found._rebuild(given, epoch))

    @classmethod
    def _open(cls, directory: Path, *, create: bool, calls: SystemCalls) -> Self:
        dir_fd = beside_log.open_directory(directory, calls=calls)
        try:
            _refuse_medium(directory, calls)
            status = calls.fstat(dir_fd)
            for _ in range(beside_log.ATTEMPTS_MAX):
                fd = beside_log.open_regular(NAME, os.O_RDWR, dir_fd=dir_fd, calls=calls)
                if fd is not None:
                    return cls(fd, status, calls)
                if not create:
                    break
                beside_log.create_whole(
                    NAME, lambda inode: _first_content(status, inode), dir_fd=dir_fd, calls=calls
                )
            raise ControlFileMissing(f"{directory} has no {NAME}")
        finally:
            calls.close(dir_fd)

    def read(self) -> ControlRecord:
        """Read the record in force.

        Where the counter is behind and nobody is changing anything (whoever did was killed), it is raised.

        Raises: ControlFileInvalid, ControlFileFailed.
        """
        try:
            record = self._in_force(self._slots())
            for _ in range(READS_MAX - 1):
                if record is not None:
                    break
                # Both slots were written while they were read: there were two changes in between.
                record = self._in_force(self._slots())
            if record is not None and self._is_own(record) and self._counter() == record.stop:
                return record
        except OSError as error:
            raise beside_log.named(error, NAME) from error
        mended = self._under_lock(self._mend)
        return self._valid(record) if mended is None else mended

    def change(self, edit: Callable[[ControlRecord], ControlRecord]) -> ControlRecord | None:
        """Put another record in force, durably.

        Args:
            edit: makes the new record of the one in force; it is called under the lock, once, and must let
                neither epoch nor stop sink. Generation and identity are not its business. Where it raises the
                epoch or adds a range and leaves stop as it is, stop is raised by one.
        Returns: the record now in force; None: somebody else changes it right now, try again.
        Raises: ControlFileInvalid, ControlFileFull, ControlFileFailed.
        """
        return self._under_lock(lambda: self._change(edit))

    def stop_counter(self) -> int:
        """Read the stop counter, as cheaply as can be: before every write.

        Returns: -1 where the file was removed, replaced by another one of its name, or cut off.
        """
        try:
            if self._calls.fstat(self._fd).st_nlink == 0:
                return STOP_OF_NOBODY
            return self._counter()
        except OSError as error:
            raise beside_log.named(error, NAME) from error

    def is_in_place(self, directory: Path) -> bool:
        """Whether the environment's control file is still this one: not removed, replaced or renamed."""
        try:
            named = os.stat(directory / NAME, follow_symlinks=False)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise beside_log.named(error, NAME) from error
        return (named.st_dev, named.st_ino) == (self._identity[0], self._identity[2])

    def try_lock_file(self, number: int, *, exclusive: bool) -> bool:
        """Take the lock of a data file; False: somebody else holds it. Taken again it is converted."""
        assert os.getpid() == self._pid, "a descriptor with locks has crossed a fork"
        assert 0 <= number <= control_record.FILE_NUMBER_MAX, number
        take = self._calls.try_exclusive if exclusive else self._calls.try_shared
        return take(self._fd, number)

    def unlock_file(self, number: int) -> None:
        """Give the lock of a data file back."""
        self._calls.release(self._fd, number)

    def close(self) -> None:
        """Give back every lock, and the descriptor."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            try:
                self._calls.release_all(fd)
            finally:
                self._calls.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _under_lock(self, work: Callable[[], ControlRecord]) -> ControlRecord | None:
        assert os.getpid() == self._pid, "a descriptor with locks has crossed a fork"
        if not self._calls.try_exclusive(self._fd, RECORD_BYTE):
            return None
        try:
            return work()
        except OSError as error:
            raise beside_log.named(error, NAME) from error
        finally:
            self._calls.release(self._fd, RECORD_BYTE)

    def _change(self, edit: Callable[[ControlRecord], ControlRecord]) -> ControlRecord:
        slots = self._slots()
        now = self._not_lost(self._valid(self._in_force(slots)))
        edited = edit(now)
        assert edited.epoch >= now.epoch, "an epoch never sinks"
        assert edited.stop >= now.stop, "a stop never sinks"
        forbids = edited.epoch > now.epoch or not set(edited.ranges) <= set(now.ranges)
        stop = now.stop + 1 if forbids and edited.stop == now.stop else edited.stop
        return self._put(replace(now, epoch=edited.epoch, stop=stop, ranges=edited.ranges), slots)

    def _rebuild(self, given: tuple[ProtectedRange, ...], epoch: int) -> ControlRecord:
        slots = self._slots()
        readable = [slot for slot in slots if slot is not None]
        newest = self._in_force(slots)
        kept = newest.ranges if newest is not None and self._is_own(newest) else ()
        counter = max(self._counter(), 0)
        fresh = ControlRecord(
            generation=0 if newest is None else newest.generation,
            epoch=max([epoch, *(slot.epoch for slot in readable)]),
            stop=1 + max([counter if counter < COUNTER_MAX else 0, *(slot.stop for slot in readable)]),
            directory_device=self._identity[0],
            directory_inode=self._identity[1],
            own_inode=self._identity[2],
        )
        size = self._calls.fstat(self._fd).st_size
        if size < control_record.FILE_BYTES:
            self._write(bytes(control_record.FILE_BYTES - size), size)
        return self._put(fresh.protecting(*kept, *given), slots)

    def _mend(self) -> ControlRecord:
        record = self._not_lost(self._valid(self._in_force(self._slots())))
        if self._counter() != record.stop:
            self._write(COUNTER.pack(record.stop), 0)
        return record

    def _put(self, record: ControlRecord, slots: list[ControlRecord | None]) -> ControlRecord:
        """Write a record into the slot that is not in force; the counter follows once it is durable."""
        newest = self._in_force(slots)
        other = 0 if newest is None else 1 - slots.index(newest)
        written = replace(record, generation=record.generation + 1)
        self._write(control_record.encode(written), control_record.SLOT_OFFSETS[other])
        self._calls.fdatasync(self._fd)
        self._write(COUNTER.pack(written.stop), 0)
        return written

    def _slots(self) -> list[ControlRecord | None]:
        size = control_record.SLOT_BYTES
        return [
            control_record.decode(self._calls.pread(self._fd, size, offset))
            for offset in control_record.SLOT_OFFSETS
        ]

    def _counter(self) -> int:
        raw = self._calls.pread(self._fd, COUNTER.size, 0)
        if len(raw) < COUNTER.size:
            return STOP_OF_NOBODY
        (value,) = COUNTER.unpack(raw)
        return int(value)

    def _write(self, data: bytes, offset: int) -> None:
        beside_log.write_all(self._fd, data, offset, calls=self._calls)

    @staticmethod
    def _in_force(slots: list[ControlRecord | None]) -> ControlRecord | None:
        readable = [slot for slot in slots if slot is not None]
        return max(readable, key=lambda slot: slot.generation) if readable else None

    def _is_own(self, record: ControlRecord) -> bool:
        recorded = (record.directory_device, record.directory_inode, record.own_inode)
        return recorded == self._identity

    def _valid(self, record: ControlRecord | None) -> ControlRecord:
        if record is None:
            raise ControlFileInvalid(f"{NAME} is damaged: neither of its slots can be read")
        if not self._is_own(record):
            raise ControlFileInvalid(f"{NAME} is a copy: it was made for another file or directory")
        return record

    def _not_lost(self, record: ControlRecord) -> ControlRecord:
        counter = self._counter()
        if counter == STOP_OF_NOBODY or counter > record.stop:
            raise ControlFileInvalid(f"{NAME} is damaged: stop is {counter}, its record says {record.stop}")
        return record


def _refuse_medium(directory: Path, calls: SystemCalls) -> None:
    try:
        medium = calls.medium_of(directory)
    except OSError as error:
        raise beside_log.named(error, str(directory)) from error
    if medium.is_network:
        raise MediumRefused(
            f"{directory} lies on {medium.file_system}: its locks and writes cannot be relied on"
        )


def _first_content(directory: os.stat_result, inode: int) -> bytes:
    """A whole file: every block is there, so that no later change runs out of space in the middle."""
    record = ControlRecord(1, 0, 1, directory.st_dev, directory.st_ino, inode)
    slot = control_record.encode(record)
    content = bytearray(control_record.FILE_BYTES)
    content[: COUNTER.size] = COUNTER.pack(record.stop)
    content[control_record.SLOT_OFFSETS[0] : control_record.SLOT_OFFSETS[0] + len(slot)] = slot
    return bytes(content)

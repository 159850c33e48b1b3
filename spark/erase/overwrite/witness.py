"""What tells that a log is still the one that a plan was made from, or what that one has grown to.

What was obsolete stays obsolete only while the log grows. An older state of it that is put back into its
place, by a restore or by cutting off its end, has the same old files, at times with inode and time, and lacks
what made their entries obsolete. So the end of the checkpoint that a plan relies on is remembered whole, and
must be where it was whenever something is written.

Beside a running JE the header of a newer file stands for it: it was written behind that end, has a number and
a time of its own, and JE's cleaner takes it away last. A round that has found its witness hands the newest
header of that moment on to the next one.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from spark.erase.calls.calls import Refusal, RefusalCode
from spark.erase.calls.refusing import Refused
from spark.erase.entry_tables import unpack
from spark.erase.errors import LogFileChanged, LogRefused
from spark.erase.overwrite.file_layer import READ_FLAGS, FileLayer, Tally
from spark.erase.overwrite.planned_file import opened_file
from spark.erase.reading.directory import LogFile, Witness, file_names, opened
from spark.formats.je import log as je_log
from spark.formats.je.log import EntryType, file_name, file_number, lsn_file, lsn_of, lsn_offset
from spark.targets.files.log_place import log_path

if TYPE_CHECKING:  # reading a log needs the compiler of its loops
    from spark.erase.reading.log import Log

# A checkpoint's end has some dozens of bytes, with a thousand running scans some thousands.
ENTRY_BYTES_MAX: Final = 1024 * 1024


def read_witness(directory: Path, checkpoint_lsn: int) -> Witness:
    """Read the end of a checkpoint whole; to be called while the log stands still, or may only grow.

    Raises: LogRefused.
    """
    with opened(directory, [file_name(lsn_file(checkpoint_lsn))]) as [file]:
        return _read_end(file, checkpoint_lsn)


def _read_end(file: LogFile, checkpoint_lsn: int) -> Witness:
    offset = lsn_offset(checkpoint_lsn)
    header = file.read(offset, je_log.HEADER_BYTES)
    item_bytes = int.from_bytes(header[je_log.ITEM_SIZE_AT :], "little")
    if header[je_log.TYPE_AT] != EntryType.CKPT_END or item_bytes > ENTRY_BYTES_MAX:
        raise LogFileChanged("the checkpoint's end is not there any more", file=file.name, offset=offset)
    return Witness(checkpoint_lsn, header + file.read(offset + je_log.HEADER_BYTES, item_bytes))


def newest_witness(log: "Log", checkpoint_lsn: int) -> Witness:
    """The newest witness for a checkpoint in a log that was read: a header behind its end, or that end.

    The header of its own file tells nothing of it: an older state of that file has the same.

    Raises: LogRefused.
    """
    for file, columns in zip(reversed(log.open_files), reversed(log.files), strict=True):
        if columns.header is not None and file.number > lsn_file(checkpoint_lsn):
            return Witness(lsn_of(file.number, 0), file.read(0, je_log.FILE_HEADER_BYTES))
    return _read_end(log.open_file(lsn_file(checkpoint_lsn)), checkpoint_lsn)


def newer_witness(directory: Path, known: Witness) -> Witness | None:
    """The header of a file that is newer than a witness; None where there is none yet.

    To be called before `known` is checked: then both stood in the same log.
    """
    try:
        name = file_names(directory)[-1]
        if file_number(name) <= lsn_file(known.lsn):
            return None
        with opened(directory, [name]) as [file]:
            raw = bytearray(je_log.FILE_HEADER_BYTES)
            count = file.read_into(memoryview(raw), 0)
    except LogRefused:  # it is not whole yet, or gone again: the next round finds another
        return None
    if count < len(raw) or raw[je_log.TYPE_AT] != EntryType.FILE_HEADER:
        return None
    return Witness(lsn_of(file_number(name), 0), bytes(raw))


def check_witness(layer: FileLayer, directory: Path, witness: Witness) -> None:
    """See that the checkpoint's end is where it was.

    Raises: Refused: LOG_MOVED: plan anew; PERMISSION, DISK_ERROR.
    """
    path, offset = log_path(directory, lsn_file(witness.lsn)), lsn_offset(witness.lsn)
    found = bytearray(len(witness.entry))
    # It belongs to no file's work: the document's stats do not count it.
    uncounted = Tally(lambda: 0.0)
    try:
        with opened_file(layer, uncounted, path, READ_FLAGS) as file:
            count = file.read_into(memoryview(found), offset)
    except Refused as refused:
        raise Refused(_code_of(refused.refusal), refused.refusal.detail, file=path.name) from refused
    if found[:count] != witness.entry:
        detail = "the log is another: the checkpoint that the plan relies on is not there"
        raise Refused(RefusalCode.LOG_MOVED, detail, file=path.name, offset=offset)


def _code_of(refusal: Refusal) -> RefusalCode:
    """A file of the checkpoint that JE has cleaned since proves nothing any more."""
    gone = (RefusalCode.ALREADY_DELETED, RefusalCode.FILE_REPLACED)
    return RefusalCode.LOG_MOVED if refusal.code in gone else refusal.code


def is_still_planned(kept: bytes, first: int, planned: bytes) -> bool:
    """Whether a newer plan would erase all entries of an older one from row `first` on."""
    left = unpack(kept)["offset"].to_numpy()[first:]
    return bool(np.isin(left, unpack(planned)["offset"].to_numpy()).all())

"""What tells that a log is still the one that a plan was made from, or what that one has grown to.

What was obsolete stays obsolete only while the log grows. An older state of it that is put back into its
place, by a restore or by cutting off its end, has the same old files, at times with inode and time, and lacks
what made their entries obsolete. So the end of the checkpoint that a plan relies on is remembered whole, and
must be where it was whenever something is written.
"""

from pathlib import Path
from typing import Final

import numpy as np

from spark.erase.calls import Refusal, RefusalCode
from spark.erase.directory import Witness, opened
from spark.erase.entry_tables import unpack
from spark.erase.errors import LogFileChanged
from spark.erase.file_layer import READ_FLAGS, FileLayer, Tally
from spark.erase.planned_file import opened_file
from spark.erase.refusing import Refused
from spark.formats import je_log
from spark.formats.je_log import EntryType, file_name, lsn_file, lsn_offset

# A checkpoint's end has some dozens of bytes, with a thousand running scans some thousands.
ENTRY_BYTES_MAX: Final = 1024 * 1024


def read_witness(directory: Path, checkpoint_lsn: int) -> Witness:
    """Read the end of a checkpoint whole; to be called while the log stands still, or may only grow.

    Raises: LogRefused.
    """
    name, offset = file_name(lsn_file(checkpoint_lsn)), lsn_offset(checkpoint_lsn)
    with opened(directory, [name]) as [file]:
        header = file.read(offset, je_log.HEADER_BYTES)
        item_bytes = int.from_bytes(header[je_log.ITEM_SIZE_AT :], "little")
        if header[je_log.TYPE_AT] != EntryType.CKPT_END or item_bytes > ENTRY_BYTES_MAX:
            raise LogFileChanged("the checkpoint's end is not there any more", file=name, offset=offset)
        item = file.read(offset + je_log.HEADER_BYTES, item_bytes)
    return Witness(checkpoint_lsn, header + item)


def check_witness(layer: FileLayer, directory: Path, witness: Witness) -> None:
    """See that the checkpoint's end is where it was.

    Raises: Refused: LOG_MOVED: plan anew; PERMISSION, DISK_ERROR.
    """
    name, offset = file_name(lsn_file(witness.lsn)), lsn_offset(witness.lsn)
    found = bytearray(len(witness.entry))
    # It belongs to no file's work: the document's stats do not count it.
    uncounted = Tally(lambda: 0.0)
    try:
        with opened_file(layer, uncounted, directory / name, READ_FLAGS) as file:
            count = file.read_into(memoryview(found), offset)
    except Refused as refused:
        raise Refused(_code_of(refused.refusal), refused.refusal.detail, file=name) from refused
    if found[:count] != witness.entry:
        detail = "the log is another: the checkpoint that the plan relies on is not there"
        raise Refused(RefusalCode.LOG_MOVED, detail, file=name, offset=offset)


def _code_of(refusal: Refusal) -> RefusalCode:
    """A file of the checkpoint that JE has cleaned since proves nothing any more."""
    gone = (RefusalCode.ALREADY_DELETED, RefusalCode.FILE_REPLACED)
    return RefusalCode.LOG_MOVED if refusal.code in gone else refusal.code


def is_still_planned(kept: bytes, first: int, planned: bytes) -> bool:
    """Whether a newer plan would erase all entries of an older one from row `first` on."""
    left = unpack(kept)["offset"].to_numpy()[first:]
    return bool(np.isin(left, unpack(planned)["offset"].to_numpy()).all())

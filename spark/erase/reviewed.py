"""Planned entries within a reviewed plan: what was not reviewed stays.

An entry is known by its offset and the checksum in its header: what lies at the same place in a log that was
put back is another entry. Both are kept when an entry is erased.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark.erase.calls.calls import PlannedFile
from spark.erase.entry_tables import pack, unpack
from spark.erase.reasons import Cause, Reason

CODEC: Final = "zstd"
LENGTH_BYTES: Final = 8
OFFSET_TYPE: Final = "<u4"
Keys = NDArray[np.uint64]
Mask = NDArray[np.bool_]
Numbers = NDArray[Any]


@dataclass(frozen=True, slots=True)
class ReviewedFile:
    """One file of a reviewed plan.

    Args:
        device, inode, size: of the file, which must be the same.
        keys: of the entries (`keys_of`).
        deletes: the plan said that the whole file would be deleted.
    """

    device: int
    inode: int
    size: int
    keys: bytes
    deletes: bool = False


def keys_of(entries: bytes) -> bytes:
    """What names planned entries (PlannedFile.entries), packed."""
    data = _keys(unpack(entries)).tobytes()
    packed: bytes = pa.compress(data, codec=CODEC, asbytes=True)
    return len(data).to_bytes(LENGTH_BYTES, "little") + packed


def _known(keys: bytes) -> Keys:
    length = int.from_bytes(keys[:LENGTH_BYTES], "little")
    data = pa.decompress(keys[LENGTH_BYTES:], decompressed_size=length, codec=CODEC, asbytes=True)
    return np.frombuffer(data, np.uint64)


def within(file: PlannedFile, reviewed: ReviewedFile | None) -> PlannedFile:
    """The part of a file's plan that was reviewed; the rest is kept, as NOT_REVIEWED.

    Args:
        reviewed: None: the file was not in the reviewed plan.
    """
    if reviewed is None or not _is_same(file, reviewed):
        return _not_reviewed(file)
    if not reviewed.deletes:
        file = replace(file, barren=False)  # what was reviewed entry by entry does not go as a whole
    if not file.entry_count:
        return file
    return _only(file, np.isin(_keys(unpack(file.entries)), _known(reviewed.keys)))


def _not_reviewed(file: PlannedFile) -> PlannedFile:
    """Nothing of it goes in this cycle, whatever else keeps it now."""
    file = replace(file, barren=False)
    if not file.entry_count and not file.causes:
        return file
    cause = {str(Cause.NOT_REVIEWED): "the plan that was reviewed has nothing to erase in it"}
    file = replace(file, causes={**file.causes, **cause})
    return _only(file, np.zeros(file.entry_count, dtype=bool))


def _is_same(file: PlannedFile, reviewed: ReviewedFile) -> bool:
    found = file.identity
    return (found.device, found.inode, found.size) == (reviewed.device, reviewed.inode, reviewed.size)


def _keys(table: pa.Table) -> Keys:
    offsets = table["offset"].to_numpy().astype(np.uint64)
    found: Keys = (offsets << np.uint64(32)) | table["checksum"].to_numpy().astype(np.uint64)
    return found


def _only(file: PlannedFile, chosen: Mask) -> PlannedFile:
    """A file's plan with the chosen ones of its entries."""
    if chosen.all():
        return file
    table = unpack(file.entries)
    reasons = table["reason"].to_numpy()
    is_extinct = reasons == int(Reason.EXTINCT)
    if len(file.extinct) > 1 and (is_extinct & ~chosen).any():
        chosen = chosen & ~is_extinct  # which of them go by which extinction is not told entry by entry
    item_bytes = table["item_bytes"].to_numpy()
    left = table.filter(pa.array(chosen))
    offsets = np.frombuffer(file.in_use, OFFSET_TYPE)
    in_use = offsets[np.isin(offsets, left["offset"].to_numpy())]
    gone = _amount(item_bytes[chosen & is_extinct])
    return replace(
        file,
        entries=pack(left),
        entry_count=left.num_rows,
        erased=_by_reason(reasons[chosen], item_bytes[chosen], file.erased),
        kept={**file.kept, str(Cause.NOT_REVIEWED): _amount(item_bytes[~chosen])},
        extinct=dict.fromkeys(file.extinct, gone) if gone[0] else {},
        in_use=in_use.tobytes(),
    )


def _by_reason(reasons: Numbers, item_bytes: Numbers, names: Iterable[str]) -> dict[str, tuple[int, int]]:
    found = {name: _amount(item_bytes[reasons == int(Reason[name])]) for name in names}
    return {name: amount for name, amount in found.items() if amount[0]}


def _amount(item_bytes: Numbers) -> tuple[int, int]:
    return len(item_bytes), int(item_bytes.sum(dtype=np.int64))

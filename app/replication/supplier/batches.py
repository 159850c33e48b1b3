"""Batches on their way out: what is in them by replica id, and what a session leaves out of them."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from spark.replication.supplier.slices import RidRows

_RID_FROM: Final = 12
_RID_TO: Final = 16


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A batch before it is sent.

    Attributes:
        records: reads it back, for what the consumer refuses and for counts of a part.
        encode: its bytes on the wire.
    """

    rows: int
    ranges: Mapping[int, RidRows]
    encode: Callable[[], bytes]
    records: Callable[[], pa.RecordBatch]


def without(batch: pa.RecordBatch, halted: Collection[int]) -> pa.RecordBatch:
    """A batch without the records of halted replica ids."""
    if not halted:
        return batch
    rids = pc.utf8_slice_codeunits(batch.column("csn"), _RID_FROM, _RID_TO)
    wanted = pc.invert(pc.is_in(rids, value_set=pa.array([f"{rid:04x}" for rid in sorted(halted)])))
    return batch.filter(wanted)


def at_most(batches: Iterator[pa.RecordBatch], rows_max: int | None) -> Iterator[pa.RecordBatch]:
    """Batches up to a number of rows; the last one is cut."""
    left = rows_max
    for batch in batches:
        if left is not None and batch.num_rows >= left:
            yield batch.slice(0, left)
            return
        yield batch
        if left is not None:
            left -= batch.num_rows


def count_upto(batch: pa.RecordBatch, rid: int, upto: str) -> int:
    """How many records of a replica id stand at or below a CSN."""
    csns = batch.column("csn")
    own = pc.equal(pc.utf8_slice_codeunits(csns, _RID_FROM, _RID_TO), f"{rid:04x}")
    return int(pc.sum(pc.and_(own, pc.less_equal(csns, upto))).as_py() or 0)

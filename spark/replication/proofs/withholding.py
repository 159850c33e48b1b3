"""Changes as a consumer that holds a part of the keys gets them: those of other keys without key and value.

Extinctions and KEEPALIVEs go as they are, so that nothing that was extinct comes back anywhere.
"""

from __future__ import annotations

from spark.formats.arrow import np, pa, pc
from spark.formats.part import Part
from spark.replication.proofs.chain import digests_of
from spark.replication.records import RecordKind, record_schema

_EMPTIED = ("database", "key")


def withhold(batch: pa.RecordBatch, part: Part | None) -> pa.RecordBatch:
    """Records (record_schema()) as they leave for a replica of this part; None: as they are."""
    if part is None or not len(batch):
        return batch
    is_change = np.asarray(pc.equal(batch.column("kind"), RecordKind.CHANGE.value))
    is_other = is_change & ~part.covers(batch)
    if not is_other.any():
        return batch
    mask = pa.array(is_other)
    columns = {name: batch.column(name) for name in record_schema().names}
    for name in _EMPTIED:
        columns[name] = pc.if_else(mask, pa.scalar(b"", pa.binary()), columns[name])
    columns["kind"] = pc.if_else(mask, RecordKind.WITHHELD.value, columns["kind"])
    digests = pa.array(digests_of(batch.filter(mask)), pa.binary())
    columns["payload"] = pc.replace_with_mask(columns["payload"], mask, digests)
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=record_schema())

"""The chain over a replica's changes: a value for each, that stands for it and for all before it; pure.

    h(n) = SHA-256(h(n-1) || d(n))       d(n) = SHA-256 of the record's own bytes
    h(0) = SHA-256("lethe history 1" || replica id)

Two replicas that have the same value at the same CSN hold the same changes up to there, whatever their
batches were; whoever was put back and wrote on has another one. A value is None where the records before it
come from a version that kept none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Final

from spark.formats.arrow import pa
from spark.formats.changes.checks import rids_of
from spark.replication.records import RecordKind

CHAIN_BYTES: Final = 32
_SEED: Final = b"lethe history 1"
_BASE: Final = b"lethe history base 1"
_NO_CSN: Final = "-" * 20


def seed_of(rid: int) -> bytes:
    """The value before the first change of a replica."""
    return sha256(_SEED + rid.to_bytes(4, "big")).digest()


def base_of(rid: int, csn: str) -> bytes:
    """The value that two replicas agree on at a CSN, where neither of them knows what stood before it."""
    return sha256(_BASE + rid.to_bytes(4, "big") + csn.encode()).digest()


def digests_of(batch: pa.RecordBatch) -> list[bytes]:
    """d(n) of each record of `record_schema`; one that was withheld carries it."""
    columns = [
        batch.column(name).to_pylist() for name in ("csn", "prev", "kind", "database", "key", "payload")
    ]
    found = []
    for csn, prev, kind, database, key, payload in zip(*columns, strict=True):
        if kind == RecordKind.WITHHELD:
            found.append(payload or b"")
            continue
        lengths = f"{csn}{prev or _NO_CSN}{kind}\0{len(database)}\0{len(key)}\0"
        size = "-" if payload is None else str(len(payload))
        found.append(
            sha256(b"".join((f"{lengths}{size}\0".encode(), database, key, payload or b""))).digest()
        )
    return found


def follow(value: bytes | None, digests: Iterable[bytes]) -> bytes | None:
    """The value behind so many more records."""
    if value is not None:
        for digest in digests:
            value = sha256(value + digest).digest()
    return value


def chain_of(
    batch: pa.RecordBatch, before: Mapping[int, bytes | None]
) -> tuple[pa.Array, dict[int, bytes | None]]:
    """The value of each record, in the order of the batch, and the last one of each replica.

    Args:
        before: of each replica the value before its first record here.
    """
    heads = dict(before)
    values: list[bytes | None] = []
    for rid, digest in zip(rids_of(batch.column("csn")).tolist(), digests_of(batch), strict=True):
        value = heads[rid]
        if value is not None:
            value = heads[rid] = sha256(value + digest).digest()
        values.append(value)
    return pa.array(values, pa.binary()), heads

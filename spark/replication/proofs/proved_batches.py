"""Batches with their proof: it travels in the metadata of the Arrow schema, under the digest of the body."""

from __future__ import annotations

from typing import Final

from spark.formats.arrow import pa
from spark.formats.changes.batch import encode_arrow
from spark.formats.changes.errors import BatchUnreadable
from spark.replication.proofs.shown_proofs import proof_of
from spark.replication.proofs.values import BatchProof
from spark.targets.connection import Connection

PROOF_KEY: Final = b"lethe.history"


def encode_proved(conn: Connection, batch: pa.RecordBatch) -> bytes:
    """Write a batch of this changelog with its proof; no transaction is open."""
    return encode_with(batch, proof_of(conn, batch))


def encode_with(batch: pa.RecordBatch, proof: BatchProof) -> bytes:
    """Write a batch with its proof."""
    return encode_arrow(batch.replace_schema_metadata({PROOF_KEY: proof.to_json()}))


def proof_in(body: bytes) -> BatchProof | None:
    """The proof in a body that was decoded already; None: it has none.

    Raises: BatchUnreadable: what stands in its place is no proof.
    """
    try:
        with pa.ipc.open_stream(body) as reader:
            text = (reader.schema.metadata or {}).get(PROOF_KEY)
        return None if text is None else BatchProof.parse(text)
    except (pa.ArrowException, OSError, EOFError, ValueError, RecursionError) as error:
        raise BatchUnreadable(f"the proof beside the records: {str(error)[:200]}") from error

"""Pages of a copy as they travel: beside the entries stands up to where tombstones are missing among them.

It travels in the metadata of the Arrow schema, under the digest of the body; a consumer of an older version
passes it over, and is told with the end of the copy.
"""

from __future__ import annotations

from typing import Final

from spark.formats.arrow import pa
from spark.formats.changes.batch import encode_arrow
from spark.formats.changes.errors import BatchUnreadable
from spark.formats.csn import Csn

BOUND_KEY: Final = b"lethe.buried"


def encode_entries(page: pa.RecordBatch, buried: str | None) -> bytes:
    """Write a page of entries.

    Args:
        page: of entry_schema().
        buried: the greatest CSN of the tombstones that were purged before it was read; None: none were.
    """
    if buried is None:
        return encode_arrow(page)
    return encode_arrow(page.replace_schema_metadata({BOUND_KEY: buried.encode()}))


def bound_in(body: bytes) -> Csn | None:
    """The bound beside the entries of a body that was decoded already; None: there is none.

    Raises: BatchUnreadable: what stands in its place is no CSN.
    """
    try:
        with pa.ipc.open_stream(body) as reader:
            text = (reader.schema.metadata or {}).get(BOUND_KEY)
        return None if text is None else Csn(text.decode("ascii"))
    except (pa.ArrowException, OSError, EOFError, ValueError) as error:
        raise BatchUnreadable(f"the bound beside the entries: {str(error)[:200]}") from error

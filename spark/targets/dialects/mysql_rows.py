"""Rows of a single column as bytes, read from PyMySQL's connection a buffer at a time.

The driver takes microseconds for the packet of each row; here plain rows that lie whole in its buffer are cut
out of it. What is not plain (NULL, an error, the end, a row that the buffer does not hold) it reads itself.
Source: MariaDB's protocol: a packet is 3 bytes of length, its number, its bytes; a value follows its length.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Any

import pymysql
from pymysql.constants import CR

BUFFER_BYTES = 1 << 18
ROWS_MAX = 10_000
BLOCK_BYTES = 8 * 2**20
_HEAD = Struct("<IB")
_BYTES_OF_LENGTH = {252: 2, 253: 3}
_LONGEST = 0xFFFFFF


def widen(raw: Any) -> None:
    """Give a connection that was just made a buffer for many rows."""
    narrow = raw._rfile
    assert not narrow.closed, "just connected"
    raw._rfile = raw._sock.makefile("rb", BUFFER_BYTES)
    narrow.close()


def read_lines(raw: Any, result: Any) -> Iterator[list[bytes | None]]:
    """The values of an unbuffered result of one column, in blocks; None is NULL.

    A block ends with the buffer in which it comes to ROWS_MAX rows or BLOCK_BYTES.

    Raises: pymysql.Error.
    """
    block: list[bytes | None] = []
    held = 0
    while (row := result._read_rowdata_packet_unbuffered()) is not None:
        block.append(row[0])
        held += len(row[0] or b"") + _take_plain(raw, block)
        if len(block) >= ROWS_MAX or held >= BLOCK_BYTES:
            yield block
            block, held = [], 0
    if block:
        yield block


def _take_plain(raw: Any, block: list[bytes | None]) -> int:
    """Take the plain rows at the head of what the server has sent; their bytes there."""
    held = _peek(raw)
    at, sequence, size_of_all = 0, raw._next_seq_id, len(held)
    while at + _HEAD.size <= size_of_all:
        head, first = _HEAD.unpack_from(held, at)
        size, number = head & _LONGEST, head >> 24
        end = at + 4 + size
        if end > size_of_all or size == _LONGEST or number != sequence:
            break
        if first > 250:
            skipped = _BYTES_OF_LENGTH.get(first)
            if skipped is None or size <= skipped:
                break
            block.append(held[at + 5 + skipped : end])
        else:
            block.append(held[at + 5 : end])
        sequence = (sequence + 1) & 255
        at = end
    raw._rfile.read(at)
    raw._next_seq_id = sequence
    return at


def _peek(raw: Any) -> bytes:
    try:
        held: bytes = raw._rfile.peek()
    except OSError as error:
        raw._force_close()
        raise pymysql.OperationalError(
            CR.CR_SERVER_LOST, f"Lost connection to MySQL server during query ({error})"
        ) from error
    return held

"""Change sequence numbers in 389's text form: 20 lower-case hexadecimal digits without separators.

8 digits timestamp (seconds, UTC), 4 sequence, 4 replica id, 4 subsequence. Fields and widths stand in the
order of comparison, so text compares as the numbers do. Source: facts/replication-session, section 1.
"""

import re
from typing import Final, Self

CSN_CHARS: Final = 20
TIMESTAMP_MAX: Final = 0xFFFFFFFF
FIELD_MAX: Final = 0xFFFF
# 65535 is what 389 gives to replicas that write nothing; no change carries it.
RID_MIN: Final = 1
RID_MAX: Final = 65_534

_CSN = re.compile(r"[0-9a-f]{20}")
_NO_DIGIT = re.compile(r"[^0-9a-f]")
SHOWN_MAX_CHARS: Final = 60


class CsnInvalid(ValueError):
    """A text that is no CSN: what is wrong, and at which character (from 0)."""

    def __init__(self, detail: str, *, position: int) -> None:
        super().__init__(detail)
        self.detail = detail
        self.position = position


class Csn(str):
    """A CSN; its order is that of its text, so it compares with the text of a database row as it stands.

    Raises: CsnInvalid: not exactly 20 digits of 0-9a-f. 389 itself looks at the length only.
    """

    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        if _CSN.fullmatch(text) is None:
            raise _fault(text)
        return super().__new__(cls, text)

    @classmethod
    def of(cls, timestamp: int, sequence: int, rid: int, subsequence: int = 0) -> Self:
        """Put a CSN together; every field within its width."""
        assert 0 <= timestamp <= TIMESTAMP_MAX, timestamp
        assert all(0 <= field <= FIELD_MAX for field in (sequence, rid, subsequence)), (sequence, rid)
        return super().__new__(cls, f"{timestamp:08x}{sequence:04x}{rid:04x}{subsequence:04x}")

    @property
    def timestamp(self) -> int:
        """Seconds since 1970, UTC."""
        return int(self[:8], 16)

    @property
    def sequence(self) -> int:
        """The number within the second."""
        return int(self[8:12], 16)

    @property
    def rid(self) -> int:
        """The replica that made the change."""
        return int(self[12:16], 16)

    @property
    def subsequence(self) -> int:
        """The number of a part of one operation; 0 normally."""
        return int(self[16:], 16)


def _fault(text: str) -> CsnInvalid:
    shown = repr(text[:SHOWN_MAX_CHARS])
    wrong = _NO_DIGIT.search(text[: CSN_CHARS + 1])
    if wrong is not None:
        hint = "; digits are lower-case" if wrong.group() in "ABCDEF" else ""
        detail = f"{wrong.group()!r} at character {wrong.start()} is no hexadecimal digit{hint}"
        return CsnInvalid(f"{shown}: {detail}", position=wrong.start())
    detail = f"{len(text)} characters where a CSN has {CSN_CHARS}"
    return CsnInvalid(f"{shown}: {detail}", position=min(len(text), CSN_CHARS))

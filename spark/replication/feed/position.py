"""Where a reader of the change feed stands: of each replica id the last change that it was given.

A position is a RUV with a part of the chain's value at each CSN: it says how far somebody has read, and of
which history. As text it is opaque, and good at every replica of the topology; its checksum finds what was
cut or mistyped, it is no signature: whoever makes one up reads from another place, and nothing else.
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, Self

from spark.formats.csn import RID_MAX, RID_MIN, Csn

CHAIN_KEPT_BYTES: Final = 6
RIDS_MAX: Final = 500
"""More do not fit into a header."""
_VERSION: Final = b"\x01"
_CSN_BYTES: Final = 10
_PLACE_BYTES: Final = _CSN_BYTES + CHAIN_KEPT_BYTES
_CHECK_BYTES: Final = 4
_HEAD_BYTES: Final = len(_VERSION) + _CSN_BYTES
_NONE: Final = bytes(_CSN_BYTES)
_UNKNOWN: Final = bytes(CHAIN_KEPT_BYTES)
TEXT_MAX_CHARS: Final = -(-(_HEAD_BYTES + RIDS_MAX * _PLACE_BYTES + _CHECK_BYTES) * 4 // 3)


class PositionUnreadable(ValueError):
    """A text that is no position."""


@dataclass(frozen=True, slots=True)
class Place:
    """The last change of one replica id; `mark` begins the chain's value there, None where it has none."""

    csn: Csn
    mark: bytes | None

    @classmethod
    def at(cls, csn: str, chain: bytes | None) -> Self:
        """A CSN, and the whole value of the chain there."""
        return cls(Csn(csn), None if chain is None else bytes(chain)[:CHAIN_KEPT_BYTES])

    def fits(self, chain: bytes | None) -> bool:
        """Whether a history with this value at the CSN may be the one that was read."""
        return self.mark is None or chain is None or bytes(chain)[:CHAIN_KEPT_BYTES] == self.mark


@dataclass(frozen=True, slots=True)
class Position:
    """How far somebody has read.

    Attributes:
        generation: of the replica; None: it had none yet.
        places: by replica id; one that is not here has given nothing yet.
    """

    generation: str | None = None
    places: Mapping[int, Place] = field(default_factory=dict)

    def moved(self, places: Mapping[int, Place]) -> "Position":
        """The same, with other places of some replica ids."""
        return Position(self.generation, {**self.places, **places})

    def text(self) -> str:
        """In base64url."""
        assert len(self.places) <= RIDS_MAX, len(self.places)
        parts = [_VERSION, _NONE if self.generation is None else bytes.fromhex(self.generation)]
        for _, place in sorted(self.places.items()):
            parts += [bytes.fromhex(place.csn), place.mark or _UNKNOWN]
        raw = b"".join(parts)
        return base64.urlsafe_b64encode(raw + _check_of(raw)).decode().rstrip("=")

    @classmethod
    def of(cls, text: str) -> Self:
        """Read a text back.

        Raises: PositionUnreadable.
        """
        if len(text) > TEXT_MAX_CHARS:
            raise PositionUnreadable("too long")
        try:
            raw = base64.b64decode(
                text.translate(_STANDARD).encode("ascii") + b"=" * (-len(text) % 4), validate=True
            )
        except (binascii.Error, ValueError):
            raise PositionUnreadable("no base64url") from None
        raw, check = raw[:-_CHECK_BYTES], raw[-_CHECK_BYTES:]
        rest = len(raw) - _HEAD_BYTES
        if rest < 0 or rest % _PLACE_BYTES or not raw.startswith(_VERSION) or check != _check_of(raw):
            raise PositionUnreadable("cut, changed, or of another version")
        places = [
            _place_of(raw[begin : begin + _PLACE_BYTES])
            for begin in range(_HEAD_BYTES, len(raw), _PLACE_BYTES)
        ]
        rids = [place.csn.rid for place in places]
        if rids != sorted(set(rids)) or any(not RID_MIN <= rid <= RID_MAX for rid in rids):
            raise PositionUnreadable("its replica ids are not in their order")
        generation = raw[len(_VERSION) : _HEAD_BYTES]
        return cls(None if generation == _NONE else generation.hex(), dict(zip(rids, places, strict=True)))


_STANDARD: Final = str.maketrans("-_", "+/")


def _place_of(raw: bytes) -> Place:
    mark = raw[_CSN_BYTES:]
    return Place(Csn(raw[:_CSN_BYTES].hex()), None if mark == _UNKNOWN else mark)


def _check_of(raw: bytes) -> bytes:
    return blake2b(raw, digest_size=_CHECK_BYTES).digest()

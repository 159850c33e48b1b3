"""Packed integers, byte arrays and strings of JE, read one after another in Python, for rare entries."""

from dataclasses import dataclass

INT_VALUE_BYTES_MAX = 4
LONG_VALUE_BYTES_MAX = 8
ONE_BYTE_MAX = 119


class ItemMalformed(Exception):
    """The bytes of an item do not hold what its type says."""


@dataclass(slots=True)
class ItemReader:
    """A position in the bytes of one item. Every read either has all its bytes or raises ItemMalformed."""

    data: bytes
    position: int = 0

    def take(self, count: int) -> bytes:
        """Take the next bytes as they are."""
        end = self.position + count
        if count < 0 or end > len(self.data):
            raise ItemMalformed(f"{count} bytes wanted at byte {self.position} of {len(self.data)}")
        taken = self.data[self.position : end]
        self.position = end
        return taken

    def byte(self) -> int:
        """Take one unsigned byte."""
        return self.take(1)[0]

    def fixed_long(self) -> int:
        """Take a signed integer of eight bytes."""
        return int.from_bytes(self.take(8), "little", signed=True)

    def packed_int(self) -> int:
        """Take a packed integer of at most four value bytes."""
        value = self._packed(INT_VALUE_BYTES_MAX)
        if not -(2**31) <= value < 2**31:
            raise ItemMalformed(f"packed int out of range before byte {self.position}")
        return value

    def packed_long(self) -> int:
        """Take a packed integer of at most eight value bytes."""
        value = self._packed(LONG_VALUE_BYTES_MAX)
        if not -(2**63) <= value < 2**63:
            raise ItemMalformed(f"packed long out of range before byte {self.position}")
        return value

    def byte_array(self) -> bytes | None:
        """Take a byte array behind its packed length; None where the length is -1."""
        length = self.packed_int()
        if length == -1:
            return None
        if length < -1:
            raise ItemMalformed(f"length {length} before byte {self.position}")
        return self.take(length)

    def text(self) -> str:
        """Take a string in UTF-8; one that is absent reads as empty."""
        raw = self.byte_array()
        try:
            return "" if raw is None else raw.decode()
        except UnicodeDecodeError as error:
            raise ItemMalformed(f"no UTF-8 before byte {self.position}") from error

    def finish(self) -> None:
        """Assert that the item is used up: a rest means that it was read wrongly."""
        if self.position != len(self.data):
            raise ItemMalformed(f"{len(self.data) - self.position} bytes left over at byte {self.position}")

    def _packed(self, value_bytes_max: int) -> int:
        first = int.from_bytes(self.take(1), "little", signed=True)
        if -ONE_BYTE_MAX <= first <= ONE_BYTE_MAX:
            return first
        count = abs(first) - ONE_BYTE_MAX
        if count > value_bytes_max:
            raise ItemMalformed(f"{count} value bytes in a packed integer before byte {self.position}")
        magnitude = int.from_bytes(self.take(count), "little") + ONE_BYTE_MAX
        return magnitude if first > 0 else -magnitude

"""One file of a verification: what a cycle said of it, and what it is now."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FileToVerify:
    """A file that a cycle has worked at.

    Attributes:
        size: in bytes, as it was then.
        with_hash: hash its first `size` bytes.
        entries: what was to be erased, as PlannedFile.entries; empty where that is not kept any more.
        in_use: as PlannedFile.in_use, of all cycles: slots may lead to these.
    """

    number: int
    size: int
    with_hash: bool
    entries: bytes = b""
    in_use: bytes = b""


@dataclass(frozen=True, slots=True)
class VerifiedFile:
    """A file as it is now; `sha256` is empty where nobody asked for it.

    Attributes:
        extinct_in_use: erased entries that slots lead to and that extinctions have let go.
    """

    number: int
    size: int
    mtime_ns: int
    sha256: str
    erased_count: int
    erased_bytes: int
    extinct_in_use: int = 0

"""Every entry of an environment in plain Python, with all that a recovery would look at.

Written from the description of the format alone (facts je-log-format); frames come from `je_log.walk`, which
is as plain. Nothing of spark/ is imported: this is the witness that judges it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from tests.oracles.je_log import Item, Wrong, split_embedded, walk

NONE = -1
USER_LNS = frozenset({31, 32, 33, 34, 35, 36, 44, 45})
DELETIONS = frozenset({31, 32, 45})
NODES = frozenset({12, 13, 37})
WITH_TXN = frozenset({3, 5, 31, 33, 35, 42, 44, 45})
MAPPING_DB, NAMING_DB = 0, 1
KNOWN_DELETED, PENDING_DELETED, EMBEDDED, TOMBSTONE = 0x01, 0x08, 0x10, 0x80


@dataclass(frozen=True)
class Database:
    """A DatabaseImpl, as it stands in a MapLN or a DbTree."""

    id: int
    name: str
    root: int
    flags: int
    has_comparator: bool

    @property
    def dups(self) -> bool:
        return bool(self.flags & 1) and not self.has_comparator


@dataclass(frozen=True)
class Slot:
    key: bytes
    lsn: int
    state: int
    value: bytes | None

    @property
    def is_gone(self) -> bool:
        return bool(self.state & (KNOWN_DELETED | PENDING_DELETED))


@dataclass
class Entry:
    lsn: int
    type: int
    flags: int
    header: int
    size: int
    vlsn: int
    all_zero: bool
    db: int | None = None
    txn: int = 0
    key: bytes = b""
    value: bytes | None = None
    ln_flags: int = 0
    ln_flags2: int = 0
    abort_lsn: int = NONE
    abort_key: bytes | None = None
    abort_data: bytes | None = None
    node: int = NONE
    last_full: int = NONE
    level: int = 0
    identifier: bytes = b""
    slots: list[Slot] = field(default_factory=list)
    named_db: int = NONE
    map: Database | None = None
    trees: list[Database] = field(default_factory=list)
    is_deletion: bool = False
    first_active: int = NONE
    root: int = NONE

    @property
    def file(self) -> int:
        return self.lsn >> 32

    @property
    def offset(self) -> int:
        return self.lsn & 0xFFFFFFFF

    @property
    def invisible(self) -> bool:
        return bool(self.flags & 0x10)

    @property
    def is_embedded(self) -> bool:
        return bool(self.ln_flags & 0x02)


@dataclass
class Log:
    """All entries in log order; `torn` says whether the last file ends in something that is no entry."""

    entries: list[Entry]
    files: list[int]
    torn: bool

    def __post_init__(self) -> None:
        self.at = {entry.lsn: entry for entry in self.entries}


def read_environment(directory: Path) -> Log:
    """Read every `.jdb` file; a fault is legal at the end of the last one only."""
    paths = sorted(directory.glob("*.jdb"))
    found: list[Entry] = []
    torn = False
    for path in paths:
        try:
            found.extend(entries_of(int(path.name[:8], 16), path.read_bytes()))
        except Wrong:
            if path != paths[-1]:
                raise
            torn = True
            found.extend(whole_part(int(path.name[:8], 16), path.read_bytes()))
    return Log(found, [int(path.name[:8], 16) for path in paths], torn)


@lru_cache(maxsize=12)
def entries_of(number: int, data: bytes) -> tuple[Entry, ...]:
    """All entries of a file, which nobody changes; bytes that were read a moment ago are not read again."""
    return tuple(read_file(number, data))


def whole_part(number: int, data: bytes) -> list[Entry]:
    """The entries before the first fault."""
    found = []
    entries = read_file(number, data)
    while True:
        try:
            found.append(next(entries))
        except (Wrong, StopIteration):
            return found


def read_file(number: int, data: bytes) -> Iterator[Entry]:
    for frame in walk(data):
        start = frame["offset"] + frame["header"]
        item = data[start : start + frame["item_bytes"]]
        entry = Entry(
            lsn=(number << 32) + frame["offset"],
            type=frame["type"],
            flags=frame["flags"],
            header=frame["header"],
            size=frame["item_bytes"],
            vlsn=frame["vlsn"],
            all_zero=not any(item),
        )
        fill(entry, Item(item), frame)
        yield entry


def fill(entry: Entry, item: Item, frame: dict[str, object]) -> None:
    if entry.type in NODES:
        fill_node(entry, frame["node"])
        entry.identifier = identifier_key(entry.type, item)
    elif entry.type in {17, 18}:
        entry.txn = frame["end"]["txn"]  # type: ignore[index]
    elif entry.type == 16:
        item.raw(16)
        entry.trees = [database_impl(item), database_impl(item)]
    elif entry.type == 20:
        fill_checkpoint(entry, item)
    elif "ln" in frame:
        fill_user_ln(entry, frame["ln"])
    elif entry.type in {3, 4, 5, 6, 11}:
        fill_ln(entry, item)


def fill_user_ln(entry: Entry, ln: object) -> None:
    assert isinstance(ln, dict)
    entry.db, entry.txn, entry.key, entry.value = ln["db"], ln["txn"], ln["key"], ln["value"]
    entry.ln_flags, entry.ln_flags2 = ln["flags"] & 0xFF, ln["flags"] >> 8 & 0xFF
    entry.is_deletion = entry.type in DELETIONS
    entry.abort_lsn = real(ln["abort_lsn"])
    entry.abort_key, entry.abort_data = ln["abort_key"], ln["abort_data"]


def fill_ln(entry: Entry, item: Item) -> None:
    """An LN of the naming or the mapping tree, or of file summaries."""
    one, two, three = item.u8(), item.u8(), item.u8()
    entry.ln_flags, entry.ln_flags2 = one, two
    entry.db = item.l()
    if one & 0x80:
        item.i()
    item.l()
    if three & 1:
        item.l()
    entry.key = item.array() or b""
    entry.value = item.array()
    if entry.type == 11:
        return
    entry.is_deletion = entry.value is None
    if entry.type in {5, 6}:
        entry.named_db = item.l()
        item.u8()
    else:
        entry.map = database_impl(item)
        entry.is_deletion |= item.u8() != 0
    if entry.type in WITH_TXN:
        entry.abort_lsn = real(item.l()) if one & 0x20 else NONE
        entry.txn = item.l()
        item.l()
    entry.abort_key = item.array() if one & 0x04 else None
    entry.abort_data = item.array() if one & 0x08 else None


def real(lsn: int) -> int:
    """A transient LSN (file ffffffff) names nothing in the log."""
    return NONE if lsn < 0 or lsn >> 32 == 0xFFFFFFFF else lsn


def database_impl(item: Item) -> Database:
    number = item.l()
    name = "" if number in {MAPPING_DB, NAMING_DB} else (item.array() or b"").decode()
    root = NONE
    if item.u8():
        item.array()
        root = real(item.l())
        item.u8()
    flags = item.u8()
    comparators = [item.array(), item.array()]
    item.i()
    item.u8()
    for _ in range(item.i()):
        raise Wrong("a trigger")
    return Database(number, name, root, flags, any(comparators))


def fill_node(entry: Entry, node: object) -> None:
    assert isinstance(node, dict)
    entry.db, entry.node, entry.level = node["db"], node["node"], node["level"]
    entry.last_full = real(node["last_full"])
    entry.slots = [Slot(key, real(lsn), state, value) for key, lsn, state, value in node["slots"]]


def identifier_key(kind: int, item: Item) -> bytes:
    """A key that a node was once found by; it may be of a record that is long dead."""
    for _ in range(5 if kind == 12 else 8):
        item.l()
    item.l()
    return item.array() or b""


def fill_checkpoint(entry: Entry, item: Item) -> None:
    item.array()
    item.l()
    item.l()
    if item.u8() & 1:
        entry.root = item.l()
    entry.first_active = item.l()


def split_duplicate(key: bytes) -> tuple[bytes, bytes]:
    """The user's key and data of a record in a database with duplicates."""
    return split_embedded(key)

"""Databases and transactions as the writer of logs holds them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from lethe_samples.je_writer.flush import NodeLog
from lethe_samples.je_writer.items import DatabaseItem
from lethe_samples.je_writer.packed import two_part_key
from lethe_samples.je_writer.tree import Node, Slot, Tree
from spark.formats.je.items import DATABASE_DUPS
from spark.formats.je.log import NULL_LSN
from spark.formats.je.packed import ItemReader

# The flag of databases whose nodes leave out what all their keys begin with.
DATABASE_PREFIXING: Final = 0x10
EMBEDDED_VALUE_BYTES_MAX: Final = 16
ROOT_STATE: Final = 2


@dataclass(slots=True)
class Database:
    """A database with its tree.

    Attributes:
        comparator: what its MapLN says of its order; the writer sorts by bytes all the same.
        mapped: whether the newest MapLN names the newest root.
        removed: its MapLN is a deletion.
    """

    id: int
    name: str
    flags: int
    comparator: bytes
    tree: Tree
    nodes: NodeLog
    mapped: bool = True
    removed: bool = False

    @property
    def dups(self) -> bool:
        """Whether a record's data is part of its key."""
        return bool(self.flags & DATABASE_DUPS)

    @property
    def internal(self) -> bool:
        """Whether it belongs to JE itself."""
        return self.id <= 1 or self.name.startswith("_je")

    def item(self) -> DatabaseItem:
        """Say what a MapLN or DbTree says of it."""
        root = self.tree.root
        # A root that has split is logged with the next checkpoint; until then the one it grew from stands.
        while root is not None and root.lsn == NULL_LSN:
            root = None if root.is_bin else root.children[0]
        return DatabaseItem(
            id=self.id,
            name=self.name,
            root_lsn=None if root is None else root.lsn,
            flags=self.flags,
            root_state=ROOT_STATE,
            btree_comparator=self.comparator,
            capacity=self.tree.capacity,
        )

    def begin(self, key: bytes) -> None:
        """Make and log an empty tree for a first key."""
        self.tree.begin(key)
        self.nodes.begin(self.tree)
        self.mapped = False

    def split(self, parent: Node, left: Node, right: Node) -> None:
        """Log what a split has changed."""
        self.nodes.log_split(self.tree, parent, left, right)
        self.mapped = self.mapped and parent is not self.tree.root

    def key(self, key: bytes, value: bytes) -> bytes:
        """Make the key of a record in the tree."""
        return two_part_key(key, value) if self.dups else key

    def records(self) -> Iterator[tuple[bytes, bytes]]:
        """Go through what a reader would find now, uncommitted changes included."""
        for slot in self.tree.slots():
            if slot.deleted:
                continue
            if self.dups:
                yield split_two_part_key(slot.key)
            else:
                assert slot.value is not None
                yield slot.key, slot.value

    def embeds(self, value: bytes) -> bool:
        """Whether a value of this length goes into the BIN's slot."""
        return not self.dups and not self.internal and len(value) <= EMBEDDED_VALUE_BYTES_MAX


@dataclass(slots=True)
class Txn:
    """A transaction: what its keys were before it.

    Attributes:
        before: (database id, key) -> the slot as it was, or None where there was none.
        on_commit, on_abort: what follows its end.
    """

    id: int
    first_lsn: int = NULL_LSN
    last_lsn: int = NULL_LSN
    before: dict[tuple[int, bytes], Slot | None] = field(default_factory=dict)
    on_commit: list[Callable[[], None]] = field(default_factory=list)
    on_abort: list[Callable[[], None]] = field(default_factory=list)
    open: bool = True

    def wrote(self, lsn: int) -> None:
        """Note an entry of its own."""
        self.first_lsn = lsn if self.first_lsn == NULL_LSN else self.first_lsn
        self.last_lsn = lsn


class RecordLocked(Exception):
    """Another open transaction has changed the record."""


def split_two_part_key(raw: bytes) -> tuple[bytes, bytes]:
    """Take apart the key of a database with duplicates."""
    # The length is packed backwards: its first byte is the last one here.
    width = max(raw[-1] - 119, 0) + 1
    length = ItemReader(raw[: -width - 1 : -1]).packed_int()
    return raw[:length], raw[length : len(raw) - width]

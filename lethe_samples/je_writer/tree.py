"""The B-tree of a database as its writer holds it: nodes with slots in the order of their keys."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from lethe_samples.je_writer.nodes import LEVEL_BIN
from spark.formats.je.items import SLOT_KNOWN_DELETED, SLOT_PENDING_DELETED
from spark.formats.je.log import NULL_LSN

DELETED: Final = SLOT_KNOWN_DELETED | SLOT_PENDING_DELETED

Order: TypeAlias = Callable[[bytes], Any]


@dataclass(slots=True)
class Slot:
    """One record as the tree knows it.

    Attributes:
        size: of its newest LN with the header.
        value: the newest value; of a deleted record the last one, where that was embedded.
        expiration: as LNs have it: days, or hours negative.
    """

    key: bytes
    lsn: int
    size: int
    value: bytes | None
    embedded: bool = False
    state: int = 0
    expiration: int | None = None
    modified_ms: int = 0
    dirty: bool = True

    @property
    def deleted(self) -> bool:
        """Whether the record is gone; its slot stays a while."""
        return bool(self.state & DELETED)

    def become(self, other: "Slot") -> None:
        """Take over what another version of the same record says."""
        self.lsn, self.size, self.value, self.embedded = other.lsn, other.size, other.value, other.embedded
        self.state, self.expiration, self.modified_ms = other.state, other.expiration, other.modified_ms


@dataclass(slots=True)
class Node:
    """A BIN (slots) or an upper node (children).

    Attributes:
        keys: of the slots or children.
        order: what they are sorted by; one and the same list as `keys` where keys sort as bytes do.
        lsn, size: the newest logged version, which may be a delta.
        full_lsn, full_size: the newest full version.
        delta_allowed: not after a slot was removed.
    """

    id: int
    level: int
    identifier: bytes
    keys: list[bytes] = field(default_factory=list)
    order: list[Any] = field(default_factory=list)
    slots: list[Slot] = field(default_factory=list)
    children: list["Node"] = field(default_factory=list)
    lsn: int = NULL_LSN
    size: int = 0
    full_lsn: int = NULL_LSN
    full_size: int = 0
    delta_lsn: int = NULL_LSN
    delta_size: int = 0
    dirty: bool = True
    delta_allowed: bool = False
    # Of a child: whether its parent has been logged since it was.
    known_to_parent: bool = False

    @property
    def is_bin(self) -> bool:
        """Whether it is at the bottom."""
        return self.level & 0xFFFF == LEVEL_BIN


class Tree:
    """A database's tree. It is empty, without a root, until the first record comes."""

    def __init__(self, level: int, capacity: int, order: Order | None, new_id: Callable[[], int]) -> None:
        """Make an empty tree."""
        self.level = level
        self.capacity = capacity
        self.root: Node | None = None
        # What follows a split of a node into two below a parent.
        self.on_split: Callable[[Node, Node, Node], None] | None = None
        self._order = order
        self._new_id = new_id

    def begin(self, key: bytes) -> Node:
        """Make the root and its first BIN."""
        assert self.root is None
        self.root = self._new_node(self.level | 2, key)
        child = self._new_node(self.level | 1, key)
        self._insert_at(self.root, 0, key, child)
        return self.root

    def find(self, key: bytes) -> Slot | None:
        """Find a key's slot, deleted or not."""
        if self.root is None or not self.root.children:
            return None
        node = self._descend(key)[-1]
        at = self._position(node, key)
        return node.slots[at] if at < len(node.keys) and node.keys[at] == key else None

    def touch(self, slot: Slot) -> None:
        """Note that a slot changed."""
        slot.dirty = True
        self._descend(slot.key)[-1].dirty = True

    def put(self, slot: Slot | None, new: Slot) -> None:
        """Bring a slot that was found to its new version, or add one."""
        if slot is None:
            self.insert(new)
        else:
            slot.become(new)
            self.touch(slot)

    def insert(self, slot: Slot) -> None:
        """Add a slot for a key that has none."""
        path = self._descend(slot.key)
        if len(path[-1].keys) >= self.capacity:
            self._split(path)
            path = self._descend(slot.key)
        node = path[-1]
        if not node.keys:
            node.identifier = slot.key
        self._insert_at(node, self._position(node, slot.key), slot.key, slot)
        node.dirty = True

    def slots(self) -> Iterator[Slot]:
        """Go through all slots in their order."""
        for node in self.bins():
            yield from node.slots

    def bins(self) -> Iterator[Node]:
        """Go through all BINs in their order."""
        waiting = [self.root] if self.root else []
        while waiting:
            node = waiting.pop()
            if node.is_bin:
                yield node
            waiting.extend(reversed(node.children))

    def remove_deleted(self, node: Node, but: Set[bytes]) -> None:
        """Take the slots of deleted records out of a BIN, but for some keys."""
        kept = [at for at, slot in enumerate(node.slots) if not slot.deleted or slot.key in but]
        if len(kept) == len(node.slots):
            return
        shared = node.order is node.keys
        node.slots = [node.slots[at] for at in kept]
        node.keys = [node.keys[at] for at in kept]
        node.order = node.keys if shared else [node.order[at] for at in kept]
        if node.keys and node.identifier not in node.keys:
            node.identifier = node.keys[0]
        node.delta_allowed = False
        node.dirty = True

    def _new_node(self, level: int, identifier: bytes) -> Node:
        node = Node(self._new_id(), level, identifier)
        if self._order is None:
            node.order = node.keys
        return node

    def _position(self, node: Node, key: bytes) -> int:
        return bisect_left(node.order, key if self._order is None else self._order(key))

    def _descend(self, key: bytes) -> list[Node]:
        assert self.root is not None
        path, wanted = [self.root], key if self._order is None else self._order(key)
        while not path[-1].is_bin:
            node = path[-1]
            # The first child takes all that is smaller, whatever its key says.
            path.append(node.children[bisect_right(node.order, wanted, lo=1) - 1])
        return path

    def _insert_at(self, node: Node, at: int, key: bytes, entry: "Slot | Node") -> None:
        node.keys.insert(at, key)
        if self._order is not None:
            node.order.insert(at, self._order(key))
        if isinstance(entry, Slot):
            node.slots.insert(at, entry)
        else:
            node.children.insert(at, entry)

    def _set_key(self, node: Node, at: int, key: bytes) -> None:
        node.keys[at] = key
        if self._order is not None:
            node.order[at] = self._order(key)

    def _split(self, path: list[Node]) -> None:
        """Split the full node at a path's end, and those above it that would overflow."""
        for depth in range(len(path) - 1, -1, -1):
            node = path[depth]
            if len(node.keys) < self.capacity:
                return
            if depth == 0:
                root = self._new_node(node.level + 1, node.identifier)
                self._insert_at(root, 0, node.identifier, node)
                self.root = root
                self._split_node(root, node)
            else:
                self._split_node(path[depth - 1], node)

    def _split_node(self, parent: Node, node: Node) -> None:
        middle = len(node.keys) // 2
        right = self._new_node(node.level, node.keys[middle])
        right.keys[:], right.slots = node.keys[middle:], node.slots[middle:]
        right.children = node.children[middle:]
        if self._order is not None:
            right.order[:] = node.order[middle:]
            del node.order[middle:]
        del node.keys[middle:], node.slots[middle:], node.children[middle:]
        if node.identifier not in node.keys:
            node.identifier = node.keys[0]
        at = parent.children.index(node)
        if at == 0:
            # The first child also has what is smaller than its key: that may now lie in its right half.
            self._set_key(parent, 0, node.keys[0])
        self._insert_at(parent, at + 1, right.identifier, right)
        for changed in (parent, node, right):
            changed.dirty, changed.delta_allowed = True, False
        node.known_to_parent = False
        if self.on_split is not None:
            self.on_split(parent, node, right)

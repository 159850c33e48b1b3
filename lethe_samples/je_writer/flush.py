"""Logs the nodes of a tree: bottom up, BINs as deltas where few slots changed."""

from dataclasses import dataclass
from typing import Final

from lethe_samples.je_writer.log import LogWriter
from lethe_samples.je_writer.nodes import COMPACT_KEY_BYTES_MAX, NodeItem, SlotItem, bloom_filter, write_node
from lethe_samples.je_writer.packed import two_part_key
from lethe_samples.je_writer.tree import Node, Slot, Tree
from spark.formats.je import items
from spark.formats.je import log as je_log
from spark.formats.je.log import NULL_LSN, EntryType

DELTA_PERCENT_MAX: Final = 25
HOURS_PER_DAY: Final = 24


@dataclass(frozen=True, slots=True)
class NodeLog:
    """Where and how a database's nodes are logged.

    Attributes:
        prefix: its nodes leave out what all keys of one begin with.
        logged_sizes: its slots say how large their LNs are; not with duplicates.
    """

    writer: LogWriter
    db_id: int
    prefix: bool
    logged_sizes: bool
    deltas: bool = True

    def flush(self, tree: Tree) -> bool:
        """Log all of a tree that changed; return whether its root was logged."""
        if tree.root is None:
            return False
        return self._flush(tree, tree.root)

    def begin(self, tree: Tree) -> None:
        """Log a new tree's first BIN and its root, as JE does when the first record comes."""
        assert tree.root is not None
        self._log_bin(tree.root.children[0], tree)
        self._log_upper(tree.root, tree, provisional=0)

    def log_split(self, tree: Tree, parent: Node, left: Node, right: Node) -> None:
        """Log the halves of a node and their parent, so that a crash finds them all or none of them."""
        for node in (right, left):
            if node.is_bin:
                self._log_bin(node, tree)
            else:
                self._log_upper(node, tree, provisional=je_log.FLAG_PROVISIONAL)
        self._log_upper(parent, tree, provisional=0)

    def evict(self, tree: Tree, node: Node) -> None:
        """Log one BIN that changed, as JE does between checkpoints to have its memory back."""
        assert node.is_bin
        assert node.dirty
        self._log_bin(node, tree, provisional=0)

    def _flush(self, tree: Tree, node: Node) -> bool:
        if node.is_bin:
            if node.dirty:
                self._log_bin(node, tree)
                return True
            return False
        changed = [self._flush(tree, child) for child in node.children]
        if node.dirty or any(changed) or not all(child.known_to_parent for child in node.children):
            below = je_log.FLAG_PROVISIONAL_BEFORE_CHECKPOINT_END
            self._log_upper(node, tree, provisional=0 if node is tree.root else below)
            return True
        return False

    def _log_bin(self, node: Node, tree: Tree, *, provisional: int = je_log.FLAG_PROVISIONAL) -> None:
        changed = sum(slot.dirty for slot in node.slots)
        few = changed * 100 <= len(node.slots) * DELTA_PERCENT_MAX
        as_delta = self.deltas and node.delta_allowed and bool(changed) and few
        kind = EntryType.BIN_DELTA if as_delta else EntryType.BIN
        item = write_node(self._bin_item(node, tree, as_delta=as_delta), kind)
        node.lsn = self.writer.append(kind, item, provisional=provisional)
        node.size = je_log.HEADER_BYTES + len(item)
        if as_delta:
            node.delta_lsn, node.delta_size = node.lsn, node.size
        else:
            node.full_lsn, node.full_size = node.lsn, node.size
            node.delta_lsn, node.delta_size, node.delta_allowed = NULL_LSN, 0, bool(node.slots)
            for slot in node.slots:
                slot.dirty = False
        node.dirty = node.known_to_parent = False

    def _log_upper(self, node: Node, tree: Tree, *, provisional: int) -> None:
        flags = items.NODE_LOGGED_SIZES | items.NODE_ROOT * (node is tree.root)
        prefix = _prefix(node.keys) if self.prefix else b""
        slots = tuple(
            SlotItem(
                key[len(prefix) :],
                child.lsn,
                0 if child.known_to_parent else items.SLOT_DIRTY,
                child.size if flags & items.NODE_LOGGED_SIZES else 0,
            )
            for key, child in zip(node.keys, node.children, strict=True)
        )
        item = NodeItem(
            self.db_id, node.id, node.level, node.identifier, flags | _prefix_flag(prefix), slots,
            prefix or None, _compact(slots), tree.capacity, node.full_lsn, node.full_size,
        )  # fmt: skip
        raw = write_node(item, EntryType.IN)
        node.lsn = node.full_lsn = self.writer.append(EntryType.IN, raw, provisional=provisional)
        node.size = node.full_size = je_log.HEADER_BYTES + len(raw)
        node.dirty = node.known_to_parent = False
        for child in node.children:
            child.known_to_parent = True

    def _bin_item(self, node: Node, tree: Tree, *, as_delta: bool) -> NodeItem:
        prefix = _prefix(node.keys) if self.prefix else b""
        expirations = [slot.expiration for slot in node.slots if slot.expiration is not None]
        hours = any(expiration < 0 for expiration in expirations)
        expiration_base = min((_expiration(each, hours=hours) for each in expirations), default=-1)
        modified_base = min((slot.modified_ms for slot in node.slots if slot.embedded), default=-1)
        flags = items.NODE_LOGGED_SIZES * self.logged_sizes | _prefix_flag(prefix)
        flags |= items.NODE_EXPIRATION_IN_HOURS * hours
        chosen = [slot for slot in node.slots if slot.dirty or not as_delta]
        slots = tuple(
            _slot_item(slot, len(prefix), expiration_base, modified_base, hours=hours) for slot in chosen
        )
        capacity, full, bloom = tree.capacity, (0, 0), None
        if as_delta:
            capacity = max(len(node.slots) * DELTA_PERCENT_MAX // 100, len(slots))
            others = [slot.key for slot in node.slots if not slot.dirty]
            full, bloom = (len(node.slots), tree.capacity), bloom_filter(others, len(others))
            flags |= items.NODE_BLOOM_FILTER
        return NodeItem(
            self.db_id, node.id, node.level, node.identifier, flags, slots, prefix or None, _compact(slots),
            capacity, node.full_lsn, node.full_size, node.delta_lsn, node.delta_size,
            expiration_base, -1, modified_base, *full, bloom,
        )  # fmt: skip


def _slot_item(slot: Slot, cut: int, expiration_base: int, modified_base: int, *, hours: bool) -> SlotItem:
    key, state, modified = slot.key[cut:], slot.state | items.SLOT_DIRTY * slot.dirty, 0
    if slot.embedded:
        state |= items.SLOT_EMBEDDED
        modified = slot.modified_ms - modified_base + 1
        if slot.value:
            key = two_part_key(key, slot.value)
        else:
            state |= items.SLOT_NO_DATA
    offset = 0
    if slot.expiration is not None:
        offset = _expiration(slot.expiration, hours=hours) - expiration_base + 1
    return SlotItem(key, slot.lsn, state, slot.size, 0, offset, 0, modified)


def _expiration(expiration: int, *, hours: bool) -> int:
    """Bring an expiration to the unit of its node."""
    if expiration < 0:
        return -expiration
    return expiration * HOURS_PER_DAY if hours else expiration


def _prefix(keys: list[bytes]) -> bytes:
    """Find what all keys of a node begin with; the smallest and the largest tell it."""
    if len(keys) < 2:
        return b""
    low, high = min(keys), max(keys)
    same = next((at for at, byte in enumerate(low) if byte != high[at]), len(low))
    return low[:same]


def _prefix_flag(prefix: bytes) -> int:
    return items.NODE_KEY_PREFIX if prefix else 0


def _compact(slots: tuple[SlotItem, ...]) -> int:
    longest = max((len(slot.key) for slot in slots), default=0)
    return longest if 0 < longest <= COMPACT_KEY_BYTES_MAX else -1

"""The veto: what the trees of the databases reach, and what the tail of the log refers to, is never erased.

The walk starts at the roots that the newest MapLNs name, not at the root of the checkpoint, which is stale. A
delta stands on the full BIN that it completes, and its slots override by key. Slots that are known deleted,
pending deleted or embedded lead nowhere, and neither do those of databases with duplicates: their LSNs are
history.

A checkpoint of JE does not write a tree up to its root: recovery puts the highest nodes that it wrote, which
lie behind A, in the place of older versions. Below an older version there may be holes, since the cleaner
deletes files by the tree in memory.
"""

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from spark.erase.errors import LogFileMissing, TreeBroken
from spark.erase.native import types as t
from spark.erase.native.comparing import mark_overridden
from spark.erase.native.items import parse_node
from spark.erase.native.types import Buffer, Table
from spark.erase.reading.databases import Databases
from spark.erase.reading.log import Entries, Lns, Log, Nodes, distinct, mark
from spark.formats.je import log as je_log
from spark.formats.je.items import (
    MAPPING_DB,
    NAMING_DB,
    NODE_LEVEL_MASK,
    NODE_ROOT,
    SLOT_EMBEDDED,
    SLOT_KNOWN_DELETED,
    SLOT_PENDING_DELETED,
    DbTree,
    RareLn,
)
from spark.formats.je.log import NULL_LSN, EntryType, lsn_file, lsn_offset, show_lsn

LEADS_NOWHERE: Final = SLOT_KNOWN_DELETED | SLOT_PENDING_DELETED | SLOT_EMBEDDED
LEVEL_BIN: Final = 1
PROVISIONAL: Final = je_log.FLAG_PROVISIONAL | je_log.FLAG_PROVISIONAL_BEFORE_CHECKPOINT_END
# Levels of a tree whose nodes hold at least two children each never come near this.
DEPTH_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class Node:
    """One node with its slots, and the buffer that their keys lie in."""

    db: int
    is_bin: bool
    slots: Table
    prefix: Table
    buffer: Buffer


@dataclass(frozen=True, slots=True)
class Reached:
    """What must not be erased.

    Attributes:
        lsns: what the trees reach and the tail refers to, sorted.
        abort_lsns: versions that the tail's transactions would return to, sorted; a rule of their own.
        gone: nodes that are not in the log, of databases that may not exist any more, or below nodes that
            recovery replaces.
    """

    lsns: Table
    abort_lsns: Table
    gone: tuple[int, ...]


@dataclass(slots=True)
class _Walk:
    log: Log
    entries: Entries
    nodes: Nodes
    databases: Databases
    dups: frozenset[int]
    node_lsns: Table
    lsns: list[Table] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)
    # Databases that certainly exist, and whose trees must be whole.
    current: frozenset[int] = frozenset()
    # Of (database, node) the row of its newest version, where that lies at or behind A.
    tail: dict[tuple[int, int], int] = field(default_factory=dict)

    def is_replaced(self, row: int) -> bool:
        """Whether recovery puts a newer version in the place of this one."""
        key = int(self.nodes.db[row]), int(self.nodes.node[row])
        return self.tail.get(key, row) > row


def find_reached(
    log: Log,
    entries: Entries,
    lns: Lns,
    nodes: Nodes,
    databases: Databases,
    *,
    first_active: int,
    holes: bool = False,
) -> Reached:
    """Walk all trees, and collect what the tail of the log refers to.

    Args:
        holes: trees may lack nodes, as they do when A is not the newest one: the cleaner went by that.
    Raises: LogFileMissing, TreeBroken: a node that a tree needs is not in the log, or is no node.
    """
    node_lsns = entries.lsn[nodes.entry]
    walk = _Walk(log, entries, nodes, databases, databases.dups, node_lsns)
    for row in np.flatnonzero(node_lsns >= first_active).tolist():
        walk.tail[int(nodes.db[row]), int(nodes.node[row])] = row
    for db in (MAPPING_DB, NAMING_DB):
        _walk_tree(walk, db, _newest_root(walk, db))
    if not holes:
        walk.current = _current_databases(walk, first_active)
    for db in sorted(databases.roots):
        _walk_tree(walk, db, sorted(databases.roots[db]))
    for row in np.flatnonzero(node_lsns >= first_active).tolist():
        node = _read_node(walk, row)
        walk.lsns.append(_followed(walk, node, node.slots))
    tail_deltas = (node_lsns >= first_active) & (entries.type[nodes.entry] == EntryType.BIN_DELTA)
    walk.lsns.append(nodes.last_full[tail_deltas])
    walk.lsns.append(_roots_in_tail(log, first_active))
    tail_lns = entries.lsn[lns.entry] >= first_active
    return Reached(
        lsns=distinct(np.concatenate(walk.lsns)),
        abort_lsns=distinct(lns.abort_lsn[tail_lns]),
        gone=tuple(sorted(walk.gone)),
    )


def _newest_root(walk: _Walk, db: int) -> list[int]:
    """Find the root of a tree that no MapLN names: its newest root node. The checkpoint's DbTree is older."""
    is_root = (walk.nodes.db == db) & ((walk.nodes.flags & NODE_ROOT) != 0)
    settled = (walk.entries.flags[walk.nodes.entry] & PROVISIONAL) == 0
    return [int(lsn) for lsn in walk.node_lsns[is_root & settled][-1:]]


def _roots_in_tail(log: Log, first_active: int) -> Table:
    """Return the roots that MapLNs and DbTrees in the tail of the log name."""
    roots = [ln.database.root_lsn for lsn, _, ln in log.rare(RareLn) if ln.database and lsn >= first_active]
    for lsn, _, tree in log.rare(DbTree):
        if lsn >= first_active:
            roots += [tree.mapping.root_lsn, tree.naming.root_lsn]
    return np.array(roots, dtype=np.int64)


def _current_databases(walk: _Walk, first_active: int) -> frozenset[int]:
    """Return the databases that the mapping tree knows, or the tail of the log does.

    Of a database that was removed the log may hold an old MapLN, since the cleaner has deleted the file with
    its end: parts of its tree are gone, rightly. So it is with one whose removal lies in the tail. What is
    left of such trees is kept.
    """
    reached = set(np.concatenate(walk.lsns).tolist()) if walk.lsns else set()
    current = set()
    for db, lsns in walk.databases.map_lns.items():
        if lsns[-1] >= first_active or not reached.isdisjoint(lsns):
            current.add(db)
    return frozenset(current) - walk.databases.ending


def _walk_tree(walk: _Walk, db: int, roots: list[int]) -> None:
    level = np.array(roots, dtype=np.int64)
    needed = set(roots)
    depth = 0
    while len(level):
        depth += 1
        if depth > DEPTH_MAX:
            raise _broken(f"the tree of database {db} is deeper than {DEPTH_MAX} levels", int(level[0]))
        walk.lsns.append(level)
        children: list[Table] = []
        needed_below: set[int] = set()
        for lsn in level.tolist():
            row = _find_row(walk, db, lsn, needed=lsn in needed)
            if row is None:
                continue
            node = _read_node(walk, row)
            if node.db != db:
                raise _broken(f"a node of database {node.db} in the tree of {db}", lsn)
            is_needed = lsn in needed and not walk.is_replaced(row)
            if node.is_bin:
                _walk_bin(walk, node, row, needed=is_needed)
                continue
            children.append(_followed(walk, node, node.slots))
            if is_needed:
                needed_below.update(children[-1].tolist())
        needed = needed_below
        level = distinct(np.concatenate(children)) if children else np.empty(0, dtype=np.int64)


def _walk_bin(walk: _Walk, node: Node, row: int, *, needed: bool) -> None:
    """Follow the slots of a BIN; a delta first, then those of its full BIN that it does not override."""
    walk.lsns.append(_followed(walk, node, node.slots))
    if walk.entries.type[walk.nodes.entry[row]] != EntryType.BIN_DELTA:
        return
    full_lsn = int(walk.nodes.last_full[row])
    walk.lsns.append(np.array([full_lsn], dtype=np.int64))
    full_row = _find_row(walk, node.db, full_lsn, needed=needed)
    if full_row is None:
        return
    full = _read_node(walk, full_row)
    if not full.is_bin or full.db != node.db or walk.nodes.node[full_row] != walk.nodes.node[row]:
        raise _broken("a delta completes another node than its own", int(walk.node_lsns[row]))
    overridden = np.empty(len(full.slots), dtype=np.uint8)
    mark_overridden(full.buffer, full.slots, full.prefix, node.buffer, node.slots, node.prefix, overridden)
    walk.lsns.append(_followed(walk, full, full.slots[overridden == 0]))


def _followed(walk: _Walk, node: Node, slots: Table) -> Table:
    """Return the LSNs that slots lead to."""
    if node.is_bin and node.db in walk.dups:
        return np.empty(0, dtype=np.int64)
    leads = ((slots[:, t.SLOT_STATE] & LEADS_NOWHERE) == 0) & (slots[:, t.SLOT_LSN] != NULL_LSN)
    lsns: Table = slots[leads, t.SLOT_LSN]
    return lsns


def _find_row(walk: _Walk, db: int, lsn: int, *, needed: bool) -> int | None:
    at = int(np.searchsorted(walk.node_lsns, lsn))
    if at < len(walk.node_lsns) and walk.node_lsns[at] == lsn:
        return at
    if not needed or db not in walk.current:
        walk.gone.append(lsn)
        return None
    if lsn_file(lsn) not in {file.number for file in walk.log.files}:
        detail = f"it is not there, and the tree of database {db} needs its node {show_lsn(lsn)}"
        raise LogFileMissing(detail, file=je_log.file_name(lsn_file(lsn) & je_log.FILE_NUMBER_MAX))
    detail = f"the tree of database {db} needs the node {show_lsn(lsn)}, which is not in the log"
    raise _broken(detail, lsn)


def _read_node(walk: _Walk, row: int) -> Node:
    """Read a node again, now with its slots: of all nodes in the log only a few are asked for them."""
    entry = int(walk.nodes.entry[row])
    lsn, entry_type = int(walk.entries.lsn[entry]), int(walk.entries.type[entry])
    header = je_log.HEADER_BYTES
    if walk.entries.flags[entry] & je_log.FLAGS_WITH_VLSN:
        header = je_log.HEADER_BYTES_WITH_VLSN
    file = walk.log.open_file(lsn_file(lsn))
    raw = bytearray(file.read(lsn_offset(lsn) + header, int(walk.entries.item_bytes[entry])))
    buffer = np.frombuffer(raw, dtype=np.uint8)
    slots = np.empty((int(walk.nodes.slots[row]), t.SLOT_COLUMNS), dtype=np.int64)
    prefix = np.zeros(2, dtype=np.int64)
    values = np.empty((1, t.NODE_COLUMNS), dtype=np.int64)
    end = parse_node(buffer, 0, len(buffer), entry_type, values, 0, slots, prefix)
    if end != len(buffer) or values[0, t.NODE_SLOTS] != len(slots):
        raise _broken("a node changed while it was read", lsn)
    is_bin = entry_type != EntryType.IN
    if is_bin != (int(values[0, t.NODE_LEVEL]) & NODE_LEVEL_MASK == LEVEL_BIN):
        raise _broken(f"a node of level {int(values[0, t.NODE_LEVEL]):#x}", lsn)
    return Node(int(values[0, t.NODE_DB]), is_bin, slots, prefix, buffer)


def _broken(detail: str, lsn: int) -> TreeBroken:
    file = je_log.file_name(lsn_file(lsn) & je_log.FILE_NUMBER_MAX)
    return TreeBroken(detail, file=file, offset=lsn_offset(lsn))


def missing_targets(reached: Reached, entries: Entries) -> Table:
    """Return what is reached but not in the log: expired records whose file was cleaned, for one."""
    there = entries.lsn[mark(entries.lsn, reached.lsns)]
    lsns: Table = reached.lsns[(reached.lsns != NULL_LSN) & ~mark(reached.lsns, there)]
    return lsns

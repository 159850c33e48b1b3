"""A small store that leaves a log as JE would: transactions, deltas, evictions, checkpoints, crashes.

It is random, forgetful on purpose, and keeps its own books: `truth` is what a reader must find. Each database
has one root over three BINs that never split; what can go wrong with liveness does not need more.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from tests.oracles.je_log_bytes import NONE, Abort, LogBytes, NodeSlot, composite, ln_item, node_item

PROVISIONAL: Final = 0x80
GONE: Final = 0x08
EMBEDDED: Final = 0x10
LONGEST_EMBEDDED: Final = 16
LOWS: Final = (b"", b"k3", b"k6")

Content = dict[bytes, NodeSlot]


@dataclass
class Bin:
    """In memory: the slots; in the log: where the parent points to, and the last full version."""

    node: int
    low: bytes
    slots: Content = field(default_factory=dict)
    logged: int = NONE
    last_full: int = NONE


@dataclass
class Tree:
    db: int
    name: str
    dups: bool
    root_node: int
    bins: list[Bin]
    root: int = NONE
    mapped_root: int = NONE
    committed: dict[bytes, bytes] = field(default_factory=dict)
    is_removing: bool = False
    flags: int = 0
    comparator: bytes = b""

    def bin_of(self, key: bytes) -> Bin:
        return [each for each in self.bins if each.low <= key][-1]


@dataclass
class Txn:
    id: int
    first: int = NONE
    before: dict[tuple[int, bytes], NodeSlot | None] = field(default_factory=dict)
    after: dict[tuple[int, bytes], bytes | None] = field(default_factory=dict)


class SmallEngine:
    def __init__(self, seed: int, *, file_bytes: int = 4000) -> None:
        self.chance = random.Random(seed)
        self.log = LogBytes()
        self.file_bytes = file_bytes
        self.last_node, self.last_txn, self.last_checkpoint, self.last_db = 0, 0, 0, 1
        self.logged: dict[int, Content] = {}
        self.root_points: dict[int, list[tuple[int, int]]] = {}
        self.flushed: list[tuple[Bin, int, int, int]] = []
        self.first_active = 0
        self.txns: dict[int, Txn] = {}
        self.trees: dict[int, Tree] = {}
        self.mapping, self.naming = self.new_tree(0, "", 1), self.new_tree(1, "", 1)
        self.trees_lsn = NONE

    # Writing.

    def append(self, kind: int, item: bytes, *, flags: int = 0) -> int:
        if len(self.log.files[self.log.number]) > self.file_bytes:
            self.log.next_file()
        return self.log.append(kind, item, flags=flags)

    def new_tree(self, db: int, name: str, bins: int = 3, *, dups: bool = False) -> Tree:
        self.last_node += bins + 1
        found = [Bin(self.last_node - each, LOWS[each]) for each in range(bins)]
        return Tree(db, name, dups, self.last_node - bins, found)

    def create(self, name: str, *, dups: bool = False, flags: int = 0, comparator: bytes = b"") -> Tree:
        self.last_db += 1
        db = self.last_db
        self.last_txn += 1
        tree = self.trees[db] = self.new_tree(db, name, dups=dups)
        tree.flags, tree.comparator = flags | dups, comparator
        self.naming.bins[0].slots[name.encode()] = NodeSlot(
            name.encode(), self.log.name(db, name, self.last_txn)
        )
        self.map(tree)
        self.log.end_txn(self.last_txn, commit=True)
        return tree

    def map(self, tree: Tree, *, remove: bool = False) -> None:
        key = str(tree.db).encode()
        lsn = self.log.map(
            tree.db, tree.name, tree.root, flags=tree.flags, remove=remove, comparator=tree.comparator
        )
        tree.mapped_root = tree.root
        self.mapping.bins[0].slots[key] = NodeSlot(key, lsn, GONE if remove else 0)

    # Records.

    def begin(self) -> Txn:
        self.last_txn += 1
        return self.txns.setdefault(self.last_txn, Txn(self.last_txn))

    def is_locked(self, tree: Tree, key: bytes, txn: Txn | None = None) -> bool:
        return any((tree.db, key) in each.before for each in self.txns.values() if each is not txn)

    def write(self, tree: Tree, key: bytes, value: bytes | None, txn: Txn | None = None) -> None:
        """Put a record, or delete it with None."""
        if self.is_locked(tree, key, txn):
            return
        node = tree.bin_of(key)
        now = node.slots.get(key)
        is_there = now is not None and not now.state & GONE
        if value is None and not is_there:
            return
        kinds = (35, 36) if is_there else (33, 34)
        kind = (kinds if value is not None else (31, 32))[txn is None]
        embedded = value is not None and not tree.dups and len(value) <= LONGEST_EMBEDDED
        before = now if txn is None else txn.before.setdefault((tree.db, key), now)
        data = b"" if tree.dups and value is not None else value
        item = ln_item(
            kind, tree.db, key, data, txn=txn.id if txn else 0, abort=abort_to(before), embedded=embedded
        )
        lsn = self.append(kind, item)
        state = GONE if value is None else EMBEDDED * embedded
        node.slots[key] = NodeSlot(key, lsn, state, value if embedded else None)
        if txn is None:
            keep(tree.committed, key, value)
            return
        txn.first = lsn if txn.first == NONE else txn.first
        txn.after[tree.db, key] = value

    def end(self, txn: Txn, *, commit: bool) -> None:
        del self.txns[txn.id]
        if commit:
            for (db, key), value in txn.after.items():
                keep(self.trees[db].committed, key, value)
        else:
            self.roll_back(txn)
        if txn.first != NONE:
            self.log.end_txn(txn.id, commit=commit)

    def roll_back(self, txn: Txn) -> None:
        for (db, key), before in txn.before.items():
            slots = self.trees[db].bin_of(key).slots
            if before is None:
                slots.pop(key, None)
            else:
                slots[key] = before

    def migrate(self, tree: Tree, key: bytes) -> None:
        """What the cleaner does to a live record: the same again, further on, without a transaction."""
        slot = tree.bin_of(key).slots.get(key)
        if slot is None or slot.state or tree.dups or self.is_locked(tree, key):
            return
        value = tree.committed[key]
        lsn = self.append(36, ln_item(36, tree.db, key, value))
        tree.bin_of(key).slots[key] = NodeSlot(key, lsn)

    # Nodes.

    def flush(self, tree: Tree, node: Bin, *, flags: int = 0, full: bool = False) -> None:
        base = self.logged.get(node.last_full)
        changed = {k: s for k, s in node.slots.items() if base is not None and base.get(k) != s}
        is_delta = base is not None and base.keys() <= node.slots.keys() and len(changed) <= 4
        if is_delta and not full and self.chance.random() < 0.7:
            slots = [changed[key] for key in sorted(changed)]
            lsn = self.append(
                37, node_item(37, tree.db, node.node, slots, last_full=node.last_full), flags=flags
            )
        else:
            for key in [k for k, s in node.slots.items() if s.state & GONE and not self.is_locked(tree, k)]:
                del node.slots[key]
            slots = [node.slots[key] for key in sorted(node.slots)]
            lsn = self.append(
                13, node_item(13, tree.db, node.node, slots, last_full=node.last_full), flags=flags
            )
            node.last_full = lsn
        self.logged[lsn] = dict(node.slots)
        node.logged = lsn
        self.flushed.append((node, lsn, flags, node.last_full))

    def is_dirty(self, node: Bin) -> bool:
        return self.logged.get(node.logged) != node.slots

    def flush_root(self, tree: Tree) -> None:
        points = [(node.logged, node.last_full) for node in tree.bins]
        if self.root_points.get(tree.root) == points:
            return
        slots = [NodeSlot(node.low or b"a", node.logged) for node in tree.bins]
        tree.root = self.append(12, node_item(12, tree.db, tree.root_node, slots, is_root=True))
        self.root_points[tree.root] = points

    def evict(self, tree: Tree, node: Bin) -> None:
        if self.is_dirty(node):
            self.flush(tree, node)

    def checkpoint(self, *, stops_at: int | None = None) -> None:
        """A checkpoint; one that `stops_at` a step was cut short by a crash, which the caller does."""
        self.last_checkpoint += 1
        start = self.log.checkpoint_start(self.last_checkpoint)
        active = [txn.first for txn in self.txns.values() if txn.first != NONE]
        for step, _ in enumerate(self.steps()):
            if step == stops_at:
                return
            if self.chance.random() < 0.1:
                self.work(1)
        self.first_active = min([start, *active])
        self.log.checkpoint_end(
            self.last_checkpoint, start=start, root=self.trees_lsn, first_active=self.first_active
        )

    def steps(self) -> Iterator[None]:
        for tree in [each for each in self.trees.values() if not each.is_removing]:
            for node in tree.bins:
                if self.is_dirty(node):
                    self.flush(tree, node, flags=PROVISIONAL)
                    yield
            self.flush_root(tree)
            yield
            if tree.root != tree.mapped_root:
                self.map(tree)
        for tree in (self.naming, self.mapping):
            if self.is_dirty(tree.bins[0]):
                self.flush(tree, tree.bins[0], flags=PROVISIONAL)
            self.flush_root(tree)
            yield
        self.trees_lsn = self.log.trees(self.mapping.root, self.naming.root)
        yield

    def crash(self) -> None:
        """Memory is lost: open transactions with it, and nodes that nothing in the log leads to."""
        for txn in list(self.txns.values()):
            self.roll_back(txn)
        self.txns.clear()
        for tree in [self.mapping, self.naming, *self.trees.values()]:
            points = self.root_points.get(tree.root, [(NONE, NONE)] * len(tree.bins))
            for node, (logged, last_full) in zip(tree.bins, points, strict=True):
                node.logged, node.last_full = logged, last_full
                for other, lsn, flags, full in self.flushed:
                    if other is node and not flags and lsn >= max(self.first_active, node.logged):
                        node.logged, node.last_full = lsn, full

    # Chance.

    def users(self) -> list[Tree]:
        return [tree for tree in self.trees.values() if not tree.name.startswith("_je")]

    def work(self, count: int) -> None:
        for _ in range(count):
            tree = self.chance.choice([each for each in self.users() if not each.is_removing])
            key = b"k%d%d" % (self.chance.randrange(9), self.chance.randrange(4))
            if tree.dups:
                key = composite(key, b"d%d" % self.chance.randrange(3))
            size = self.chance.choice([3, 12, 30, 60])
            value = None if self.chance.random() < 0.2 else self.chance.randbytes(size)
            txn = self.chance.choice([None, *self.txns.values()])
            self.write(tree, key, b"" if tree.dups and value is not None else value, txn)

    def remove(self, tree: Tree) -> None:
        """The name goes with its commit; the MapLN when the scan behind it is done."""
        key = tree.name.encode()
        before = self.naming.bins[0].slots[key]
        self.last_txn += 1
        lsn = self.log.name(tree.db, tree.name, self.last_txn, remove=True, abort=Abort(before.lsn))
        self.log.end_txn(self.last_txn, commit=True)
        self.naming.bins[0].slots[key] = NodeSlot(key, lsn, GONE)
        tree.is_removing = True

    def think_better_of_removal(self, tree: Tree) -> None:
        """The name goes, and the abort brings it back."""
        now = self.naming.bins[0].slots[tree.name.encode()]
        self.last_txn += 1
        self.log.name(tree.db, tree.name, self.last_txn, remove=True, abort=Abort(now.lsn))
        self.log.end_txn(self.last_txn, commit=False)

    def rename(self, tree: Tree, name: str) -> None:
        """The old name goes and the new one comes, with the same id, in one transaction."""
        slots, old, new = self.naming.bins[0].slots, tree.name.encode(), name.encode()
        self.last_txn += 1
        abort = Abort(slots[old].lsn)
        slots[old] = NodeSlot(
            old, self.log.name(tree.db, tree.name, self.last_txn, remove=True, abort=abort), GONE
        )
        slots[new] = NodeSlot(new, self.log.name(tree.db, name, self.last_txn))
        self.log.end_txn(self.last_txn, commit=True)
        tree.name = name

    def orphan(self, tree: Tree, node: Bin) -> None:
        """A BIN is logged for a transaction that is lost with it: newer than the one in use, but lost."""
        if node.logged == NONE or self.is_dirty(node):
            return
        txn = self.begin()
        for key in sorted(node.slots)[:2]:
            self.write(tree, key, self.chance.randbytes(40), txn)
        self.flush(tree, node, flags=PROVISIONAL)
        self.crash()

    def finish_removal(self, tree: Tree) -> None:
        self.map(tree, remove=True)
        del self.trees[tree.db]

    def clean_up(self) -> None:
        """Migrate a few records, as the cleaner does before it gives a file away."""
        tree = self.chance.choice(self.users())
        for key in self.chance.sample(sorted(tree.committed), min(3, len(tree.committed))):
            self.migrate(tree, key)

    def phase(self) -> None:
        """Something of everything."""
        chance = self.chance
        for _ in range(chance.randrange(1, 4)):
            self.begin()
        self.work(chance.randrange(3, 12))
        for txn in list(self.txns.values()):
            if chance.random() < 0.7:
                self.end(txn, commit=chance.random() < 0.75)
        tree = chance.choice(self.users())
        if not tree.is_removing:
            if chance.random() < 0.3:
                self.evict(tree, chance.choice(tree.bins))
            if chance.random() < 0.3:
                self.clean_up()
        elif chance.random() < 0.5:
            self.finish_removal(tree)
        self.surprise(tree)

    def surprise(self, tree: Tree) -> None:
        """What is rare."""
        luck = self.chance.random()
        if tree.is_removing:
            return
        free = not any(db == tree.db for txn in self.txns.values() for db, _ in txn.before)
        if luck < 0.03 and free:
            self.remove(tree)
            self.create(f"late{self.last_db}")
        elif luck < 0.05:
            self.think_better_of_removal(tree)
        elif luck < 0.07:
            self.rename(tree, f"{tree.name[:5]}{self.last_txn}")
        elif luck < 0.12:
            self.orphan(tree, self.chance.choice(tree.bins))

    def live(self, phases: int) -> None:
        """So many phases, with checkpoints and crashes in between."""
        for name in ("users", "orders", "tags"):
            self.create(name, dups=name == "tags")
        self.checkpoint()
        for _ in range(phases):
            self.phase()
            luck = self.chance.random()
            if luck < 0.25:
                self.checkpoint()
            elif luck < 0.32:
                self.checkpoint(stops_at=self.chance.randrange(12))
                self.crash()
            elif luck < 0.36:
                self.crash()

    def close(self) -> None:
        for txn in list(self.txns.values()):
            self.end(txn, commit=False)
        self.checkpoint()

    def truth(self) -> dict[str, dict[bytes, bytes]]:
        return {each.name: dict(each.committed) for each in self.trees.values() if not each.is_removing}


def abort_to(before: NodeSlot | None) -> Abort:
    if before is None:
        return Abort()
    return Abort(before.lsn, bool(before.state & GONE), before.value if before.state & EMBEDDED else None)


def keep(committed: dict[bytes, bytes], key: bytes, value: bytes | None) -> None:
    if value is None:
        committed.pop(key, None)
    else:
        committed[key] = value

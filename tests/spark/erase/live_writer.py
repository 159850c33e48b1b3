"""A process that has an environment open as JE does, and works in it until somebody kills it.

    python -m tests.spark.erase.live_writer DIRECTORY COPY SEED NODE_GRACE_MS

It says READY when there is a log of some files, and goes on at a line of its input. It appends transactions,
aborts, checkpoints and files, removes and truncates databases, moves what is live out of old files and
deletes them. It holds JE's lock, and while it deletes the byte of readers too. Time in the log goes forward
by minutes at each checkpoint.

It also reads back what JE could read: live records, versions that an abort would return to, and nodes whose
pointer it has read a while ago. One that is not what was written ends it with FATAL: JE would have died.
"""

import fcntl
import os
import random
import sys
import time
from pathlib import Path

from lethe_samples.je_writer.cleaning import clean_file
from lethe_samples.je_writer.database import Database, RecordLocked, Txn
from lethe_samples.je_writer.environment import Environment
from lethe_samples.je_writer.tree import Node
from spark.formats.je.log import NULL_LSN
from tests.spark.erase.live_log import GrowingLog

CREATED_MS = 1_790_000_000_000
FILE_BYTES = 24_000
FILES_AT_START = 4
FILES_MAX = 6
KEYS = 90
TXNS_MAX = 4
PAUSE_S = 0.002
STEPS_PER_PAUSE = 3
BYTES_MAX = 64_000_000
FATAL_STATUS = 3
READER_BYTE = 1


class Writer:
    def __init__(self, directory: Path, copy: Path, seed: int, node_grace_ms: int) -> None:
        self.chance = random.Random(seed)
        self.directory = directory
        self.grace_ms = node_grace_ms
        self.lock = os.open(directory / "je.lck", os.O_RDWR | os.O_CREAT, 0o644)
        fcntl.lockf(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        self.log = GrowingLog(
            directory, copy, file_bytes_max=FILE_BYTES, created_ms=CREATED_MS, chance=self.chance
        )
        # Pointers to nodes that somebody has read and not followed yet: when, LSN, size.
        self.stalled: list[tuple[int, int, int]] = []
        self.env = WatchedEnvironment(self)
        self.made = 0
        for name in ("plain", "small"):
            self.env.create(name, node_capacity=12)
        self.env.create("dups", dups=True, node_capacity=12)

    @property
    def txns(self) -> list[Txn]:
        return self.env.open_transactions()

    def step(self) -> None:
        roll = self.chance.random()
        if roll < 0.62:
            self.change()
        elif roll < 0.72:
            self.end_transaction()
        elif roll < 0.80:
            self.look()
        elif roll < 0.85:
            self.stall()
        elif roll < 0.975:
            self.log.push_part()
        elif roll < 0.988:
            self.env.checkpoint()
        elif roll < 0.991:
            self.change_databases()
        else:
            self.clean()

    # Records.

    def change(self) -> None:
        if len(self.txns) < TXNS_MAX and self.chance.random() < 0.3:
            self.env.begin()
        txn = self.chance.choice([None, *self.txns])
        name = self.chance.choice(sorted(each for each in self.env.databases if not each.startswith("_je")))
        database = self.env.databases[name]
        key = b"key-%03d" % self.chance.randrange(KEYS)
        value = self.chance.randbytes(self.chance.randint(20, 140))
        if name == "small":
            value = value[:12]
        if database.dups:
            value = b"v%d" % self.chance.randrange(5)
        slot = database.tree.find(database.key(key, value))
        exists = slot is not None and not slot.deleted
        try:
            if exists and (database.dups or self.chance.random() < 0.2):
                self.env.delete(txn, name, key, value)
            else:
                self.env.put(txn, name, key, value)
        except RecordLocked:
            self.end_transaction()

    def end_transaction(self) -> None:
        """End one; the first one of all lives long, and holds checkpoints back."""
        if not self.txns:
            return
        at = self.chance.randrange(len(self.txns))
        if at == 0 and self.chance.random() < 0.8:
            return
        txn = self.txns[at]
        if self.chance.random() < 0.25:
            self.env.abort(txn)
            return
        self.env.commit(txn)
        durability = self.chance.random()
        if durability < 0.05:
            self.log.sync()
        elif durability < 0.5:
            self.log.push()

    # What JE could read.

    def look(self) -> None:
        """Read a record, or a version that a transaction in work may return to, as JE would."""
        name = self.chance.choice(sorted(self.env.databases))
        slots = [slot for slot in self.env.databases[name].tree.slots() if not slot.deleted]
        slots += [slot for txn in self.txns for slot in txn.before.values() if slot and not slot.deleted]
        slots = [
            slot for slot in slots if slot.value is not None and not slot.embedded and len(slot.key) == 7
        ]
        if slots:
            slot = self.chance.choice(slots)
            self.follow(slot.lsn, slot.size, "a record")

    def stall(self) -> None:
        """Read the pointer to a node, and follow it some time later."""
        nodes = [node for each in self.env.all_databases() for node in nodes_of(each) if node.lsn != NULL_LSN]
        if nodes:
            node = self.chance.choice(nodes)
            self.stalled.append((self.log.now_ms, node.lsn, node.size))
            if node.full_lsn not in (NULL_LSN, node.lsn):
                self.stalled.append((self.log.now_ms, node.full_lsn, node.full_size))

    def follow_stalled(self, until_ms: int) -> None:
        """Follow pointers while nobody may have erased what they lead to: a node's grace is not over yet."""
        for began_ms, lsn, size in self.stalled:
            if began_ms + self.grace_ms <= until_ms:
                self.follow(lsn, size, "a node")
        self.stalled = [each for each in self.stalled if each[0] + self.grace_ms > until_ms]

    def follow(self, lsn: int, size: int, what: str) -> None:
        if self.log.is_pushed(lsn, size) and not self.log.is_intact(lsn, size):
            print(f"FATAL {what} at {lsn >> 32:#x}/{lsn & 0xFFFFFFFF:#x} was erased", flush=True)
            sys.exit(FATAL_STATUS)

    # Checkpoints, databases, cleaning.

    def begin_checkpoint(self) -> None:
        """Let time go on; no checkpoint that ends then may be seen before all have read whose grace ends."""
        self.log.now_ms += self.chance.randint(60_000, 180_000)
        self.follow_stalled(self.log.now_ms + 30_000)

    def end_checkpoint(self, *, cleaned_files: bool) -> None:
        """Write the end of a checkpoint at once; JE syncs it too, but it can be read before that."""
        if cleaned_files or self.chance.random() < 0.15:
            self.log.sync()
        else:
            self.log.push()

    def change_databases(self) -> None:
        """Make a database; remove or truncate it later, when nobody works in it."""
        made = [name for name in self.env.databases if name.startswith("made")]
        if len(made) < 2:
            self.made += 1
            self.env.create(f"made{self.made}", node_capacity=12)
            return
        db_id = self.env.databases[made[0]].id
        if any(locked == db_id for txn in self.txns for locked, _ in txn.before):
            return
        txn = self.env.begin()
        if self.chance.random() < 0.5:
            self.env.drop(txn, made[0])
        else:
            self.env.truncate(txn, made[0])
        self.env.commit(txn)

    def clean(self) -> None:
        """Move what is live out of a file, and delete it; meanwhile nobody may begin to read."""
        files = [int(path.name[:8], 16) for path in sorted(self.directory.glob("*.jdb"))]
        if len(files) < FILES_MAX:
            return
        fcntl.lockf(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, READER_BYTE)
        clean_file(self.env, self.chance.choice(files[:3]))
        fcntl.lockf(self.lock, fcntl.LOCK_UN, 1, READER_BYTE)


class WatchedEnvironment(Environment):
    """An environment whose checkpoints are on the disk when they return."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        super().__init__(writer.directory, created_ms=CREATED_MS, log=writer.log)

    def checkpoint(self, invoker: str = "api", *, cleaned_files: bool = False) -> int:
        self.writer.begin_checkpoint()
        lsn = super().checkpoint(invoker, cleaned_files=cleaned_files)
        self.writer.end_checkpoint(cleaned_files=cleaned_files)
        return lsn


def nodes_of(database: Database) -> list[Node]:
    found = [] if database.tree.root is None else [database.tree.root]
    for node in found:
        found.extend(node.children)
    return found


def run(directory: Path, copy: Path, seed: int, node_grace_ms: int) -> None:
    writer, parent = Writer(directory, copy, seed, node_grace_ms), os.getppid()
    while writer.log.number < FILES_AT_START:
        writer.step()
    writer.env.checkpoint()
    print("READY", flush=True)
    sys.stdin.readline()
    while os.getppid() == parent and writer.log.number * FILE_BYTES < BYTES_MAX:
        for _ in range(STEPS_PER_PAUSE):
            writer.step()
        time.sleep(PAUSE_S)


if __name__ == "__main__":
    run(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))

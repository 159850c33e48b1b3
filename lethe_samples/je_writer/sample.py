"""Large environments, quickly made: one database whose records are inserted, updated and deleted.

Keys are `user00000017`; a value of 11 bytes or more begins with `v` and the ten digits of its entry's number,
which no other value has.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from lethe_samples.je_writer.bulk import (
    OFFSET_MIN,
    SERIAL_DIGITS,
    Entries,
    Ints,
    entry_sizes,
    put_entries,
    sizes_at_least,
    slots_of,
)
from lethe_samples.je_writer.environment import Environment
from lethe_samples.je_writer.log import LogWriter
from lethe_samples.je_writer.nodes import LEVEL_MAIN, NodeItem, SlotItem, write_node, write_node_head
from lethe_samples.je_writer.tree import Node, Tree
from spark.formats.je import log as je_log
from spark.formats.je.items import NODE_LOGGED_SIZES, NODE_ROOT
from spark.formats.je.log import EntryType, lsn_of

DATABASE: Final = "records"
CREATED_MS: Final = 1_795_163_000_000
# Shorter values would lie in their BINs.
VALUE_BYTES_MIN: Final = 17
VALUE_SPREAD: Final = 0.5
VALUE_BYTES_MEDIANS_MAX: Final = 20
LNS_PER_TXN: Final = 5
SLOTS_PER_NODE: Final = 100
DELETED_FRACTION: Final = 0.03
CHECKPOINTS: Final = 2
# Bytes of an LN beside its value, with its share of a Commit; of its slot in a BIN.
LN_OVERHEAD_BYTES: Final = 62
SLOT_BYTES: Final = 26
FILLING: Final = (97, 113)
PADDING: Final = "-" * OFFSET_MIN


@dataclass(frozen=True, slots=True)
class Sample:
    """What a sample holds.

    Attributes:
        entry_count: LNs and Commits.
        live: numbers of the LNs that are current: `marker` of them is readable for good, of others not.
        lsns: of LNs and Commits, by their number.
        kinds: their types.
    """

    directory: Path
    bytes: int
    files: int
    records: int
    entry_count: int
    ln_count: int
    live: Ints
    lsns: Ints
    kinds: Ints

    @property
    def obsolete_count(self) -> int:
        """How many LNs are not current: superseded or deletions."""
        return self.ln_count - len(self.live)


def marker(number: int) -> bytes:
    """Return what the value of an entry begins with."""
    return b"v%0*d" % (SERIAL_DIGITS, number)


def write_sample(
    directory: Path,
    *,
    total_bytes: int,
    value_bytes_median: int = 400,
    obsolete_fraction: float = 0.5,
    file_bytes: int = 10_000_000,
    seed: int = 1,
) -> Sample:
    """Write an environment of about so many bytes, closed in order.

    Args:
        directory: an empty directory.
        total_bytes: of all files, within some percent.
        value_bytes_median: of a log-normal distribution, cut off below 17 bytes.
        obsolete_fraction: how many LNs are superseded or deletions.
        file_bytes: how large a file becomes.
        seed: same arguments, same bytes.
    """
    assert 0 <= obsolete_fraction < 1
    assert value_bytes_median >= VALUE_BYTES_MIN
    random = np.random.default_rng(seed)
    environment = Environment(directory, file_bytes_max=file_bytes, created_ms=CREATED_MS)
    database = environment.create(DATABASE)
    entries = _choose(random, total_bytes, value_bytes_median, obsolete_fraction, environment.last_txn + 1)
    environment.last_txn = int(entries.txn[-1])
    bulk = _Bulk(environment, entries, random, database.id)
    nodes = _SampleNodes(environment, bulk)
    database.nodes = nodes  # type: ignore[assignment]
    database.tree.root = Node(environment.next_node(), LEVEL_MAIN | 2, b"")
    environment.log.flip()
    for part in range(1, CHECKPOINTS + 1):
        bulk.write_until(len(entries.kind) * part // CHECKPOINTS)
        environment.log.flip()
        environment.checkpoint()
    environment.close()
    sizes = [path.stat().st_size for path in directory.glob("*.jdb")]
    return Sample(
        directory=directory,
        bytes=sum(sizes),
        files=len(sizes),
        records=int(entries.key.max()) + 1,
        entry_count=len(entries.kind),
        ln_count=int((entries.key >= 0).sum()),
        live=nodes.live,
        lsns=bulk.lsns,
        kinds=entries.kind,
    )


def _choose(
    random: np.random.Generator, total_bytes: int, median: int, obsolete: float, first_txn: int
) -> Entries:
    """Choose what is written: first all insertions, then updates; a record's last may delete it."""
    mean = median * float(np.exp(VALUE_SPREAD**2 / 2)) + LN_OVERHEAD_BYTES
    count = total_bytes / (mean + (1 - obsolete) * SLOT_BYTES * CHECKPOINTS)
    txns = max(int(count) // LNS_PER_TXN, 2)
    record_txns = min(max(round(txns * (1 - obsolete)), 1), txns)
    records = record_txns * LNS_PER_TXN
    keys = np.empty((txns, LNS_PER_TXN), dtype=np.int64)
    keys[:record_txns] = random.permutation(records).reshape(-1, LNS_PER_TXN)
    keys[record_txns:] = _distinct_rows(random, txns - record_txns, records)
    flat = keys.reshape(-1)
    lengths = np.exp(random.normal(np.log(median), VALUE_SPREAD, size=len(flat)))
    lengths = np.clip(lengths, VALUE_BYTES_MIN, median * VALUE_BYTES_MEDIANS_MAX).astype(np.int64)
    order = np.argsort(flat, kind="stable")
    same = flat[order[1:]] == flat[order[:-1]]
    abort = np.full(len(flat), -1, dtype=np.int64)
    abort[order[1:][same]] = order[:-1][same]
    is_last = np.ones(len(flat), dtype=bool)
    is_last[order[:-1][same]] = False
    deletes = is_last & (abort >= 0) & (random.random(len(flat)) < DELETED_FRACTION / max(obsolete, 0.1))
    lengths[deletes] = -1
    kind = np.where(abort < 0, EntryType.INS_LN_TX, EntryType.UPD_LN_TX)
    kind[deletes] = EntryType.DEL_LN_TX
    return _with_commits(kind, flat, lengths, abort, txns, first_txn)


def _distinct_rows(random: np.random.Generator, rows: int, records: int) -> Ints:
    """Choose the records that each transaction updates, none twice."""
    chosen = random.integers(records, size=(rows, LNS_PER_TXN))
    if records == LNS_PER_TXN:
        chosen[:] = np.arange(LNS_PER_TXN)
    while len(again := np.flatnonzero((np.diff(np.sort(chosen, axis=1), axis=1) == 0).any(axis=1))):
        chosen[again] = random.integers(records, size=(len(again), LNS_PER_TXN))
    return chosen


def _with_commits(kind: Ints, key: Ints, lengths: Ints, abort: Ints, txns: int, first_txn: int) -> Entries:
    """Put a Commit behind the LNs of each transaction; indexes move along."""
    width = LNS_PER_TXN + 1

    def widen(values: Ints, commit: int) -> Ints:
        wide = np.full((txns, width), commit, dtype=np.int64)
        wide[:, :LNS_PER_TXN] = values.reshape(-1, LNS_PER_TXN)
        return wide.reshape(-1)

    index = np.arange(txns * width)
    moved = np.where(abort < 0, -1, abort + np.maximum(abort, 0) // LNS_PER_TXN)
    return Entries(
        kind=widen(kind, EntryType.COMMIT),
        key=widen(key, -1),
        value_bytes=widen(lengths, -1),
        txn=first_txn + index // width,
        previous=np.where(index % width == 0, -1, index - 1),
        abort=widen(moved, -1),
    )


class _Bulk:
    """Writes the entries, and knows where they came to lie."""

    def __init__(
        self, environment: Environment, entries: Entries, random: np.random.Generator, db_id: int
    ) -> None:
        self.environment, self.entries, self.db_id = environment, entries, db_id
        self.lsns: Ints = np.zeros(len(entries.kind), dtype=np.int64)
        self.sizes: Ints = np.zeros(len(entries.kind), dtype=np.int64)
        self.written = 0
        self._at_least = sizes_at_least(entries)
        self._total_at_least = np.cumsum(self._at_least)
        length = environment.log.file_bytes_max * 2
        self._filling = random.integers(*FILLING, size=length, dtype=np.uint8)

    def write_until(self, end: int) -> None:
        """Write entries, file by file."""
        log = self.environment.log
        while self.written < end:
            if log.offset < OFFSET_MIN:
                self.environment.trace(PADDING)
            done = int(self._total_at_least[self.written - 1]) if self.written else 0
            last = int(np.searchsorted(self._total_at_least, done + log.file_bytes_max)) + 1
            last = min(last, end)
            sizes = entry_sizes(self.entries, self._at_least, self.lsns, self.written, last, log.number)
            offsets = log.offset + np.concatenate([[0], np.cumsum(sizes)])
            count = int(np.searchsorted(offsets, log.file_bytes_max, side="right")) - 1
            if count > 0:
                self._write(log, offsets[: count + 1])
            if count < len(sizes):
                log.flip()

    def _write(self, log: LogWriter, offsets: Ints) -> None:
        first, count = self.written, len(offsets) - 1
        self.sizes[first : first + count] = np.diff(offsets)
        self.lsns[first : first + count] = lsn_of(log.number, 0) + offsets[:-1]
        # Another stretch of the filling for every file.
        start = log.number * 7919 % (len(self._filling) - int(offsets[-1]))
        data = self._filling[start : start + int(offsets[-1])].copy()
        put_entries(
            data, self.entries, self.lsns, first, offsets,
            previous=log.previous, db_id=self.db_id, begun_ms=CREATED_MS,
        )  # fmt: skip
        log.now_ms = CREATED_MS + (first + count) // 10
        log.extend(data[int(offsets[0]) :].tobytes(), int(offsets[-2]))
        self.written += count


class _SampleNodes:
    """Writes the tree of the sample's database at a checkpoint: all BINs in full, and those above them."""

    def __init__(self, environment: Environment, bulk: _Bulk) -> None:
        self.live: Ints = np.empty(0, dtype=np.int64)
        self._environment, self._bulk = environment, bulk
        self._known: dict[tuple[int, int], tuple[int, int, int]] = {}

    def flush(self, tree: Tree) -> bool:
        """Log the tree as it is now; return whether anything has changed since the last time."""
        assert tree.root is not None
        live = self._current()
        if np.array_equal(live, self.live):
            return False
        self.live = live
        level = self._log_bins(live)
        depth = 2
        while len(level) > 1 or depth == 2:
            level = self._log_uppers(level, depth)
            depth += 1
        tree.root.level, tree.root.dirty = LEVEL_MAIN | (depth - 1), False
        _, tree.root.lsn, tree.root.size = level[0]
        return True

    def _current(self) -> Ints:
        """Find each record's newest LN, by key, without those that are deleted."""
        entries, end = self._bulk.entries, self._bulk.written
        newest = np.full(int(entries.key.max()) + 1, -1, dtype=np.int64)
        rows = np.flatnonzero(entries.key[:end] >= 0)
        # Of several assignments to one place the last one counts.
        newest[entries.key[rows]] = rows
        newest = newest[newest >= 0]
        live: Ints = newest[entries.kind[newest] != EntryType.DEL_LN_TX]
        return live

    def _log_bins(self, live: Ints) -> list[tuple[bytes, int, int]]:
        entries, lsns = self._bulk.entries, self._bulk.lsns
        raw, limits = slots_of(entries.key[live], lsns[live], self._bulk.sizes[live])
        level = []
        for number, start in enumerate(range(0, len(live), SLOTS_PER_NODE)):
            end = min(start + SLOTS_PER_NODE, len(live))
            key = b"user%08d" % int(entries.key[live[start]])
            node = self._node(1, number, key, ())
            item = write_node_head(node, EntryType.BIN, end - start) + raw[limits[start] : limits[end]]
            lsn, size = self._log(EntryType.BIN, item, je_log.FLAG_PROVISIONAL, (1, number), node.node_id)
            level.append((key, lsn, size))
        return level

    def _log_uppers(self, children: list[tuple[bytes, int, int]], depth: int) -> list[tuple[bytes, int, int]]:
        level = []
        is_root = len(children) <= SLOTS_PER_NODE
        for number, start in enumerate(range(0, len(children), SLOTS_PER_NODE)):
            part = children[start : start + SLOTS_PER_NODE]
            slots = tuple(SlotItem(key, lsn, 2, size) for key, lsn, size in part)
            node = self._node(depth, number, part[0][0], slots, flags=NODE_ROOT * is_root)
            provisional = 0 if is_root else je_log.FLAG_PROVISIONAL_BEFORE_CHECKPOINT_END
            item = write_node(node, EntryType.IN)
            lsn, size = self._log(EntryType.IN, item, provisional, (depth, number), node.node_id)
            level.append((part[0][0], lsn, size))
        return level

    def _node(
        self, depth: int, number: int, key: bytes, slots: tuple[SlotItem, ...], *, flags: int = 0
    ) -> NodeItem:
        node_id, full_lsn, full_size = self._known.get((depth, number), (0, je_log.NULL_LSN, 0))
        return NodeItem(
            self._bulk.db_id, node_id or self._environment.next_node(), LEVEL_MAIN | depth, key,
            flags | NODE_LOGGED_SIZES, slots, last_full_lsn=full_lsn, last_full_size=full_size,
        )  # fmt: skip

    def _log(
        self, kind: int, item: bytes, provisional: int, place: tuple[int, int], node_id: int
    ) -> tuple[int, int]:
        lsn = self._environment.log.append(kind, item, provisional=provisional)
        size = je_log.HEADER_BYTES + len(item)
        self._known[place] = (node_id, lsn, size)
        return lsn, size

"""Random environments, and the truth about them as their writer knows it.

`random_environment(directory, seed, size=…)` writes one and returns a `Written`: which records a reader must
find after recovery, and every value ever written with its LSN, its marker and what became of it. All comes
from `random.Random(seed)`: the same seed makes the same bytes.
"""

from pathlib import Path
from random import Random

from lethe_samples.je_writer.cleaning import clean_file
from lethe_samples.je_writer.database import Database, RecordLocked, Txn
from lethe_samples.je_writer.environment import Environment
from lethe_samples.je_writer.log import entry_bytes
from spark.formats.je.log import EntryType
from tests.spark.erase.written import Marker, Model, Value, Written, tell

CREATED_MS = 1_795_163_000_000
DAYS_PAST, DAYS_AHEAD = 19_000, 30_000
# The comparator's class, serialized: no JE can open the database without having it.
COMPARATOR = b"\xac\xed\x00\x05t\x00\x08Gen2$Rev"

__all__ = ["Marker", "Written", "random_environment"]


def random_environment(directory: Path, seed: int, *, size: int = 1000, features: bool = True) -> Written:
    """Write a random environment of about `size` operations.

    Args:
        directory: an empty directory.
        seed: all there is to choose comes from it.
        size: operations; each writes one to some entries of up to a few hundred bytes.
        features: also what is rare: comparators, invisible entries, expired records.
    """
    return _Writer(directory, seed, size, features=features).run()


class _Writer:
    def __init__(self, directory: Path, seed: int, size: int, *, features: bool) -> None:
        self.random = Random(seed)
        self.size = size
        self.features = features
        file_bytes_max = self.random.choice((3_000, 20_000, 60_000, max(4_000, size * 40)))
        self.environment = Environment(
            directory,
            file_bytes_max=file_bytes_max,
            created_ms=CREATED_MS + seed,
            deltas=self.random.random() < 0.9,
        )
        self.model = Model()
        self.written = Written(directory, seed)
        self.values: list[Value] = []
        self.open: list[Txn] = []
        self.removed: list[int] = []
        self.reserved: set[int] = set()
        self.dropping: set[int] = set()
        self.number = 0

    def run(self) -> Written:
        for _ in range(self.random.randint(1, 4)):
            self._create()
        steps = (
            (self._put, 52), (self._delete, 12), (self._end, 16), (self._begin, 8), (self._burst, 3),
            (self._checkpoint, 1.5), (self._flip, 0.5), (self._create, 0.4), (self._drop, 0.4),
            (self._rename, 0.4), (self._truncate, 0.4), (self._clean, 0.7), (self._trace, 0.3),
            (self._immutable, 0.1), (self._evict, 2),
        )  # fmt: skip
        chosen = self.random.choices(
            [step for step, _ in steps], [weight for _, weight in steps], k=self.size
        )
        for step in chosen:
            step()
        self._finish()
        return self.written

    # What is chosen from.

    def _names(self) -> list[str]:
        databases = self.environment.databases
        return sorted(name for name in databases if not name.startswith("_je"))

    def _any_txn(self) -> Txn | None:
        if self.open and self.random.random() < 0.85:
            return self.random.choice(self.open)
        return None

    def _value(self) -> tuple[bytes, bytes]:
        """A value and its marker: eight bytes at its begin, which the filling never holds."""
        self.number += 1
        marker = b"~%06x~" % self.number
        kind = self.random.random()
        if kind < 0.3:
            length = self.random.randint(0, 8)
        elif kind < 0.97:
            length = self.random.randint(9, 300)
        else:
            length = self.random.randint(300, 3000)
        return marker + bytes(self.random.choices(b"abcdefghijklmnop", k=length)), marker

    def _key(self) -> bytes:
        number = int(self.random.betavariate(1, 3) * max(20, self.size // 3))
        return b"k%d-with-a-longer-end" % number if number % 9 == 4 else b"k%d" % number

    def _expiration(self) -> int | None:
        if self.random.random() < 0.93:
            return None
        past = self.features and self.random.random() < 0.3
        days = (DAYS_PAST if past else DAYS_AHEAD) + self.random.randint(0, 90)
        return days if self.random.random() < 0.5 else -(days * 24 + self.random.randint(0, 23))

    # Records.

    def _put(self, txn: Txn | None = None, key: bytes | None = None) -> None:
        if names := self._names():
            name = self.random.choice(names)
            txn = txn or self._any_txn()
            self._put_into(txn, name, key or self._key(), self._expiration())

    def _put_into(self, txn: Txn | None, name: str, key: bytes, expiration: int | None) -> None:
        database = self.environment.databases[name]
        value, marker = self._value()
        try:
            lsn = self.environment.put(txn, name, key, value, expiration=expiration)
        except RecordLocked:
            return
        embedded = database.embeds(value)
        number = txn.id if txn else 0
        self.values.append(Value(marker, lsn, database.id, key, embedded, database.dups, number))
        self.model.change(txn, database.id, database.key(key, value), (key, value, expiration, marker))

    def _delete(self) -> None:
        if not (names := self._names()):
            return
        name = self.random.choice(names)
        database = self.environment.databases[name]
        slots = [slot for slot in database.tree.slots() if not slot.deleted]
        if not slots:
            return
        slot = self.random.choice(slots)
        pair = (slot.key, b"")
        if database.dups:
            pair = next(pair for pair in database.records() if database.key(*pair) == slot.key)
        txn = self._any_txn()
        try:
            self.environment.delete(txn, name, *pair)
        except RecordLocked:
            return
        self.model.change(txn, database.id, slot.key, None)

    def _burst(self) -> None:
        """Change neighbours in one transaction, so that some nodes change much and others not."""
        txn = self.environment.begin()
        self.model.pending[txn.id] = []
        start = self.random.randint(0, self.size)
        for number in range(start, start + self.random.randint(2, 30)):
            self._put(txn, b"b%06d" % number)
        self._end_one(txn)
        if self.features and self.model.outcomes[txn.id] == "ABORTED" and self.random.random() < 0.3:
            for value in self.values:
                if value.txn_id == txn.id:
                    self.environment.log.make_invisible(value.lsn)

    # Transactions.

    def _begin(self) -> None:
        if len(self.open) < 6:
            txn = self.environment.begin()
            self.model.pending[txn.id] = []
            self.open.append(txn)

    def _end(self) -> None:
        if self.open:
            self._end_one(self.open.pop(self.random.randrange(len(self.open))))

    def _end_one(self, txn: Txn) -> None:
        if self.random.random() < 0.2:
            self.environment.abort(txn)
            self.model.end(txn, "ABORTED")
        else:
            self.environment.commit(txn)
            self.model.end(txn, "COMMITTED")

    # Databases.

    def _create(self) -> None:
        name = f"db{len(self.model.records)}"
        kind = self.random.random()
        comparator = self.features and kind > 0.98
        database = self.environment.create(
            name,
            dups=kind < 0.25,
            prefixing=kind > 0.6,
            comparator=COMPARATOR if comparator else b"",
            node_capacity=self.random.choice((8, 16, 63, 128)),
        )
        if comparator:
            self.written.comparators |= {name}
        self.model.records[database.id] = {}
        self.model.names[name] = database.id

    def _idle(self) -> list[str]:
        """Databases that no open transaction has written to."""
        held = {db_id for txn in self.open for db_id, _ in txn.before}
        return [name for name in self._names() if self.environment.databases[name].id not in held]

    def _drop(self) -> None:
        if len(idle := self._idle()) < 2:
            return
        name = self.random.choice(idle)
        database, finish = self.environment.databases[name], self.random.random() < 0.7
        txn = self.environment.begin()
        self.environment.drop(txn, name, finish=finish)
        if self._settle(txn):
            del self.model.names[name]
            self._lose(database, finish=finish)

    def _rename(self) -> None:
        if idle := self._idle():
            old, new = self.random.choice(idle), f"renamed{self.number}"
            if new in self.environment.databases:
                return
            txn = self.environment.begin()
            self.environment.rename(txn, old, new)
            if self._settle(txn):
                self.model.names[new] = self.model.names.pop(old)
                if old in self.written.comparators:
                    self.written.comparators = self.written.comparators - {old} | {new}

    def _truncate(self) -> None:
        if idle := self._idle():
            name = self.random.choice(idle)
            old, finish = self.environment.databases[name], self.random.random() < 0.7
            txn = self.environment.begin()
            self.environment.truncate(txn, name, finish=finish)
            new = self.environment.databases[name]
            if self._settle(txn):
                self.model.names[name] = new.id
                self.model.records[new.id] = {}
                self._lose(old, finish=finish)

    def _settle(self, txn: Txn) -> bool:
        if self.random.random() < 0.25:
            self.environment.abort(txn)
            return False
        self.environment.commit(txn)
        return True

    def _lose(self, database: Database, *, finish: bool) -> None:
        if finish:
            self.written.dropped |= {database.id}
        else:
            self.dropping.add(database.id)

    # The log.

    def _checkpoint(self) -> None:
        self.environment.checkpoint()

    def _flip(self) -> None:
        self.environment.log.flip()

    def _trace(self) -> None:
        self.environment.trace("a trace")

    def _immutable(self) -> None:
        self.environment.mark_immutable()

    def _clean(self) -> None:
        files = sorted(int(path.stem, 16) for path in self.written.directory.glob("*.jdb"))
        number = self.random.choice(files) if files else 0
        reserve = number not in self.reserved and self.random.random() < 0.3
        if files and clean_file(self.environment, number, reserve=reserve):
            if reserve:
                self.reserved.add(number)
            else:
                self.reserved.discard(number)
                self.removed.append(number)

    def _evict(self) -> None:
        if names := self._names():
            self.environment.evict(self.random.choice(names), self.random.randrange(100))

    def _finish(self) -> None:
        crash = self.random.random() < 0.4
        if not crash:
            while self.open:
                self._end()
        if self.random.random() < 0.8:
            self.environment.log.flip()
        torn = b""
        if crash:
            if self.random.random() < 0.5:
                self.environment.checkpoint()
                for _ in range(self.random.randint(0, 10)):
                    self._put()
            if self.random.random() < 0.4:
                whole = b"".join(
                    entry_bytes(EntryType.INS_LN_TX, 0, self.environment.log.previous, bytes(80))
                )
                torn = whole[: self.random.randint(1, len(whole) - 1)]
            self.environment.crash(torn=torn)
        else:
            self.environment.close()
        self.written.crashed, self.written.torn = crash, bool(torn)
        self._tell()

    def _tell(self) -> None:
        written, model = self.written, self.model
        for txn in self.open:
            model.end(txn, "OPEN")
        written.dropping = frozenset(self.dropping)
        written.removed_files = tuple(self.removed)
        written.reserved_files = frozenset(self.reserved)
        tell(written, model, self.environment, self.values)

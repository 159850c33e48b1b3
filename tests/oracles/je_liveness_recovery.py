"""What JE would have in its trees after a recovery: which records, and what was fetched to know them.

Two ways that share nothing but the reader: `recover` starts from the trees as the checkpoint left them, takes
back what did not commit and repeats what did, as JE does; `replay` applies every committed LN from the first
on, which is right only where nothing has been cleaned away or erased.
"""

from collections.abc import Container
from dataclasses import dataclass, field
from functools import cached_property

from tests.oracles.je_liveness import ERASED, Rule, merged_slots
from tests.oracles.je_liveness_reader import (
    DELETIONS,
    EMBEDDED,
    MAPPING_DB,
    NAMING_DB,
    NODES,
    NONE,
    TOMBSTONE,
    USER_LNS,
    Entry,
    Log,
    split_duplicate,
)

Records = dict[str, dict[bytes, bytes]]


@dataclass
class Version:
    """A record's slot: where its LN is, and its value where that is not in the LN."""

    lsn: int
    value: bytes | None = None
    is_tombstone: bool = False
    is_gone: bool = False


@dataclass
class Recovered:
    """The records by database name; what JE would have died of; what it would have found missing."""

    records: Records = field(default_factory=dict)
    tombstones: Records = field(default_factory=dict)
    fetched: set[int] = field(default_factory=set)
    fatal: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


class Recovery:
    def __init__(self, log: Log) -> None:
        self.log, self.rule = log, Rule(log)
        self.result = Recovered()

    def fetch(self, lsn: int, what: str) -> Entry | None:
        entry = self.log.at.get(lsn)
        self.result.fetched.add(lsn)
        if entry is None:
            self.result.missing.append(f"{what} at {lsn:#x}")
        elif entry.type == ERASED:
            self.result.fatal.append(f"{what} at {lsn:#x} is erased unexpectedly")
            return None
        return entry

    def run(self) -> Recovered:
        names = self.names()
        for name, db in names.items():
            versions = self.versions(db, self.root_of(db))
            live, dead = self.read(db, versions)
            self.result.records[name] = live
            if dead:
                self.result.tombstones[name] = dead
        self.versions(MAPPING_DB, self.root_of(MAPPING_DB))
        return self.result

    @cached_property
    def recent(self) -> list[Entry]:
        """The LNs of all trees from the first active LSN on."""
        kinds, first = USER_LNS | {3, 4, 5, 6}, self.rule.first_active
        return [e for e in self.log.entries if e.lsn >= first and e.type in kinds]

    @cached_property
    def roots(self) -> dict[int, int]:
        """Database -> its root by the last MapLN; of the two trees that find these, by the last DbTree."""
        maps = [e.map for e in self.log.entries if e.map is not None and not e.is_deletion]
        trees = [tree for e in self.log.entries for tree in e.trees]
        found = {each.id: each.root for each in maps if each.id not in {MAPPING_DB, NAMING_DB}}
        return found | {each.id: each.root for each in trees if each.id in {MAPPING_DB, NAMING_DB}}

    def root_of(self, db: int) -> int:
        return self.roots.get(db, NONE)

    def names(self) -> dict[str, int]:
        """The databases that can be opened, by name."""
        found = {}
        for key, version in self.versions(NAMING_DB, self.root_of(NAMING_DB)).items():
            if version.is_gone:
                continue
            entry = self.fetch(version.lsn, f"name of {key!r}")
            if entry is not None:
                found[key.decode()] = entry.named_db
        return found

    def versions(self, db: int, root: int) -> dict[bytes, Version]:
        """Key -> current version, as of the end of recovery."""
        slots: dict[bytes, Version] = {}
        if root != NONE:
            self.collect(db, root, slots)
        recent = [ln for ln in self.recent if ln.db == db]
        for ln in reversed(recent):
            current = slots.get(ln.key)
            if self.rule.outcome(ln) != "COMMITTED" and current is not None and current.lsn == ln.lsn:
                self.undo(ln, slots)
        for ln in recent:
            current = slots.get(ln.key)
            if self.rule.outcome(ln) == "COMMITTED" and (current is None or current.lsn < ln.lsn):
                slots[ln.key] = Version(
                    ln.lsn,
                    ln.value if ln.is_embedded else None,
                    bool(ln.ln_flags2 & 0x04),
                    ln.is_deletion,
                )
        return slots

    def undo(self, ln: Entry, slots: dict[bytes, Version]) -> None:
        if ln.abort_lsn == NONE or ln.ln_flags & 0x01:
            del slots[ln.key]
            return
        slots[ln.key] = Version(ln.abort_lsn, ln.abort_data, bool(ln.ln_flags2 & 0x08))

    def collect(self, db: int, lsn: int, slots: dict[bytes, Version]) -> None:
        node = self.fetch(lsn, f"node of database {db}")
        if node is None or node.type not in NODES:
            return
        if node.type == 37:
            self.fetch(node.last_full, f"full BIN of database {db}")
        for slot in merged_slots(self.log, node):
            if node.type == 12:
                if not slot.is_gone:
                    self.collect(db, slot.lsn, slots)
                continue
            value = slot.value if slot.state & EMBEDDED else None
            slots[slot.key] = Version(slot.lsn, value, bool(slot.state & TOMBSTONE), slot.is_gone)

    def read(self, db: int, versions: dict[bytes, Version]) -> tuple[dict[bytes, bytes], dict[bytes, bytes]]:
        live: dict[bytes, bytes] = {}
        dead: dict[bytes, bytes] = {}
        for key, version in versions.items():
            if version.is_gone:
                continue
            value = b"" if self.rule.is_dups(db) else version.value
            if value is None:
                entry = self.fetch(version.lsn, f"LN of {key!r} in database {db}")
                if entry is None:
                    continue
                value = entry.value or b""
            (dead if version.is_tombstone else live)[key] = value
        return live, dead


def recover(log: Log) -> Recovered:
    return Recovery(log).run()


def replay(log: Log) -> Records:
    """The records that are left when every committed LN is applied in order."""
    rule = Rule(log)
    state: dict[int, dict[bytes, Entry]] = {}
    for ln in log.entries:
        if ln.type not in USER_LNS | {5, 6} or rule.outcome(ln) != "COMMITTED" or ln.db is None:
            continue
        state.setdefault(ln.db, {})[ln.key] = ln
    found: Records = {}
    for name, name_ln in state.get(NAMING_DB, {}).items():
        if name_ln.is_deletion:
            continue
        rows = state.get(name_ln.named_db, {}).items()
        found[name.decode()] = {
            key: ln.value or b"" for key, ln in rows if ln.type not in DELETIONS and not ln.ln_flags2 & 0x04
        }
    return found


def as_the_user_sees(log: Log, records: Records) -> set[tuple[str, bytes, bytes]]:
    """(database, key, value) of the databases that are not JE's own; those of duplicates split in two."""
    rule = Rule(log)
    names = {database.name: db for db, database in rule.databases.items()}
    found = set()
    for name, rows in records.items():
        if name.startswith("_je"):
            continue
        dups = rule.is_dups(names.get(name))
        for key, value in rows.items():
            found.add((name, *split_duplicate(key)) if dups else (name, key, value))
    return found


def with_erased(log: Log, lsns: Container[int]) -> Log:
    """The log as it would be read with some of its entries erased."""
    return Log([as_erased(e) if e.lsn in lsns else e for e in log.entries], log.files, log.torn)


def as_erased(entry: Entry) -> Entry:
    return Entry(entry.lsn, ERASED, entry.flags, entry.header, entry.size, entry.vlsn, all_zero=True)

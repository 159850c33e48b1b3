"""What of a JE log may go and what must never: the safe rule in plain, slow Python.

Written from facts je-safe-rule and je-log-format alone. Two questions are answered apart from each other, so
that a slip in one shows against the other: `Rule.obsolete` is the table of the rule, `Needs` is what a
recovery or a reader could ask for. What both claim is the veto's.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from tests.oracles.je_liveness_reader import (
    DELETIONS,
    EMBEDDED,
    NODES,
    NONE,
    USER_LNS,
    WITH_TXN,
    Database,
    Entry,
    Log,
    Slot,
)
from tests.oracles.je_log import Item

ERASED = 43
VLSN_RANGE_KEY = bytes([0x7F]) + b"\xff" * 7
TOUCHABLE = USER_LNS | NODES | {ERASED}


class NoAnswer(Exception):
    """The log says too little to decide anything."""


@dataclass(frozen=True)
class Verdict:
    must_stay: dict[int, str]
    obsolete: dict[int, str]

    @property
    def vetoed(self) -> set[int]:
        return self.must_stay.keys() & self.obsolete.keys()

    @property
    def erasable(self) -> dict[int, str]:
        return {lsn: why for lsn, why in self.obsolete.items() if lsn not in self.must_stay}


class Rule:
    """The terms of the rule over one log. A mutant of the rule overrides one of them."""

    def __init__(self, log: Log) -> None:
        self.log = log

    @cached_property
    def checkpoint(self) -> Entry:
        ends = [entry for entry in self.log.entries if entry.type == 20]
        if not ends:
            raise NoAnswer("no checkpoint")
        return ends[-1]

    @cached_property
    def first_active(self) -> int:
        return self.checkpoint.first_active

    def is_before(self, lsn: int) -> bool:
        return lsn < self.first_active

    # Transactions.

    @cached_property
    def commits(self) -> dict[int, int]:
        return {each.txn: each.lsn for each in self.log.entries if each.type == 17 and not each.invisible}

    @cached_property
    def aborts(self) -> set[int]:
        return {each.txn for each in self.log.entries if each.type == 18 and not each.invisible}

    def outcome(self, ln: Entry) -> str:
        if ln.invisible:
            return "ABORTED"
        if ln.type not in WITH_TXN or ln.txn == 0 or ln.txn in self.commits:
            return "COMMITTED"
        return "ABORTED" if ln.txn in self.aborts else "UNKNOWN"

    def commit_lsn(self, ln: Entry) -> int:
        return self.commits.get(ln.txn, ln.lsn) if ln.type in WITH_TXN else ln.lsn

    # Databases.

    @cached_property
    def maps(self) -> dict[int, Entry]:
        """Database -> its newest MapLN in log order that counts."""
        found = {}
        for entry in self.log.entries:
            if entry.type in {3, 4} and self.outcome(entry) == "COMMITTED":
                found[int(entry.key)] = entry
        return found

    @cached_property
    def databases(self) -> dict[int, Database]:
        found = {each.map.id: each.map for each in self.log.entries if each.map is not None}
        for tree in (tree for entry in self.log.entries for tree in entry.trees):
            found[tree.id] = tree
        return found

    def is_dropped(self, db: int | None) -> bool:
        newest = self.maps.get(db) if db is not None else None
        return newest is not None and newest.is_deletion and self.is_before(newest.lsn)

    def is_dups(self, db: int | None) -> bool:
        return db in self.databases and self.databases[db].dups

    # Versions of records.

    @cached_property
    def lns(self) -> list[Entry]:
        return [entry for entry in self.log.entries if entry.type in USER_LNS]

    @cached_property
    def latest(self) -> dict[tuple[int, bytes], Entry]:
        found: dict[tuple[int, bytes], Entry] = {}
        for ln in self.lns:
            if self.outcome(ln) != "COMMITTED":
                continue
            if self.is_before(ln.lsn) and self.is_before(self.commit_lsn(ln)):
                assert ln.db is not None
                found[ln.db, ln.key] = ln
        return found

    # Versions of nodes.

    @cached_property
    def kept_nodes(self) -> set[int]:
        newest: dict[tuple[int, int], Entry] = {}
        kept = set()
        for entry in self.log.entries:
            if entry.type in NODES and self.is_before(entry.lsn):
                assert entry.db is not None
                newest[entry.db, entry.node] = entry
            elif entry.type == 37:
                kept.add(entry.last_full)
        for entry in newest.values():
            kept.add(entry.lsn)
            if entry.type == 37:
                kept.add(entry.last_full)
        return kept

    @cached_property
    def abort_lsns(self) -> set[int]:
        return {e.abort_lsn for e in self.log.entries if e.abort_lsn != NONE and not self.is_before(e.lsn)}

    # The table.

    def reason(self, entry: Entry) -> str | None:
        """The first reason of the table that holds, or None."""
        if entry.type == ERASED:
            return None if entry.all_zero else "UNFINISHED_ERASURE"
        if entry.type not in TOUCHABLE:
            return None
        if self.is_dropped(entry.db):
            return "DELETED_DATABASE"
        if entry.type in NODES:
            return None if entry.lsn in self.kept_nodes else "OLD_NODE"
        outcome = self.outcome(entry)
        if outcome != "COMMITTED":
            return "ABORTED" if outcome == "ABORTED" else None
        if entry.type in DELETIONS:
            return "DELETED_RECORD"
        assert entry.db is not None
        newest = self.latest.get((entry.db, entry.key))
        if newest is not None and entry.lsn < newest.lsn:
            return "SUPERSEDED"
        if entry.is_embedded:
            return "EMBEDDED"
        return "DUPLICATE" if self.is_dups(entry.db) else None

    def is_in_reach(self, entry: Entry) -> bool:
        return self.is_before(entry.lsn) and entry.file < self.first_active >> 32

    def is_forbidden(self, entry: Entry, reason: str) -> bool:
        """The list of "never", as far as it is about single entries."""
        if entry.type in USER_LNS and self.outcome(entry) == "UNKNOWN":
            return True
        # Of one whose erasure was begun nothing is left to fetch.
        tells_itself = reason in {"UNFINISHED_ERASURE", "DELETED_RECORD", "EMBEDDED", "DUPLICATE"}
        return entry.lsn in self.abort_lsns and not tells_itself

    def obsolete(self) -> dict[int, str]:
        found = {}
        for entry in self.log.entries:
            if not self.is_in_reach(entry):
                continue
            reason = self.reason(entry)
            if reason is not None and not self.is_forbidden(entry, reason):
                found[entry.lsn] = reason
        return found


class Needs:
    """What recovery, an abort, a rollback or a reader could fetch: LSN -> why."""

    def __init__(self, rule: Rule) -> None:
        self.rule, self.log = rule, rule.log
        self.found: dict[int, str] = {}

    def add(self, lsn: int, why: str) -> None:
        if lsn != NONE:
            self.found.setdefault(lsn, why)

    def all(self) -> dict[int, str]:
        for entry in self.log.entries:
            if not self.rule.is_in_reach(entry):
                self.add(entry.lsn, "RECOVERY_INTERVAL")
            elif entry.type not in TOUCHABLE:
                self.add(entry.lsn, "NEVER_TOUCHED")
            elif entry.type in USER_LNS and self.rule.outcome(entry) == "UNKNOWN":
                self.add(entry.lsn, "OUTCOME_UNKNOWN")
        self.vlsn_files()
        for lsn in self.reached():
            self.add(lsn, "TREE")
        for entry in self.log.entries:
            if not self.rule.is_before(entry.lsn):
                for lsn in self.named_by(entry):
                    self.add(lsn, "NAMED_BY_RECOVERY_INTERVAL")
        for (db, _), ln in self.rule.latest.items():
            if not self.rule.is_dropped(db) and self.has_own_value(ln):
                self.add(ln.lsn, "LATEST")
        return self.found

    def has_own_value(self, ln: Entry) -> bool:
        return ln.type not in DELETIONS and not ln.is_embedded and not self.rule.is_dups(ln.db)

    def vlsn_files(self) -> None:
        first = first_vlsn_file(self.rule)
        for entry in self.log.entries:
            if first is not None and entry.file >= first:
                self.add(entry.lsn, "VLSN_INDEX")

    def roots(self) -> Iterable[int]:
        newest: dict[int, Entry] = {}
        for entry in self.log.entries:
            if entry.map is not None and not entry.is_deletion and self.rule.outcome(entry) != "ABORTED":
                newest[entry.map.id] = entry
        for db, entry in newest.items():
            if not self.rule.is_dropped(db):
                assert entry.map is not None
                yield entry.map.root
        trees = [entry for entry in self.log.entries if entry.type == 16]
        for tree in trees[-1].trees if trees else ():
            yield tree.root

    def reached(self) -> set[int]:
        seen: set[int] = set()
        todo = [root for root in self.roots() if root != NONE]
        while todo:
            lsn = todo.pop()
            if lsn in seen or lsn == NONE:
                continue
            seen.add(lsn)
            node = self.log.at.get(lsn)
            if node is None or node.type not in NODES:
                continue
            if node.type == 37:
                seen.add(node.last_full)
            todo.extend(slot.lsn for slot in self.followed(node, merged_slots(self.log, node)))
        return seen

    def followed(self, node: Entry, slots: Iterable[Slot]) -> Iterable[Slot]:
        for slot in slots:
            if slot.is_gone or (node.type != 12 and (slot.state & EMBEDDED or self.rule.is_dups(node.db))):
                continue
            yield slot

    def named_by(self, entry: Entry) -> Iterable[int]:
        if entry.type in NODES:
            yield entry.last_full if entry.type == 37 else NONE
            yield from (slot.lsn for slot in self.followed(entry, entry.slots))
        if entry.map is not None:
            yield entry.map.root
        yield from (tree.root for tree in entry.trees)
        named = self.log.at.get(entry.abort_lsn)
        if named is None or named.type == ERASED:
            return
        if not (
            named.type in USER_LNS
            and self.rule.outcome(named) == "COMMITTED"
            and not self.has_own_value(named)
        ):
            yield named.lsn


def merged_slots(log: Log, node: Entry) -> list[Slot]:
    """The slots of a node; a delta's override those of the full BIN that it completes, by key."""
    if node.type != 37:
        return node.slots
    full = log.at.get(node.last_full)
    merged = {slot.key: slot for slot in full.slots} if full is not None and full.type == 13 else {}
    merged.update({slot.key: slot for slot in node.slots})
    return [merged[key] for key in sorted(merged)]


def first_vlsn_file(rule: Rule) -> int | None:
    """The first file that the VLSN index covers; None without replication.

    The newest committed range record counts; where there is none, everything is covered.
    """
    replicated = [entry for entry in rule.log.entries if entry.flags & 0x20 and entry.type != 25]
    if not replicated:
        return None
    indexes = {db for db, each in rule.databases.items() if each.name == "_jeVlsnMapDb"}
    records = [
        ln
        for ln in rule.lns
        if ln.db in indexes and ln.key == VLSN_RANGE_KEY and ln.value and rule.outcome(ln) == "COMMITTED"
    ]
    if not records:
        return rule.log.files[0]
    first = range_first(records[-1].value or b"")
    return min((e.file for e in replicated if e.vlsn >= first), default=rule.log.files[-1])


def range_first(value: bytes) -> int:
    item = Item(value)
    item.i()
    return item.l()


def judge(log: Log, rule: Rule | None = None) -> Verdict:
    """The verdict over a log; with a mutant of the rule, what the mutant would erase."""
    honest = Rule(log)
    return Verdict(Needs(honest).all(), (rule or honest).obsolete())

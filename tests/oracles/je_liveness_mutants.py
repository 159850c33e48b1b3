"""Wrong forms of the safe rule. A judge that lets one of them pass is no judge."""

from collections.abc import Callable
from functools import cached_property
from typing import Final

from tests.oracles.je_liveness import Needs, Rule
from tests.oracles.je_liveness_reader import NODES, Entry, Log


class IgnoresTheCheckpoint(Rule):
    """Whatever is not in the last file may go."""

    def is_before(self, lsn: int) -> bool:
        return True

    def is_in_reach(self, entry: Entry) -> bool:
        return entry.file < self.log.files[-1]


class LatestCommittedWins(Rule):
    """A newer version supersedes also where recovery may not have it."""

    @cached_property
    def latest(self) -> dict[tuple[int, bytes], Entry]:
        return {(ln.db or 0, ln.key): ln for ln in self.lns if self.outcome(ln) == "COMMITTED"}


class TakesUncommittedAsLatest(Rule):
    @cached_property
    def latest(self) -> dict[tuple[int, bytes], Entry]:
        return {(ln.db or 0, ln.key): ln for ln in self.lns if self.is_before(ln.lsn)}


class IgnoresAbortLsns(Rule):
    """What an abort would go back to is superseded like anything else."""

    @cached_property
    def abort_lsns(self) -> set[int]:
        return set()

    @cached_property
    def latest(self) -> dict[tuple[int, bytes], Entry]:
        return {(ln.db or 0, ln.key): ln for ln in self.lns if self.outcome(ln) != "ABORTED"}


class IgnoresLastFull(Rule):
    @cached_property
    def kept_nodes(self) -> set[int]:
        before = [each for each in self.log.entries if each.type in NODES and self.is_before(each.lsn)]
        return set({(each.db, each.node): each.lsn for each in before}.values())


class KeepsTheNewestNodeOnly(Rule):
    """Of each node the newest version of all: recovery stands on the one before A."""

    @cached_property
    def kept_nodes(self) -> set[int]:
        nodes = [each for each in self.log.entries if each.type in NODES]
        newest = {(each.db, each.node): each for each in nodes}.values()
        return {each.lsn for each in newest} | {each.last_full for each in newest}


class ErasesUnknownOutcomes(Rule):
    def outcome(self, ln: Entry) -> str:
        return super().outcome(ln).replace("UNKNOWN", "ABORTED")


class ForgetsInternalDatabases(Rule):
    """What has no name that a user gave it is not known, hence dropped."""

    def is_dropped(self, db: int | None) -> bool:
        name = self.databases[db].name if db in self.databases else ""
        return super().is_dropped(db) or not name or name.startswith("_je")


class DropsBeforeTheCheckpointKnows(Rule):
    def is_dropped(self, db: int | None) -> bool:
        return db in self.maps and self.maps[db].is_deletion


class DropsByName(Rule):
    """A NameLN that is deleted takes its database with it, renamed or aborted though it be."""

    def is_dropped(self, db: int | None) -> bool:
        names = [each for each in self.log.entries if each.type in {5, 6} and each.named_db == db]
        return any(each.is_deletion for each in names)


class TakesAbortedAsCommitted(Rule):
    def outcome(self, ln: Entry) -> str:
        return super().outcome(ln).replace("ABORTED", "COMMITTED")


class TakesEverythingAsEmbedded(Rule):
    def reason(self, entry: Entry) -> str | None:
        reason = super().reason(entry)
        return "EMBEDDED" if reason is None and entry.value is not None and len(entry.value) <= 60 else reason


MUTANTS: Final[tuple[type[Rule], ...]] = (
    IgnoresTheCheckpoint,
    LatestCommittedWins,
    TakesUncommittedAsLatest,
    IgnoresAbortLsns,
    IgnoresLastFull,
    KeepsTheNewestNodeOnly,
    ErasesUnknownOutcomes,
    ForgetsInternalDatabases,
    DropsBeforeTheCheckpointKnows,
    DropsByName,
    TakesAbortedAsCommitted,
    TakesEverythingAsEmbedded,
)


def ignores_the_veto(log: Log) -> set[int]:
    """The table alone, without a look at what the trees reach."""
    return set(Rule(log).obsolete())


def wrong_plans(log: Log) -> dict[str, Callable[[], set[int]]]:
    """By name: what each wrong rule would erase; the veto of the right one is heeded but for one."""
    found: dict[str, Callable[[], set[int]]] = {"IgnoresTheVeto": lambda: ignores_the_veto(log)}
    honest = Rule(log)
    vetoed = honest.obsolete().keys() & Needs(honest).all().keys()
    for mutant in MUTANTS:
        found[mutant.__name__] = lambda mutant=mutant: set(mutant(log).obsolete()) - vetoed
    return found

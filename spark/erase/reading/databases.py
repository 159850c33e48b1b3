"""Databases as the log knows them: the newest MapLN of each decides, in log order."""

from dataclasses import dataclass

from spark.erase.reading.log import Checkpoint, Log
from spark.formats.je.items import DATABASE_TEMPORARY, MAPPING_DB, NAMING_DB, Database, DbTree, RareLn
from spark.formats.je.log import NULL_LSN


@dataclass(frozen=True, slots=True)
class Databases:
    """What is known of the databases.

    Attributes:
        known: the newest description of each.
        roots: of each that has a MapLN, the LSNs of tree roots from which the veto walks.
        dropped: those whose newest MapLN is a deletion before the checkpoint's first active LSN.
        map_lns: the LSNs of all MapLNs of each, in log order.
        ending: those whose newest MapLN or NameLN is a deletion, wherever, or whose name has gone to another:
            the cleaner no longer keeps their trees.
    """

    known: dict[int, Database]
    roots: dict[int, set[int]]
    dropped: frozenset[int]
    map_lns: dict[int, list[int]]
    ending: frozenset[int]

    @property
    def dups(self) -> frozenset[int]:
        """Databases whose records are their keys, in the order of bytes."""
        return frozenset(each.id for each in self.known.values() if each.dups and not each.has_comparator)

    @property
    def with_comparator(self) -> frozenset[int]:
        """Databases in which keys that differ may be the same."""
        return frozenset(each.id for each in self.known.values() if each.has_comparator) - self.dropped

    @property
    def deferred_write(self) -> frozenset[int]:
        """Databases whose records were logged late or never."""
        return (
            frozenset(each.id for each in self.known.values() if each.flags & DATABASE_TEMPORARY)
            - self.dropped
        )

    def named(self, name: str) -> int | None:
        """Return the id of the database of a name that is not dropped."""
        found = [each.id for each in self.known.values() if each.name == name]
        return next((each for each in reversed(found) if each not in self.dropped), None)


def find_databases(log: Log, checkpoint: Checkpoint) -> Databases:
    """Find the databases of a log."""
    known: dict[int, Database] = {}
    roots: dict[int, set[int]] = {}
    dropped: set[int] = set()
    map_lns: dict[int, list[int]] = {}
    name_ended: dict[int, bool] = {}
    named: dict[bytes, int] = {}
    map_ended: dict[int, bool] = {}
    for lsn, _, ln in log.rare(RareLn):
        if ln.named_id is not None:
            # A name that goes on with another id: its database was truncated, and the old one is ending.
            before = named.pop(ln.key, ln.named_id)
            name_ended |= {before: True, ln.named_id: ln.deleted}
            if not ln.deleted:
                named[ln.key] = ln.named_id
        if ln.database is None:
            continue
        database = ln.database
        map_ended[database.id] = ln.deleted
        map_lns.setdefault(database.id, []).append(lsn)
        known.pop(database.id, None)
        known[database.id] = database
        dropped.discard(database.id)
        if not ln.deleted:
            roots[database.id] = {database.root_lsn} - {NULL_LSN}
        elif lsn < checkpoint.first_active:
            dropped.add(database.id)
            roots.pop(database.id, None)
        else:
            # Dropped in the tail of the log: until the next checkpoint it counts as there, with the root that
            # it had.
            roots.setdefault(database.id, set()).update({database.root_lsn} - {NULL_LSN})
    for _, _, tree in log.rare(DbTree):
        known |= {MAPPING_DB: tree.mapping, NAMING_DB: tree.naming}
    ended = [*name_ended.items(), *map_ended.items()]
    ending = frozenset(db for db, deleted in ended if deleted)
    return Databases(known, roots, frozenset(dropped), map_lns, ending)

"""What is true of an environment that a test has written."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from lethe_samples.je_writer.database import Txn
from lethe_samples.je_writer.environment import Environment
from spark.formats.je.log import lsn_file


@dataclass(frozen=True)
class Value:
    """One value as it was written; transaction 0 is none."""

    marker: bytes
    lsn: int
    db_id: int
    key: bytes
    embedded: bool
    dups: bool
    txn_id: int


@dataclass(frozen=True)
class Marker:
    """One value that was written, under a byte string that stands nowhere else.

    Attributes:
        outcome: COMMITTED, ABORTED or OPEN (of a transaction that a crash cut off).
        live: it is what a reader finds after recovery, under the database's present name.
        file_removed: the file that its LN lay in is gone.
        moved: if it was live then, the cleaner has written it again; `lsn` is still the first one.
    """

    marker: bytes
    lsn: int
    db_id: int
    key: bytes
    embedded: bool
    dups: bool
    outcome: str
    live: bool
    file_removed: bool
    moved: bool


@dataclass
class Written:
    """What was written, and what is true of it.

    Attributes:
        live: database name -> its records after recovery, sorted: key and value, several per key with dups.
        markers: by their bytes, all values ever written.
        ids: database name -> id, after recovery.
        dropped: ids whose MapLN is a deletion in the log.
        dropping: ids whose names are gone for good, without the end of their MapLN.
        reserved_files: those that JE may delete, and that are there.
        expirations: (name, key, value) of live records with one -> days, or negative hours.
    """

    directory: Path
    seed: int
    live: dict[str, list[tuple[bytes, bytes]]] = field(default_factory=dict)
    markers: dict[bytes, Marker] = field(default_factory=dict)
    ids: dict[str, int] = field(default_factory=dict)
    dups: frozenset[str] = frozenset()
    comparators: frozenset[str] = frozenset()
    dropped: frozenset[int] = frozenset()
    dropping: frozenset[int] = frozenset()
    expirations: dict[tuple[str, bytes, bytes], int] = field(default_factory=dict)
    removed_files: tuple[int, ...] = ()
    reserved_files: frozenset[int] = frozenset()
    first_active_lsn: int = -1
    last_file: int = 0
    crashed: bool = False
    torn: bool = False


# Key, value, expiration, marker.
Record: TypeAlias = tuple[bytes, bytes, int | None, bytes]


@dataclass
class Model:
    """What is committed, held apart from the writer's own trees.

    Attributes:
        records: database id -> tree key -> (key, value, expiration, marker).
        pending: transaction id -> its changes in order; None deletes.
        names: the committed names.
    """

    records: dict[int, dict[bytes, Record]] = field(default_factory=dict)
    pending: dict[int, list[tuple[int, bytes, Record | None]]] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)
    outcomes: dict[int, str] = field(default_factory=dict)

    def change(self, txn: Txn | None, db_id: int, key: bytes, record: Record | None) -> None:
        if txn is not None:
            self.pending[txn.id].append((db_id, key, record))
        elif record is None:
            del self.records[db_id][key]
        else:
            self.records[db_id][key] = record

    def end(self, txn: Txn, outcome: str) -> None:
        self.outcomes[txn.id] = outcome
        for db_id, key, record in self.pending.pop(txn.id):
            if outcome == "COMMITTED":
                if record is None:
                    self.records[db_id].pop(key, None)
                else:
                    self.records[db_id][key] = record


def tell(written: Written, model: Model, environment: Environment, values: list[Value]) -> None:
    """Say of an environment that is done what is live in it, and what became of each value."""
    databases = {database.id: database for database in environment.databases.values()}
    written.first_active_lsn = environment.first_active_lsn
    written.last_file = environment.log.number
    written.ids = dict(model.names)
    written.dups = frozenset(name for name, db_id in model.names.items() if databases[db_id].dups)
    live = set()
    for name, db_id in model.names.items():
        records = model.records[db_id].values()
        written.live[name] = sorted((key, value) for key, value, _, _ in records)
        for key, value, expiration, marker in records:
            live.add(marker)
            if expiration is not None:
                written.expirations[name, key, value] = expiration
    for each in values:
        outcome = model.outcomes[each.txn_id] if each.txn_id else "COMMITTED"
        written.markers[each.marker] = Marker(
            marker=each.marker,
            lsn=each.lsn,
            db_id=each.db_id,
            key=each.key,
            embedded=each.embedded,
            dups=each.dups,
            outcome=outcome,
            live=each.marker in live,
            file_removed=lsn_file(each.lsn) in written.removed_files,
            moved=lsn_file(each.lsn) in {*written.removed_files, *written.reserved_files},
        )

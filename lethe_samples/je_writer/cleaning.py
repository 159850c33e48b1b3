"""Removes a whole file of a log, as JE's cleaner does: what lives in it is written again first."""

from lethe_samples.je_writer.database import Database
from lethe_samples.je_writer.environment import Environment
from lethe_samples.je_writer.tree import Node, Slot
from spark.formats.je.items import MAPPING_DB, NAMING_DB
from spark.formats.je.log import NULL_LSN, file_name, lsn_file


def clean_file(environment: Environment, number: int, *, reserve: bool = False) -> bool:
    """Migrate a file's live records and nodes, checkpoint, and delete the file.

    Args:
        environment: what is written.
        number: the file.
        reserve: only note that the file may be deleted, as JE does before it deletes one.

    Returns:
        whether it has done so; False where an open transaction may still return to what it holds, or where
        it is the last one.
    """
    environment.compress()
    if number >= environment.log.number or _is_needed(environment, number):
        return False
    for database in environment.all_databases():
        for slot in [slot for slot in database.tree.slots() if _lies_in(slot.lsn, number)]:
            _migrate(environment, database, slot)
        if database.tree.root is not None:
            _mark_nodes(database.tree.root, number)
            if database.id in (MAPPING_DB, NAMING_DB):
                database.tree.root.dirty = True
    environment.checkpoint("cleaner", cleaned_files=True)
    if reserve:
        environment.reserve(number)
        return True
    environment.release(number)
    (environment.log.directory / file_name(number)).unlink()
    return True


def _is_needed(environment: Environment, number: int) -> bool:
    for txn in environment.open_transactions():
        if txn.first_lsn != NULL_LSN and lsn_file(txn.first_lsn) <= number:
            return True
        if any(before is not None and _lies_in(before.lsn, number) for before in txn.before.values()):
            return True
    return False


def _migrate(environment: Environment, database: Database, slot: Slot) -> None:
    """Write a live record again; one whose LN was obsolete from the start has no need of it."""
    if slot.deleted:
        return
    if database.id in (MAPPING_DB, NAMING_DB):
        environment.migrate_name(database, slot)
    elif not database.dups and not slot.embedded:
        environment.migrate(database, slot)


def _mark_nodes(node: Node, number: int) -> None:
    if any(_lies_in(lsn, number) for lsn in (node.lsn, node.full_lsn, node.delta_lsn)):
        node.dirty, node.delta_allowed = True, False
    for child in node.children:
        _mark_nodes(child, number)


def _lies_in(lsn: int, number: int) -> bool:
    return lsn != NULL_LSN and lsn_file(lsn) == number

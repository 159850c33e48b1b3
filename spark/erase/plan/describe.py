"""What is in the log of an environment, for people: every entry one by one, or what they add up to."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from spark.erase.errors import LogRefused, NotAnEnvironment
from spark.erase.plan.plan import gather_facts
from spark.erase.reading.columns import FileColumns, Rare
from spark.erase.reading.databases import find_databases
from spark.erase.reading.directory import file_names, opened
from spark.erase.reading.files import Room, read_file
from spark.erase.reading.log import Log, Mask, newest_checkpoint, numbers, read_log
from spark.erase.reasons import Switches
from spark.erase.rule.deciding import decide
from spark.erase.rule.vlsn import find_vlsn_index
from spark.formats.je import log as je_log
from spark.formats.je.items import LN_EMBEDDED, NODE_LEVEL_MASK, CheckpointEnd, Database, RareLn
from spark.formats.je.log import LN_TYPES, NODE_TYPES, EntryType, lsn_file, show_lsn

FLAG_NAMES: Final = (
    (je_log.FLAG_PROVISIONAL, "PROVISIONAL"),
    (je_log.FLAG_PROVISIONAL_BEFORE_CHECKPOINT_END, "PROVISIONAL_BEFORE_CHECKPOINT_END"),
    (je_log.FLAG_REPLICATED, "REPLICATED"),
    (je_log.FLAG_INVISIBLE, "INVISIBLE"),
    (je_log.FLAG_VLSN_PRESENT, "VLSN_PRESENT"),
)
# What counts as used: other entries are of no use once the next checkpoint has ended. An erased entry is none
# of these, so its bytes are obsolete ones.
COUNTED: Final = np.array([number in LN_TYPES or number in NODE_TYPES for number in range(256)])


@dataclass(frozen=True, slots=True)
class Summary:
    """What the entries of an environment add up to; `refused` says why nothing is known of obsolete bytes."""

    files: tuple[dict[str, Any], ...]
    databases: tuple[dict[str, Any], ...]
    checkpoint: dict[str, Any] | None
    vlsn: dict[str, Any] | None
    torn_at: tuple[str, int] | None
    refused: LogRefused | None


def each_entry(directory: Path, *, number: int | None, verify: bool) -> Iterator[dict[str, Any]]:
    """Read file after file and give each entry as a document.

    Args:
        directory: of the environment.
        number: only this file.
        verify: compare every checksum.
    Raises: LogRefused: behind the entries of the files before.
    """
    names = file_names(directory)
    wanted = names if number is None else [name for name in names if je_log.file_number(name) == number]
    if not wanted:
        raise NotAnEnvironment(f"{directory} has no file {je_log.file_name(number or 0)}")
    room = Room.make()
    for name in wanted:
        with opened(directory, [name]) as [file]:
            columns = read_file(file, is_last=name == names[-1], verify=verify, room=room)
        yield from _entries(columns)


def _entries(columns: FileColumns) -> Iterator[dict[str, Any]]:
    name = je_log.file_name(columns.number)
    extra: dict[int, dict[str, Any]] = {}
    for row in columns.lns.to_pylist():
        extra[row.pop("entry")] = _ln(row)
    for row in columns.nodes.to_pylist():
        extra[row["entry"]] = {
            "db": row["db"],
            "node": row["node"],
            "level": row["level"] & NODE_LEVEL_MASK,
            "slots": row["slots"],
            "last_full": show_lsn(row["last_full"]),
        }
    for row in columns.ends.to_pylist():
        extra[row.pop("entry")] = row
    for entry, rare in columns.rare:
        extra[entry] = extra.get(entry, {}) | _rare(rare)
    number = 0
    for batch in columns.entries.to_batches(max_chunksize=4096):
        for row in batch.to_pylist():
            yield _entry(name, row) | extra.get(number, {})
            number += 1


def _entry(name: str, row: dict[str, Any]) -> dict[str, Any]:
    flags, kind = row["flags"], EntryType(row["type"])
    document = {
        "file": name,
        "offset": row["offset"],
        "type": kind.name,
        "item_bytes": row["item_bytes"],
        "flags": [text for flag, text in FLAG_NAMES if flags & flag],
    }
    if flags & je_log.FLAGS_WITH_VLSN:
        document["vlsn"] = row["vlsn"]
    if kind == EntryType.ERASED:
        document["all_zero"] = bool(row["all_zero"])
    return document


def _ln(row: dict[str, Any]) -> dict[str, Any]:
    document = {"db": row["db"], "key": row["key"].hex(), "value_bytes": row["value_bytes"]}
    if row["txn"]:
        document["txn"] = row["txn"]
    if row["abort_lsn"] != je_log.NULL_LSN:
        document["abort_lsn"] = show_lsn(row["abort_lsn"])
    if row["flags"] & LN_EMBEDDED:
        document["embedded"] = True
    if row["expiration"]:
        document["expiration"] = row["expiration"]
    return document


def _rare(rare: Rare) -> dict[str, Any]:
    if isinstance(rare, CheckpointEnd):
        return {"first_active": show_lsn(rare.first_active_lsn), "start": show_lsn(rare.start_lsn)}
    if isinstance(rare, RareLn) and rare.database is not None:
        root = show_lsn(rare.database.root_lsn)
        return {"name": rare.database.name, "root": root, "deleted": rare.deleted}
    if isinstance(rare, RareLn) and rare.named_id is not None:
        return {"name": rare.key.decode(errors="replace"), "id": rare.named_id, "deleted": rare.deleted}
    return {}


def summarise(directory: Path, *, verify: bool) -> Summary:
    """Read an environment and add up what is in it.

    Raises: LogRefused: the log cannot be read.
    """
    with read_log(directory, verify=verify) as log:
        last = log.files[-1]
        torn = None if last.torn_at is None else (je_log.file_name(last.number), last.torn_at)
        try:
            return _summarise(log, torn)
        except LogRefused as refused:
            return Summary(tuple(_file(each, None) for each in log.files), (), None, None, torn, refused)


def _summarise(log: Log, torn: tuple[str, int] | None) -> Summary:
    checkpoint = newest_checkpoint(log)
    facts = gather_facts(log, checkpoint)
    decision = decide(facts, Switches(), now_ms=None, expired=False)
    used = COUNTED[facts.entries.type] & (decision.reason == 0)
    files, row = [], 0
    for columns in log.files:
        files.append(_file(columns, used[row : row + columns.entries.num_rows]))
        row += columns.entries.num_rows
    databases = find_databases(log, checkpoint)
    end_file = lsn_file(checkpoint.first_active)
    index = find_vlsn_index(log, facts.entries, facts.lns, facts.outcomes, databases, end_file=end_file)
    vlsns = facts.entries.vlsn[facts.entries.vlsn > 0]
    vlsn: dict[str, Any] | None = None
    if index is not None:
        vlsn = {"lowest_in_log": int(vlsns.min()), "highest_in_log": int(vlsns.max())}
        if index.range is not None:
            vlsn |= {"first": index.range.first, "last": index.range.last, "last_sync": index.range.last_sync}
        vlsn["first_file"] = je_log.file_name(index.first_file)
    return Summary(
        files=tuple(files),
        databases=tuple(
            _database(each, dropped=each.id in databases.dropped)
            for _, each in sorted(databases.known.items())
        ),
        checkpoint={
            "lsn": show_lsn(checkpoint.lsn),
            "first_active": show_lsn(checkpoint.first_active),
            "ended_ms": checkpoint.end.ended_ms,
            "id": checkpoint.end.id,
            "invoker": checkpoint.end.invoker,
        },
        vlsn=vlsn,
        torn_at=torn,
        refused=None,
    )


def _file(columns: FileColumns, used: Mask | None) -> dict[str, Any]:
    types, counts = np.unique(numbers(columns.entries, "type"), return_counts=True)
    by_type = {EntryType(int(kind)).name: int(n) for kind, n in zip(types, counts, strict=True)}
    document = {
        "name": je_log.file_name(columns.number),
        "bytes": columns.identity.size,
        "created_ms": None if columns.header is None else columns.header.created_ms,
        "entries": columns.entries.num_rows,
        "erased": by_type.get(EntryType.ERASED.name, 0),
        "links": columns.identity.links,
        "types": by_type,
    }
    flags = numbers(columns.entries, "flags")
    header = np.where(flags & je_log.FLAGS_WITH_VLSN, je_log.HEADER_BYTES_WITH_VLSN, je_log.HEADER_BYTES)
    size = numbers(columns.entries, "item_bytes").astype(np.int64) + header
    document["erased_bytes"] = int(size[numbers(columns.entries, "type") == EntryType.ERASED].sum())
    if used is not None:
        document["used_bytes"] = int(size[used].sum())
        document["utilisation"] = round(document["used_bytes"] / max(columns.identity.size, 1), 4)
    return document


def _database(database: Database, *, dropped: bool) -> dict[str, Any]:
    return {
        "id": database.id,
        "name": database.name,
        "dropped": dropped,
        "dups": database.dups,
        "comparator": database.has_comparator,
    }

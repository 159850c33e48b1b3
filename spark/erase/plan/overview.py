"""The log as a whole, put together from surveys of its files: checkpoint, databases, trees, old nodes, and
the transactions that one file alone does not explain.

What comes out is cut by file again: the task that decides about a file gets its own part only.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np

from spark.erase.calls.request import LogExtinction
from spark.erase.errors import LogFileChanged, LogRefused
from spark.erase.native.types import Table
from spark.erase.plan.survey import Survey, TransactionEnds, among, pack, pack_rising, thin, unpack
from spark.erase.reading.columns import FileColumns
from spark.erase.reading.databases import Databases, find_databases
from spark.erase.reading.directory import LogFile, opened
from spark.erase.reading.files import Reads
from spark.erase.reading.log import (
    Checkpoint,
    Ends,
    Entries,
    Lns,
    Log,
    all_entries,
    all_lns,
    all_nodes,
    check_link,
    distinct,
    is_entry,
    newest_checkpoint,
)
from spark.erase.reading.naming import Ended, find_ended, rare_txns, settled_names
from spark.erase.reading.nodes import find_old_nodes
from spark.erase.reading.transactions import Outcomes, find_outcomes
from spark.erase.rule.barren import Newest, files_of_newest
from spark.erase.rule.deciding import LSN_MAX
from spark.erase.rule.extinct_scans import find_log_extinctions
from spark.erase.rule.tree import find_reached
from spark.formats.je.items import RESERVED_FILES_NAME, CheckpointEnd
from spark.formats.je.log import NULL_LSN, file_name, lsn_file, lsn_offset

# So many transactions are compared at a time, and every so manyth one tells where they lie.
ENDED_AT_ONCE: Final = 4_000_000
SAMPLE_STEP: Final = 4_096


@dataclass(frozen=True, slots=True)
class FilePart:
    """What the whole log says of one file; offsets ascend and are packed.

    Attributes:
        reached: offsets that trees and tail lead to.
        old_nodes, old_later: a bit for each node: old now, old once a checkpoint has ended behind it.
        listed: offsets on JE's lists; None where nobody asked.
    """

    number: int
    reached: bytes
    old_nodes: bytes
    old_later: bytes
    listed: bytes | None


@dataclass(frozen=True, slots=True)
class Overview:
    """What is known once all files were surveyed.

    Attributes:
        spread: all ends of transactions that cannot be judged within one file.
        missing_count: LSNs that slots name in files that the log has not; `missing_in`: how many in each.
        newest: files that hold what is newest in databases of JE's own, see `barren`.
        torn_at: of the last file.
        names: of the databases that extinctions may name; log_extinctions: those that the log itself has.
    """

    checkpoint: Checkpoint
    databases: Databases
    spread: TransactionEnds
    parts: tuple[FilePart, ...]
    missing_count: int
    missing_in: Mapping[int, int]
    newest: frozenset[int]
    ln_count: int
    key_bytes: int
    torn_at: int | None
    reads: tuple[int, int]
    names: Mapping[int, str]
    log_extinctions: tuple[LogExtinction, ...]


def overlook(contents: Iterable[bytes], *, directory: str) -> bytes:
    """Make an Overview, or a LogRefused, of surveys; all of them packed.

    Args:
        contents: (number, Survey or LogRefused) of each file, in any order.
        directory: of the environment, whose tree nodes are read.
    """
    found = sorted((unpack(content) for content in contents), key=lambda pair: int(pair[0]))
    try:
        surveys: list[Survey] = []
        files: list[FileColumns] = []
        for _, survey in found:
            if isinstance(survey, LogRefused):
                raise survey
            surveys.append(survey)
            files.append(survey.columns)
            check_link(files)
        return pack(_overlook(Path(directory), surveys))
    except LogRefused as refused:
        return pack(refused)


def _overlook(directory: Path, surveys: Sequence[Survey]) -> Overview:
    with opened(directory, [file_name(each.task.number) for each in surveys]) as open_files:
        for file, survey in zip(open_files, surveys, strict=True):
            _check_identity(file, survey)
        log = Log(directory, tuple(open_files), tuple(each.columns for each in surveys), Reads())
        log = _with_start(log, surveys)
        checkpoint = newest_checkpoint(log)
        entries, lns, nodes = all_entries(log), all_lns(log), all_nodes(log)
        databases = find_databases(log, checkpoint)
        first_active = checkpoint.first_active
        reached = find_reached(log, entries, lns, nodes, databases, first_active=first_active).lsns
        old = find_old_nodes(entries, nodes, first_active=first_active)
        old_later = find_old_nodes(entries, nodes, first_active=LSN_MAX)
        for file in open_files:
            file.look_again()
    ended = _ended(log, surveys)
    names = settled_names(log, ended, first_active=first_active)
    listed = _listed(surveys, first_active)
    numbers = [each.task.number for each in surveys]
    missing = reached[~np.isin(reached >> 32, np.array(numbers, dtype=np.int64)) & (reached != NULL_LSN)]
    parts, row = [], 0
    for survey in surveys:
        end = row + survey.columns.nodes.num_rows
        parts.append(
            FilePart(
                number=survey.task.number,
                reached=pack_rising(offsets_in(reached, survey.task.number)),
                old_nodes=pack(np.packbits(old[row:end])),
                old_later=pack(np.packbits(old_later[row:end])),
                listed=None if listed is None else pack_rising(offsets_in(listed, survey.task.number)),
            )
        )
        row = end
    return Overview(
        checkpoint=checkpoint,
        databases=databases,
        spread=find_spread(surveys),
        parts=tuple(parts),
        missing_count=len(missing),
        missing_in=count_by_file(missing),
        newest=_files_of_newest(surveys, databases),
        ln_count=sum(each.ln_count for each in surveys),
        key_bytes=sum(each.key_bytes for each in surveys),
        torn_at=surveys[-1].columns.torn_at,
        reads=(sum(each.reads[0] for each in surveys), sum(each.reads[1] for each in surveys)),
        names=names,
        log_extinctions=find_log_extinctions(
            log, names, ended, first_active=first_active, secondary=databases.dups
        ),
    )


def count_by_file(lsns: Table) -> dict[int, int]:
    """Return how many LSNs lie in each file."""
    numbers, counts = np.unique(lsns >> 32, return_counts=True)
    return dict(zip(numbers.tolist(), counts.tolist(), strict=True))


def _ended(log: Log, surveys: Sequence[Survey]) -> Ended:
    """How the transactions of rare LNs ended: the log of surveys has no ends of transactions."""
    ends = (each.ends() for each in surveys)
    return find_ended(((each.txn, each.lsn, each.type) for each in ends), rare_txns(log))


def _files_of_newest(surveys: Sequence[Survey], databases: Databases) -> frozenset[int]:
    if databases.named(RESERVED_FILES_NAME) is None:
        return frozenset()
    newest: Newest = {}
    for survey in surveys:
        newest |= unpack(survey.newest)
    return files_of_newest(newest)


def _check_identity(file: LogFile, survey: Survey) -> None:
    if file.identity != survey.task.identity:
        raise LogFileChanged(f"{survey.task.identity} became {file.identity}", file=file.name)


def _with_start(log: Log, surveys: Sequence[Survey]) -> Log:
    """See that the entry at which recovery would start is among those that were kept, if it is one."""
    ends = log.rare(CheckpointEnd)
    start = ends[-1][2].first_active_lsn if ends else NULL_LSN
    at = next((at for at, each in enumerate(surveys) if each.task.number == lsn_file(start)), None)
    if at is None or is_entry(log, start):
        return log
    columns, _ = surveys[at].task.read(verify=False)
    files = list(log.files)
    files[at] = thin(columns, nodes=True, offsets=[lsn_offset(start)])
    return replace(log, files=tuple(files))


def _listed(surveys: Sequence[Survey], first_active: int) -> Table | None:
    """Return what lists name that were complete before A; None where none was kept."""
    lists = [each for survey in surveys for each in survey.lists]
    if not lists:
        return None
    found = [lsns for anchor, lsns in lists if NULL_LSN < anchor < first_active]
    return distinct(np.concatenate(found)) if found else np.empty(0, dtype=np.int64)


def find_spread(surveys: Sequence[Survey]) -> TransactionEnds:
    """Find the ends of all transactions that end in two files, or in another one than an LN of theirs.

    All others are judged within their file, and come to the same.
    """
    open_ones = [each.open for each in surveys]
    txns = distinct(np.concatenate([*open_ones, *_ended_twice(surveys)]))
    found = []
    for survey in surveys:
        ends = survey.ends()
        chosen = among(ends.txn, txns)
        found.append((ends.txn[chosen], ends.lsn[chosen], ends.type[chosen]))
    txn, lsn, kind = (np.concatenate(column) for column in zip(*found, strict=True))
    order = np.argsort(lsn, kind="stable")
    return TransactionEnds(txn[order], lsn[order], kind[order])


def _ended_twice(surveys: Sequence[Survey]) -> list[Table]:
    """Find the transactions that end in more than one file, some of them at a time."""
    samples = distinct(np.concatenate([each.ends().txn[::SAMPLE_STEP] for each in surveys]))
    cuts = samples[:: max(1, ENDED_AT_ONCE // SAMPLE_STEP)].tolist()
    found = []
    for low, high in pairwise([*cuts, None]):
        pieces = []
        for survey in surveys:
            first, last = survey.ended_range
            if last < low or (high is not None and first >= high):
                continue
            txns = distinct(survey.ends().txn)
            end = len(txns) if high is None else int(np.searchsorted(txns, high))
            pieces.append(txns[int(np.searchsorted(txns, low)) : end])
        if len(pieces) > 1:
            ordered = np.sort(np.concatenate(pieces))
            found.append(ordered[1:][ordered[1:] == ordered[:-1]])
    return found


def offsets_in(lsns: Table, number: int) -> Table:
    """Return the offsets of those LSNs, ascending, that lie in a file."""
    first, end = np.searchsorted(lsns, [number << 32, (number + 1) << 32])
    offsets: Table = lsns[first:end] & 0xFFFFFFFF
    return offsets


def find_outcomes_in_file(entries: Entries, lns: Lns, ends: Ends, spread: TransactionEnds) -> Outcomes:
    """Join the LNs of one file with the ends of their transactions, wherever these are."""
    own = ~among(ends.txn, distinct(spread.txn))
    count = len(entries.lsn)
    more = replace(
        entries,
        lsn=np.concatenate([entries.lsn, spread.lsn]),
        type=np.concatenate([entries.type, spread.type.astype(entries.type.dtype)]),
        flags=np.concatenate([entries.flags, np.zeros(len(spread.lsn), dtype=entries.flags.dtype)]),
    )
    away = np.arange(count, count + len(spread.lsn), dtype=np.int64)
    all_ends = Ends(np.concatenate([ends.entry[own], away]), np.concatenate([ends.txn[own], spread.txn]))
    return find_outcomes(more, lns, all_ends)

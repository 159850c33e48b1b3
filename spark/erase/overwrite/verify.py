"""Reading an environment again after an erasure: does anything that is in use lead to an erased entry?

Nothing is written, and no lock is taken: a JE process may be at work meanwhile. A log that stands still is
read a file at a time, on Spark too; one that moves is read as LIVE reads it, by one process.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from spark.erase import entry_tables
from spark.erase.calls.calls import Costs, Refusal, RefusalCode, VerifyAnswer, VerifyCall
from spark.erase.errors import LogFileChanged, LogRefused
from spark.erase.native.types import Table
from spark.erase.plan.overview import Overview, count_by_file, offsets_in, overlook
from spark.erase.plan.plan import gather_facts
from spark.erase.plan.spread import Argument, Result, Spread, survey_packed
from spark.erase.plan.survey import FileTask, among, find_tasks, pack_rising, unpack, unpack_rising
from spark.erase.reading.columns import FileColumns
from spark.erase.reading.directory import LogFile, file_names, opened
from spark.erase.reading.files import UNIT_BYTES
from spark.erase.reading.live_reading import read_moving_log
from spark.erase.reading.log import Checkpoint, newest_checkpoint, numbers
from spark.erase.rule.tree import missing_targets
from spark.erase.verified import FileToVerify, VerifiedFile
from spark.formats.je import log as je_log
from spark.formats.je.items import LN_ABORT_KNOWN_DELETED
from spark.formats.je.log import NULL_LSN, EntryType, file_name, lsn_file, lsn_of, lsn_offset

PLACES_MAX: Final = 1_000
"""Of each kind, so many are named; all are counted."""


class InTurn:
    """Tasks done here, one after the other."""

    parallelism = 1

    def each(self, function: Callable[[Argument], Result], arguments: Sequence[Argument]) -> list[Result]:
        """Do a task for each argument."""
        return [function(argument) for argument in arguments]

    def exchange(
        self,
        function: Callable[[Argument], Iterable[tuple[int, bytes]]],
        arguments: Sequence[Argument],
        *,
        parts: int,
        gather: Callable[[Iterable[bytes]], bytes],
    ) -> list[bytes]:
        """Do a task for each argument, and one for each part."""
        made: list[list[bytes]] = [[] for _ in range(parts)]
        for argument in arguments:
            for part, content in function(argument):
                made[part].append(content)
        return [gather(contents) for contents in made]


def verify(call: VerifyCall, spread: Spread) -> VerifyAnswer:
    """Read an environment and compare it with what a cycle has proved; faults of the log are refusals."""
    try:
        return _verify_still(call, spread)
    except LogRefused as refused:
        if not _may_move(call, refused):
            return VerifyAnswer(refusal=_refusal(refused))
    try:
        return _verify_moving(call)
    except LogFileChanged as moved:
        return VerifyAnswer(refusal=replace(_refusal(moved), code=RefusalCode.LOG_MOVED))
    except LogRefused as refused:
        return VerifyAnswer(refusal=_refusal(refused))


def _refusal(refused: LogRefused) -> Refusal:
    detail = f"{refused.code}: {refused.detail}"
    return Refusal(RefusalCode.LOG_REFUSED, detail, refused.code, refused.file, refused.offset)


def _may_move(call: VerifyCall, refused: LogRefused) -> bool:
    """Tell whether a refusal may come from somebody who writes or cleans the log just now."""
    if isinstance(refused, LogFileChanged):
        return True
    try:
        names = file_names(Path(call.directory))
    except LogRefused:
        return False
    return refused.file in names[-2:] or (refused.file is not None and refused.file not in names)


@dataclass(frozen=True, slots=True)
class _Terms:
    """What is asked of every file.

    Attributes:
        dups: databases whose abort versions JE never fetches.
    """

    first_active: int
    dups: frozenset[int]


@dataclass(frozen=True, slots=True)
class _FileTask:
    """A file that stands still; `reached` are offsets, packed."""

    file: FileTask
    reached: bytes
    sha256_of: int | None
    planned: bytes
    in_use: bytes = b""

    @classmethod
    def of(cls, task: FileTask, reached: bytes, asked: FileToVerify | None) -> "_FileTask":
        """Make the task of a file; `asked` is None where the cycle has nothing to say of it."""
        if asked is None:
            return cls(task, reached, None, b"")
        sha256_of = asked.size if asked.with_hash else None
        return cls(task, reached, sha256_of, asked.entries, asked.in_use)


@dataclass(frozen=True, slots=True)
class _Found:
    """What was found in one file; `fetched` are LSNs, packed."""

    file: VerifiedFile
    reached: Table
    unerased: Table
    fetched: bytes
    costs: Costs


def _verify_still(call: VerifyCall, spread: Spread) -> VerifyAnswer:
    tasks = find_tasks(Path(call.directory))
    [content] = spread.exchange(
        partial(survey_packed, with_lists=False),
        tasks,
        parts=1,
        gather=partial(overlook, directory=call.directory),
    )
    overview = unpack(content)
    if isinstance(overview, LogRefused):
        raise overview
    assert isinstance(overview, Overview), type(overview)
    terms = _Terms(overview.checkpoint.first_active, overview.databases.dups)
    asked = {each.number: each for each in call.files}
    arguments = []
    for task, part in zip(tasks, overview.parts, strict=True):
        arguments.append(_FileTask.of(task, part.reached, asked.get(task.number)))
    found = []
    for each in spread.each(partial(_verify_file, terms=terms), arguments):
        if isinstance(each, LogRefused):
            raise each
        found.append(each)
    with opened(Path(call.directory), [file_name(task.number) for task in tasks]) as files:
        still = [replace(file, identity=task.identity) for file, task in zip(files, tasks, strict=True)]
        answer = _answer(overview.checkpoint, found, still, missing_in=overview.missing_in)
        for file in still:
            file.look_again()
    costs = Costs(reads=overview.reads[0], read_bytes=overview.reads[1])
    return replace(answer, costs=answer.costs + costs)


def _verify_file(task: _FileTask, *, terms: _Terms) -> _Found | LogRefused:
    """In a task of its own: what comes out is small. A refusal is a value."""
    try:
        columns, reads = task.file.read(verify=False)
        with opened(Path(task.file.directory), [file_name(task.file.number)]) as [file]:
            found = _look(columns, file, unpack_rising(task.reached), task, terms)
    except LogRefused as refused:
        return refused
    return replace(found, costs=found.costs + Costs(reads=reads.count, read_bytes=reads.byte_count))


def _verify_moving(call: VerifyCall) -> VerifyAnswer:
    with read_moving_log(Path(call.directory)) as log:
        checkpoint = newest_checkpoint(log)
        facts = gather_facts(log, checkpoint)
        terms = _Terms(checkpoint.first_active, facts.databases.dups)
        asked = {each.number: each for each in call.files}
        found = []
        for columns, file in zip(log.files, log.open_files, strict=True):
            here = FileTask(call.directory, columns.number, columns.identity, is_last=False)
            task = _FileTask.of(here, b"", asked.get(columns.number))
            reached = offsets_in(facts.reached.lsns, columns.number)
            found.append(_look(columns, file, reached, task, terms))
        missing = count_by_file(missing_targets(facts.reached, facts.entries))
        answer = _answer(checkpoint, found, log.open_files, missing_in=missing)
        for file in log.open_files:
            file.look_again()
    costs = Costs(reads=log.reads.count, read_bytes=log.reads.byte_count)
    return replace(answer, costs=answer.costs + costs, moved=True)


def _look(columns: FileColumns, file: LogFile, reached: Table, task: _FileTask, terms: _Terms) -> _Found:
    entries = columns.entries
    types, offsets = numbers(entries, "type"), numbers(entries, "offset").astype(np.int64)
    is_erased = types == EntryType.ERASED
    erased = offsets[is_erased]
    whole = offsets[is_erased & (numbers(entries, "all_zero") != 0)]
    unerased = np.empty(0, dtype=np.int64)
    if task.planned:
        planned = entry_tables.unpack(task.planned)["offset"].to_numpy().astype(np.int64)
        unerased = planned[~among(planned, whole)]
    sha256, costs = ("", Costs()) if task.sha256_of is None else _hash(file, task.sha256_of)
    item_bytes = numbers(entries, "item_bytes")[is_erased]
    led_to = erased[among(erased, reached)]
    # Slots may lead to these: JE asks its own filter before it misses them.
    let_go = among(led_to, np.unique(np.frombuffer(task.in_use, dtype="<u4").astype(np.int64)))
    return _Found(
        file=VerifiedFile(
            number=columns.number,
            size=columns.identity.size,
            mtime_ns=columns.identity.mtime_ns,
            sha256=sha256,
            erased_count=len(erased),
            erased_bytes=int(item_bytes.sum(dtype=np.int64)),
            extinct_in_use=int(let_go.sum()),
        ),
        reached=led_to[~let_go],
        unerased=unerased,
        fetched=pack_rising(_fetched(columns, offsets, terms)),
        costs=costs,
    )


def _fetched(columns: FileColumns, offsets: Table, terms: _Terms) -> Table:
    """Return the versions that LNs in the tail would have JE fetch if their transactions were undone.

    What was deleted, what the LN itself brings along, and what is in a database with duplicates is not
    fetched.
    """
    lns = columns.lns
    lsn = offsets[numbers(lns, "entry")] + lsn_of(columns.number, 0)
    abort_lsn = numbers(lns, "abort_lsn")
    chosen = (lsn >= terms.first_active) & (abort_lsn != NULL_LSN)
    chosen &= (numbers(lns, "flags") & LN_ABORT_KNOWN_DELETED) == 0
    chosen &= numbers(lns, "abort_data_bytes") < 0
    chosen &= ~np.isin(numbers(lns, "db"), np.array(sorted(terms.dups), dtype=np.int64))
    found: Table = np.unique(abort_lsn[chosen])
    return found


def _hash(file: LogFile, size: int) -> tuple[str, Costs]:
    """Hash the first bytes of a file; all of it where it is shorter."""
    digest, done, reads = hashlib.sha256(), 0, 0
    unit = bytearray(UNIT_BYTES)
    while done < size:
        view = memoryview(unit)[: min(UNIT_BYTES, size - done)]
        count = file.read_into(view, done)
        digest.update(view[:count])
        done += count
        reads += 1
        if count < len(view):
            break
    return digest.hexdigest(), Costs(reads=reads, read_bytes=done)


def _answer(
    checkpoint: Checkpoint,
    found: Sequence[_Found],
    files: Sequence[LogFile],
    *,
    missing_in: Mapping[int, int],
) -> VerifyAnswer:
    by_number = {file.number: file for file in files}
    reached = [lsn_of(each.file.number, int(offset)) for each in found for offset in each.reached]
    for each in found:
        reached += _erased_among(unpack_rising(each.fetched), by_number)
    unerased = [lsn_of(each.file.number, int(offset)) for each in found for offset in each.unerased]
    reached = sorted(set(reached))
    return VerifyAnswer(
        files=tuple(each.file for each in found),
        first_active=checkpoint.first_active,
        checkpoint_lsn=checkpoint.lsn,
        reached=tuple(reached[:PLACES_MAX]),
        reached_count=len(reached),
        unerased=tuple(unerased[:PLACES_MAX]),
        unerased_count=len(unerased),
        missing_count=sum(missing_in.values()),
        missing_in=missing_in,
        costs=sum((each.costs for each in found), Costs()),
    )


def _erased_among(lsns: Table, files: Mapping[int, LogFile]) -> list[int]:
    """Return those LSNs at which the log has an erased entry; of the few that a tail names, one by one."""
    found = []
    for lsn in lsns.tolist():
        file = files.get(lsn_file(lsn))
        at = lsn_offset(lsn) + je_log.TYPE_AT
        if file is not None and at < file.identity.size and file.read(at, 1)[0] == EntryType.ERASED:
            found.append(lsn)
    return found

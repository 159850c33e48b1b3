"""The plan with a task for each file: three looks at every file, and one exchange of rows between them.

1. Survey: a file is read with all checks; one task puts the surveys together (`overview`).
2. Window: a file's LNs go to parts by the hash of their keys; each part compares versions (`window`).
3. Verdict: each file is decided by the functions of the inline plan (`deciding`, `plan`), from its own
   entries and what the whole log says of it (`verdict`).

Reading thrice costs less than keeping: whoever reads keeps one file at a time. No process holds the keys, or
the entries, of more than a file or a part; the one that puts the surveys together holds the tree nodes,
without their slots, and the LSNs that the trees reach.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Final, Protocol, TypeVar

import numpy as np

from spark.erase.calls.calls import Costs, PlanAnswer
from spark.erase.calls.request import PlanRequest
from spark.erase.errors import LogRefused
from spark.erase.native.types import Table
from spark.erase.plan.overview import Overview, offsets_in, overlook
from spark.erase.plan.plan import reserved_files
from spark.erase.plan.plan_answer import VETOED_MAX, vlsn_document
from spark.erase.plan.survey import FileTask, find_tasks, pack, survey_file, unpack
from spark.erase.plan.verdict import Verdict, VerdictTask, VerdictTerms, decide_file
from spark.erase.plan.window import Notes, WindowPart, WindowTerms, look_through, part_of_file
from spark.erase.reading.databases import Databases
from spark.erase.reading.directory import opened
from spark.erase.reading.files import Reads
from spark.erase.reading.log import Log, all_entries, all_lns, distinct
from spark.erase.reading.transactions import Outcomes
from spark.erase.rule.vlsn import VlsnIndex, find_vlsn_index
from spark.formats.je.items import RESERVED_FILES_NAME, VLSN_INDEX_NAME
from spark.formats.je.log import file_name, lsn_file

Argument = TypeVar("Argument")
Result = TypeVar("Result")

# What one part of the window may hold; the memory of its task is about four times that.
PART_BYTES: Final = 48 * 1024 * 1024
# Of a row beside its key.
ROW_BYTES: Final = 41
PARTS_MAX: Final = 4_096


class Spread(Protocol):
    """Runs tasks, some at a time, in processes that see the directory."""

    @property
    def parallelism(self) -> int:
        """How many tasks run at a time."""
        ...

    def each(self, function: Callable[[Argument], Result], arguments: Sequence[Argument]) -> list[Result]:
        """Run a task for each argument; results in their order."""
        ...

    def exchange(
        self,
        function: Callable[[Argument], Iterable[tuple[int, bytes]]],
        arguments: Sequence[Argument],
        *,
        parts: int,
        gather: Callable[[Iterable[bytes]], bytes],
    ) -> list[bytes]:
        """Run a task for each argument, and one for each part with all that was made for it."""
        ...


def plan_spread(directory: Path, request: PlanRequest, spread: Spread) -> PlanAnswer:
    """Plan the erasure of an environment; the same plan as `plan.plan_erasure` makes.

    Raises: LogRefused: naming file and offset.
    """
    tasks = find_tasks(directory)
    overview = _overlook(tasks, request, spread)
    found = _compare(tasks, overview, spread)
    terms = _terms(directory, tasks, request, overview, found)
    verdicts = _decide(tasks, overview, found, terms, spread)
    with opened(directory, [file_name(task.number) for task in tasks]) as files:
        for file, task in zip(files, tasks, strict=True):
            replace(file, identity=task.identity).look_again()
    return _answer(overview, terms, verdicts, found)


def survey_packed(task: FileTask, *, with_lists: bool) -> list[tuple[int, bytes]]:
    """Survey a file for the one part that puts all together."""
    return [(0, pack((task.number, survey_file(task, with_lists=with_lists))))]


def _overlook(tasks: Sequence[FileTask], request: PlanRequest, spread: Spread) -> Overview:
    switches = request.switches
    with_lists = switches.known_obsolete_entries and not switches.erase_all_obsolete_entries
    [content] = spread.exchange(
        partial(survey_packed, with_lists=with_lists),
        tasks,
        parts=1,
        gather=partial(overlook, directory=tasks[0].directory),
    )
    overview = unpack(content)
    if isinstance(overview, LogRefused):
        raise overview
    assert isinstance(overview, Overview), type(overview)
    return overview


@dataclass(frozen=True, slots=True)
class _Found:
    """What the window has found: by file, and notes in the order of files."""

    parts: tuple[WindowPart, ...]
    notes: tuple[Notes, ...]
    abort_lsns: Table

    @property
    def reads(self) -> Costs:
        """What reading has cost."""
        return Costs(
            reads=sum(each.reads[0] for each in self.notes),
            read_bytes=sum(each.reads[1] for each in self.notes),
        )


def _compare(tasks: Sequence[FileTask], overview: Overview, spread: Spread) -> _Found:
    wanted = overview.ln_count * ROW_BYTES + overview.key_bytes
    databases = overview.databases
    terms = WindowTerms(
        first_active=overview.checkpoint.first_active,
        spread=overview.spread,
        reserved_db=databases.named(RESERVED_FILES_NAME),
        vlsn_db=databases.named(VLSN_INDEX_NAME),
        parts=min(PARTS_MAX, max(spread.parallelism, wanted // PART_BYTES + 1)),
    )
    contents = spread.exchange(
        partial(part_of_file, terms=terms), tasks, parts=terms.parts, gather=look_through
    )
    parts: list[WindowPart] = [unpack(content) for content in contents]
    notes = [note for part in parts for note in part.notes]
    for note in notes:
        if isinstance(note, LogRefused):
            raise note
    told = sorted((note for note in notes if isinstance(note, Notes)), key=lambda note: note.columns.number)
    assert [note.columns.number for note in told] == [task.number for task in tasks]
    abort_lsns = distinct(np.concatenate([note.abort_lsns for note in told]))
    return _Found(tuple(parts), tuple(told), abort_lsns)


def _terms(
    directory: Path, tasks: Sequence[FileTask], request: PlanRequest, overview: Overview, found: _Found
) -> VerdictTerms:
    """Ask the LNs of JE's own databases what files they name; these are few."""
    first_active = overview.checkpoint.first_active
    with opened(directory, [file_name(task.number) for task in tasks]) as open_files:
        columns = tuple(note.columns for note in found.notes)
        log = Log(directory, tuple(open_files), columns, Reads())
        entries, lns = all_entries(log), all_lns(log)
        outcomes = Outcomes(
            *(
                np.concatenate([getattr(note.outcomes, each.name) for note in found.notes])
                for each in fields(Outcomes)
            )
        )
        vlsn_index: VlsnIndex | None = find_vlsn_index(
            log, entries, lns, outcomes, overview.databases, end_file=lsn_file(first_active)
        )
    return VerdictTerms(
        request=request,
        first_active=first_active,
        databases=_without_trees(overview.databases),
        spread=overview.spread,
        vlsn_index=vlsn_index,
        reserved=reserved_files(lns, outcomes, overview.databases),
        newest=overview.newest,
        last=tasks[-1].number,
        names=overview.names,
        log_extinctions=overview.log_extinctions,
    )


def _without_trees(databases: Databases) -> Databases:
    """Leave out what nobody asks for any more once the trees were walked."""
    return replace(databases, roots={}, map_lns={})


def _decide(
    tasks: Sequence[FileTask], overview: Overview, found: _Found, terms: VerdictTerms, spread: Spread
) -> list[Verdict]:
    arguments = []
    for task, part in zip(tasks, overview.parts, strict=True):
        pairs = [each.found[task.number] for each in found.parts if task.number in each.found]
        arguments.append(
            VerdictTask(
                file=task,
                part=part,
                superseded=tuple(superseded for superseded, _, _ in pairs),
                collided=tuple(collided for _, collided, _ in pairs),
                later=tuple(later for _, _, later in pairs),
                abort_offsets=offsets_in(found.abort_lsns, task.number),
            )
        )
    verdicts = []
    for verdict in spread.each(partial(decide_file, terms=terms), arguments):
        if isinstance(verdict, LogRefused):
            raise verdict
        verdicts.append(verdict)
    return verdicts


def _answer(
    overview: Overview, terms: VerdictTerms, verdicts: Sequence[Verdict], found: _Found
) -> PlanAnswer:
    vetoed = [each for verdict in verdicts for each in verdict.vetoed]
    last = verdicts[-1].planned.number
    return PlanAnswer(
        files=tuple(each.planned for each in verdicts),
        first_active=terms.first_active,
        checkpoint_lsn=overview.checkpoint.lsn,
        vetoed=tuple(vetoed[:VETOED_MAX]),
        vetoed_count=sum(each.vetoed_count for each in verdicts),
        missing_count=overview.missing_count + sum(each.missing_count for each in verdicts),
        vlsn=vlsn_document(terms.vlsn_index),
        torn_at=None if overview.torn_at is None else (file_name(last), overview.torn_at),
        log_extinctions=overview.log_extinctions,
        costs=sum(
            (each.costs for each in verdicts),
            Costs(reads=overview.reads[0], read_bytes=overview.reads[1]) + found.reads,
        ),
    )

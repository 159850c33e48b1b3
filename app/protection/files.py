"""Names and numbers of log files, and sets of them as a few ranges."""

from collections.abc import Iterable, Sequence
from typing import Annotated

from pydantic import StringConstraints

from spark.formats.je import log as je_log

LogFileName = Annotated[str, StringConstraints(pattern=r"^[0-7][0-9a-f]{7}\.jdb$")]
"""A log file as JE names it."""
Range = tuple[int, int | None]
"""First and last number, both inclusive; None: without an end."""


def name_of(number: int) -> str:
    """`00000003.jdb`."""
    return f"{number:08x}.jdb"


def number_of(name: str) -> int:
    """The number in a file's name."""
    return je_log.file_number(name)


def covers(ranges: Iterable[Range], number: int) -> bool:
    """Whether a file lies in one of the ranges."""
    return any(first <= number and (last is None or number <= last) for first, last in ranges)


def covering(numbers: Sequence[int], *, ranges_max: int) -> list[Range]:
    """The files as few ranges; where they would be more than allowed, the narrowest gaps are covered too.

    More may be covered than was asked for, never less.
    """
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    if len(runs) > ranges_max:
        by_gap = sorted(range(1, len(runs)), key=lambda at: runs[at][0] - runs[at - 1][1], reverse=True)
        kept = {0, *by_gap[: ranges_max - 1]}
        merged: list[list[int]] = []
        for at, (first, last) in enumerate(runs):
            if at in kept:
                merged.append([first, last])
            else:
                merged[-1][1] = last
        runs = merged
    return [(first, last) for first, last in runs]


def merged(ranges: Iterable[Range]) -> list[Range]:
    """Ranges in order, those that touch or overlap as one."""
    done: list[Range] = []
    for first, last in sorted(ranges, key=lambda each: each[0]):
        if done and (done[-1][1] is None or first <= done[-1][1] + 1):
            before = done[-1]
            end = None if before[1] is None or last is None else max(before[1], last)
            done[-1] = (before[0], end)
        else:
            done.append((first, last))
    return done


def without(ranges: Iterable[Range], numbers: Iterable[int], *, ranges_max: int) -> list[Range]:
    """The ranges without single files; where they would become more than allowed, files at an edge only."""
    left = list(ranges)
    for number in sorted(set(numbers)):
        cut: list[Range] = []
        for first, last in left:
            if number < first or (last is not None and number > last):
                cut.append((first, last))
                continue
            if first < number:
                cut.append((first, number - 1))
            if last is None or number < last:
                cut.append((number + 1, last))
        if len(cut) <= ranges_max:
            left = cut
    return left

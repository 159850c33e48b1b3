"""Jobs as a table: one line each, as many columns as the terminal is wide."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from lethe_client import Job
from rich.table import Table
from rich.text import Text

from app.cli.shell.output import cell
from app.cli.shell.progress import describe

# From these widths on there is room for one column more.
WITH_PROGRESS: Final = 130
WITH_REASON: Final = 170
_LEAST: Final = {"reason": 8, "progress": 16, "kind": 8, "store": 8}
"""Columns that may be cut, in this order, and what is left of them."""
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))


def removed(job: Job) -> int | None:
    """Rows that are gone: the result's where there is one, else what the progress counts."""
    counts = (job.result or {}).get("removed")
    if isinstance(counts, dict) and counts:
        return sum(int(count) for count in counts.values())
    return job.progress.removed


def age(job: Job, *, now: datetime) -> str:
    """How long ago the job was made, in its largest unit."""
    if job.created_at is None:
        return "-"
    seconds = max(0, int((now - job.created_at) / timedelta(seconds=1)))
    size, unit = next(((size, unit) for size, unit in _UNITS if seconds >= size), _UNITS[-1])
    return f"{seconds // size} {unit}"


def job_table(jobs: Sequence[Job], *, width: int, now: datetime | None = None) -> Table:
    """A line for each job; what is too long for the terminal ends in an ellipsis."""
    now = now or datetime.now(UTC)
    columns = _columns(width)
    rows = [_shown(job, now) for job in jobs]
    widths = _widths(columns, rows, width)
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for name in columns:
        table.add_column(name, justify="right" if name in ("removed", "age") else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(_cut(row[name], widths[name])) for name in columns))
    return table


def _widths(columns: Sequence[str], rows: Sequence[Mapping[str, str]], width: int) -> dict[str, int]:
    """What each column needs, with the long ones cut to what the terminal has."""
    widths = {name: max([len(name), *(len(row[name]) for row in rows)]) for name in columns}
    excess = sum(widths.values()) + len(columns) - width
    for name, least in _LEAST.items():
        spared = max(0, min(excess, widths.get(name, 0) - least))
        if spared:
            widths[name] -= spared
            excess -= spared
    return widths


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "\u2026"


def _columns(width: int) -> list[str]:
    wide = ["progress"] * (width >= WITH_PROGRESS) + ["reason"] * (width >= WITH_REASON)
    return ["job", "state", "kind", "store", "removed", "age", *wide]


def _shown(job: Job, now: datetime) -> dict[str, str]:
    return {
        "job": job.id,
        "state": job.state,
        "kind": job.kind,
        "store": cell(job.store),
        "removed": cell(removed(job)),
        "age": age(job, now=now),
        "progress": cell(describe(job).removeprefix(job.state).strip()),
        "reason": cell(job.reason),
    }

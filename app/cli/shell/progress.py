"""Progress of a job on stderr: a bar on a terminal, plain lines anywhere else."""

import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Protocol, Self

from lethe_client import Job
from lethe_client.results import WaitingOn
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.text import Text

from app.cli.shell.output import cell, on_stderr

# A log needs a line when something changes, and a sign of life; not one per poll.
LINE_EVERY_S: Final = 10.0
LINE_EVERY_FRACTION: Final = 0.1
# A job that waits looks again and again: RUNNING for a moment, and WAITING for the same as before.
LOOKING: Final = frozenset({"RUNNING", "WAITING"})
LOOKS_REMEMBERED: Final = 4
BAR_WIDTH: Final = 16
NAME_WIDTH: Final = 16


def throttle_text(job: Job) -> str:
    """The pace in effect, such as `rows_per_s=5,000`; empty where there is none."""
    text = cell(job.throttle.effective)
    return "" if text == "-" else f"throttle {text}"


def describe(job: Job) -> str:
    """One line: state, done of total, rate, end, throttle, what it waits for."""
    progress = job.progress
    parts = []
    if progress.total:
        about = "about " if progress.total_is_estimate else ""
        percent = f"{100 * (progress.fraction or 0.0):.0f} %"
        parts.append(f"{percent}, {progress.done:,} of {about}{progress.total:,} {progress.unit}".rstrip())
    elif progress.done:
        parts.append(f"{progress.done:,} {progress.unit}".rstrip())
    if progress.removed is not None:
        parts.append(f"{progress.removed:,} removed")
    if job.state == "RUNNING" and progress.rate_per_s:
        parts.append(f"{progress.rate_per_s:,.0f}/s")
    if job.state == "RUNNING" and progress.eta:
        parts.append(f"until {cell(progress.eta)}")
    parts += [throttle_text(job)] if throttle_text(job) else []
    parts += [f"waits for {each.kind} {each.ref or ''}".rstrip() for each in _held_by(job)]
    return f"{job.state} {', '.join(parts)}".rstrip()


def _held_by(job: Job) -> list[WaitingOn]:
    """What it waits for, but a runner, which the state says."""
    return [each for each in job.waiting_on if each.kind != job.state]


def brief(job: Job) -> str:
    """What fits beside a bar on 80 columns."""
    progress = job.progress
    if held := _held_by(job):
        return f"{job.state} for {held[0].kind}"
    if not progress.total:
        return job.state
    rate = f", {progress.rate_per_s:,.0f}/s" if job.state == "RUNNING" and progress.rate_per_s else ""
    return f"{job.state} {progress.done:,}/{progress.total:,} {progress.unit}{rate}"


class Display(Protocol):
    """Shows a job again and again."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def show(self, job: Job) -> None: ...


class PlainLines:
    """A line when something new is so, a tenth is done, or it has been quiet for a while."""

    def __init__(self, console: Console, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._monotonic = monotonic
        self._last: tuple[str, float, float] | None = None
        self._looks: tuple[tuple[str, ...], ...] = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: Any) -> None:
        return None

    def show(self, job: Job) -> None:
        now, fraction = self._monotonic(), job.progress.fraction or 0.0
        if self._last is not None:
            state, shown, at = self._last
            moved = fraction - shown >= LINE_EVERY_FRACTION or now - at >= LINE_EVERY_S
            if not moved and self._is_known(job, state):
                return
        self._last = (job.state, fraction, now)
        looks = (*self._looks, _look(job))[-LOOKS_REMEMBERED:]
        self._looks = looks if job.state in LOOKING else ()
        self._console.print(Text(f"{job.id} {describe(job)}"))

    def _is_known(self, job: Job, state: str) -> bool:
        """Whether the last line, or one of the last with no other state since, has said as much."""
        return _look(job) in self._looks if job.state in LOOKING else job.state == state


def _look(job: Job) -> tuple[str, ...]:
    """What makes a line of a waiting job a new one: whom it waits for; not since when."""
    return (job.state, *(each.kind for each in job.waiting_on))


class Bar:
    """One live line with a bar."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.fields[name]}", markup=False),
            BarColumn(bar_width=BAR_WIDTH),
            TaskProgressColumn(),
            TextColumn("{task.description}", markup=False),
            console=console,
        )
        self._task = self._progress.add_task("", total=None, name="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_exception: Any) -> None:
        self._progress.stop()

    def show(self, job: Job) -> None:
        total = job.progress.total
        # Without a total the bar would go on pulsing after the end.
        done = job.progress.done if total else int(job.ended)
        self._progress.update(
            self._task,
            total=total or (1 if job.ended else None),
            completed=done,
            description=brief(job),
            name=(job.store or job.kind)[:NAME_WIDTH],
            refresh=True,
        )


def display() -> Display:
    """Choose by what stderr is."""
    console = on_stderr()
    return Bar(console) if console.is_terminal else PlainLines(console)

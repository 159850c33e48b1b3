"""Results go to stdout, everything else to stderr; `--json` makes stdout one document and nothing else."""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from app.cli.shell.exits import Complaint, ExitCode
from app.cli.shell.streams import Words

# A pipe has no width: nothing must be cut or wrapped there.
PIPE_WIDTH: Final = 1_000
# Numbers under such names say which one, not how many: they have no groups of digits.
ID_WORDS: Final = frozenset(
    [
        "batch",
        "bound",
        "bounds",
        "epoch",
        "event",
        "floor",
        "hi",
        "id",
        "inode",
        "lo",
        "node",
        "origin",
        "pid",
        "port",
        "rid",
        "seq",
        "seqno",
        "server",
        "sync",
        "txid",
        "version",
        "vlsn",
        "xid",
        "xmin",
    ]
)


SHOWN: Final = (
    {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"}
    | {0x7F: 0x2421}
    | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)
)
"""Signs for characters that steer a terminal: ESC is ␛."""


class Screen(Console):
    """A console on which texts of others steer nothing: reasons of jobs, names in databases, peers."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=segment.text.translate(SHOWN))


def on_stdout(*, endless: bool = False, when_lost: str = "") -> Console:
    """The console for results; made anew each time, since tests and pipes exchange the stream."""
    return _console(Words(sys.stdout, endless=endless, when_lost=when_lost))


def on_stderr() -> Console:
    """The console for everything that is no result."""
    return _console(Words(sys.stderr, beside=True))


def _console(stream: Any) -> Console:
    width = None if stream.isatty() else PIPE_WIDTH
    return Screen(file=stream, width=width, markup=False, highlight=False, emoji=False, soft_wrap=not width)


def cell(value: Any) -> str:
    """Write one value for people: grouped digits, UTC to the second, a dash for nothing.

    Numbers in a list are ids, samples and the like, as are those whose name says so: their digits stand
    together, so that they can be copied.
    """
    if value is None or value == "" or value == () or value == []:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if value.is_integer() else f"{value:,.2f}"
    if isinstance(value, timedelta):
        return _clock(value)
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    if isinstance(value, Mapping):
        known = [f"{name}={named_cell(str(name), each)}" for name, each in value.items() if each is not None]
        return ", ".join(known) or "-"
    if isinstance(value, list | tuple):
        return ", ".join(_id_cell(each) for each in value)
    return str(value)


def named_cell(name: str, value: Any) -> str:
    """Write a value under its name: `batch_id`, `oldest batch` and the like are ids, no amounts."""
    words = name.lower().replace("_", " ").split()
    if not words or words[-1] not in ID_WORDS:
        return cell(value)
    if isinstance(value, Mapping):
        return cell({inner: _id_cell(each) for inner, each in value.items() if each is not None})
    return _id_cell(value)


def _id_cell(value: Any) -> str:
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return str(value) if is_whole else cell(value)


def _clock(value: timedelta) -> str:
    days, rest_s = divmod(value.total_seconds(), 86_400)
    if not days and rest_s < 60:
        return f"{rest_s:.1f} s"
    hours, minutes, seconds = int(rest_s // 3600), int(rest_s % 3600 // 60), int(rest_s % 60)
    return f"{int(days)} d " * bool(days) + f"{hours}:{minutes:02}:{seconds:02}"


def grid(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, terminal: bool = True) -> Table:
    """Make a table whose cells are plain text; numbers stand to the right."""
    table = Table(box=SIMPLE_HEAD if terminal else None, pad_edge=False)
    body = [list(row) for row in rows]
    for index, column in enumerate(columns):
        numeric = any(
            isinstance(row[index], int | float) and not isinstance(row[index], bool) for row in body
        )
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in body:
        table.add_row(*(Text(named_cell(name, value)) for name, value in zip(columns, row, strict=True)))
    return table


def _write(value: Any, *, indent: int | None = None, endless: bool = False, when_lost: str = "") -> None:
    """Write JSON to stdout; as ASCII where the encoding there is none of Unicode's."""
    is_ascii = not (sys.stdout.encoding or "utf-8").lower().startswith("utf")
    words = Words(sys.stdout, endless=endless, when_lost=when_lost)
    words.write(json.dumps(value, indent=indent, ensure_ascii=is_ascii, default=str) + "\n")
    words.flush()


@dataclass(frozen=True, slots=True)
class Output:
    """Where a command's words go; `json` decides."""

    json: bool

    def document(self, value: Any) -> None:
        """Print the one document of `--json`; nothing otherwise."""
        if self.json:
            _write(value, indent=2)

    def line(self, value: Any) -> None:
        """Print one JSON line of a watch under `--json`; nothing otherwise."""
        if self.json:
            _write(value, endless=True)

    def say(self, text: str, *, endless: bool = False) -> None:
        """Print a result for people; `endless`: one of a watch, which ends when its reader has gone."""
        if not self.json:
            on_stdout(endless=endless).print(Text(text))

    def secret(self, text: str, document: Any, *, when_lost: str) -> None:
        """Print what is shown this once: the text, or the document of `--json`.

        Args:
            when_lost: what to do where nobody got it.
        Raises: OutputLost: it could not be written, or its reader has gone.
        """
        if self.json:
            _write(document, indent=2, when_lost=when_lost)
        else:
            on_stdout(when_lost=when_lost).print(Text(text))

    def table(
        self, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str | None = None
    ) -> None:
        """Print a table for people."""
        if not self.json:
            console = on_stdout()
            if title:
                console.print(Text(title))
            console.print(grid(columns, rows, terminal=console.is_terminal))

    def facts(self, facts: Mapping[str, Any], *, title: str | None = None) -> None:
        """Print names and values for people, leaving out what has none."""
        shown = [(name, named_cell(name, value)) for name, value in facts.items()]
        known = [(name, value) for name, value in shown if value != "-"]
        if not self.json and known:
            width = max(len(name) for name, _ in known)
            console = on_stdout()
            if title:
                console.print(Text(title))
            for name, value in known:
                console.print(Text(f"{name.ljust(width)}  {value}"))

    def note(self, text: str) -> None:
        """Say something beside the result, on stderr."""
        on_stderr().print(Text(text))

    def complain(self, complaint: Complaint) -> int:
        """Show an error, once for people on stderr and under `--json` as a problem on stdout."""
        self.note(f"lethe: {complaint.code}: {complaint.detail}")
        if complaint.advice:
            self.note(f"  {complaint.advice}")
        if complaint.document is not None or complaint.exit_code is not ExitCode.USAGE:
            self.note(f"  What it means: lethe explain {complaint.code}")
        self.document(complaint.problem())
        return int(complaint.exit_code)

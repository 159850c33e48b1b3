"""`lethe je`: look into the log of a JE environment on this machine; no service is asked, no log written."""

import json as json_text
import os
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from app.cli.shell.exits import Complaint, ExitCode
from app.cli.shell.output import SHOWN, Output
from app.cli.shell.streams import Words
from spark.erase.errors import (
    EnvironmentUnreadable,
    LogFileChanged,
    LogRefused,
    LogVersionUnsupported,
    NotAnEnvironment,
)
from spark.erase.helper.helper import source
from spark.extras import JE

if TYPE_CHECKING:
    from spark.erase.plan.describe import Summary

app = typer.Typer(
    name="je",
    no_args_is_help=True,
    add_completion=False,
    help="Look into the log of a Berkeley DB JE environment on this machine.",
)

Directory = Annotated[
    Path,
    typer.Argument(
        metavar="DIR", resolve_path=True, help="The environment's directory, where its *.jdb files are."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
Verify = Annotated[bool, typer.Option("--verify/--no-verify", help="Compare the checksum of every entry.")]

KEY_SHOWN_BYTES: Final = 24
HELPER_BEGINS: Final = b"// LetheJe:"
FILE_FORMS: Final = re.compile(r"(?P<name>[0-9a-f]{8})\.jdb|0x(?P<hex>[0-9a-f]{1,8})|(?P<number>[0-9]{1,10})")

ADVICE: Final[dict[type[LogRefused], str]] = {
    NotAnEnvironment: "Give the directory that JE was opened with: it holds files such as 00000000.jdb.",
    EnvironmentUnreadable: "Run it as the user that owns the environment.",
    LogVersionUnsupported: "Only logs that JE 25 writes (version 26) are read.",
    LogFileChanged: "A JE process seems to be at work there; try again, or when it is closed.",
}


class NotInstalled(Exception):
    """The extra `je` is not installed here."""


def _reader() -> ModuleType:
    """What reads a log; it wants a compiler, which an installation may lack.

    Raises: NotInstalled.
    """
    if not JE.is_installed:
        raise NotInstalled
    from spark.erase.plan import describe

    return describe


@app.command("dump")
def dump(
    directory: Directory,
    *,
    file: Annotated[
        str | None, typer.Option("--file", metavar="N", help="Only this file: 2, 0x2 or 00000002.jdb.")
    ] = None,
    verify: Verify = True,
    json: Json = False,
) -> int:
    """Print every entry, one a line; with --json one JSON document a line.

    Example: lethe je dump /var/lib/ledger/je
    """
    number = _file_number(file)
    write = _write_json if json else _write_text

    def run() -> int:
        for entry in _reader().each_entry(directory, number=number, verify=verify):
            write(entry)
        return ExitCode.OK

    return _complaining(run, Output(json=json))


@app.command("stat")
def stat(directory: Directory, *, verify: Verify = True, json: Json = False) -> int:
    """Print types of entries, databases, the last checkpoint, the VLSN range, and how much is used.

    Example: lethe je stat /var/lib/ledger/je
    """
    out = Output(json=json)

    def run() -> int:
        summary = _reader().summarise(directory, verify=verify)
        out.document(_document(summary))
        _show(summary, out)
        return ExitCode.OK

    return _complaining(run, out)


@app.command("helper")
def helper(
    *,
    write: Annotated[
        Path | None,
        typer.Option("--write", metavar="FILE", resolve_path=True, help="Write it there; without, print it."),
    ] = None,
    json: Json = False,
) -> int:
    """Give the Java source that truncates a VLSN index, or makes a checkpoint, with the application's own JE.

    Nothing is built: java -cp JARS LetheJe.java DIR [truncate|checkpoint|show|verify] [--keep N]

    Example: lethe je helper --write LetheJe.java
    """
    out = Output(json=json)
    text = source()
    if write is None:
        out.document({"file": None, "source": text})
        if not json:
            Words(sys.stdout).write(text)
        return ExitCode.OK
    try:
        _write_source(write, text)
    except FileExistsError:
        detail = f"{write} is another file, and was left as it is"
        return out.complain(
            Complaint("FILE_EXISTS", detail, ExitCode.USAGE, "Name a new file, or take that one away.")
        )
    except OSError as error:
        detail = f"{write} cannot be written: {error.strerror}"
        return out.complain(
            Complaint(
                "CONFIGURATION_INVALID",
                detail,
                ExitCode.CONFIGURATION,
                "Name a folder that you may write to.",
            )
        )
    out.document({"file": str(write), "source": None})
    out.say(f"Written to {write}. Next, with the application closed: java -cp JARS {write.name} DIR show")
    return ExitCode.OK


def _write_source(path: Path, text: str) -> None:
    """Write the source whole or not at all; an older copy of it is replaced, another file is not.

    Raises: FileExistsError; OSError.
    """
    if os.path.lexists(path):
        found = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        if not found.startswith(HELPER_BEGINS):
            raise FileExistsError(str(path))
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def _complaining(run: Callable[[], int], out: Output) -> int:
    try:
        return run()
    except NotInstalled:
        advice = f"Install it: {JE.command}"
        return out.complain(
            Complaint(
                "JE_NOT_INSTALLED",
                "what reads logs of JE is not installed here",
                ExitCode.CONFIGURATION,
                advice,
            )
        )
    except LogRefused as refused:
        advice = next((text for kind, text in ADVICE.items() if isinstance(refused, kind)), "")
        return out.complain(Complaint(refused.code, str(refused), ExitCode.FAILED, advice))


def _file_number(text: str | None) -> int | None:
    if text is None:
        return None
    found = FILE_FORMS.fullmatch(text.lower())
    if found is None:
        raise typer.BadParameter(
            f"{text!r} is not a file such as 2, 0x2 or 00000002.jdb", param_hint="--file"
        )
    if found["number"]:
        return int(found["number"])
    return int(found["name"] or found["hex"], 16)


def _write_json(entry: dict[str, Any]) -> None:
    Words(sys.stdout, endless=True).write(json_text.dumps(entry) + "\n")


def _write_text(entry: dict[str, Any]) -> None:
    rest = dict(entry)
    place = f"{rest.pop('file')[:8]}/{rest.pop('offset'):<10}"
    kind, size, flags = rest.pop("type"), rest.pop("item_bytes"), rest.pop("flags")
    if "key" in rest:
        rest["key"] = _readable(rest["key"])
    words = [f"{name}={value}" for name, value in rest.items()] + flags
    line = f"{place} {kind:<16} {size:>9} {' '.join(words)}".rstrip()
    Words(sys.stdout, endless=True).write(line.translate(SHOWN) + "\n")


def _readable(key: str) -> str:
    """Show a key as text where it is some, else as hexadecimal; long ones are cut."""
    raw = bytes.fromhex(key)[:KEY_SHOWN_BYTES]
    rest = "…" if len(key) > 2 * KEY_SHOWN_BYTES else ""
    if raw and all(0x21 <= byte < 0x7F for byte in raw):
        return repr(raw.decode()) + rest
    return "0x" + raw.hex() + rest


def _document(summary: "Summary") -> dict[str, Any]:
    refused = summary.refused
    return {
        "files": list(summary.files),
        "databases": list(summary.databases),
        "checkpoint": summary.checkpoint,
        "vlsn": summary.vlsn,
        "torn_at": None
        if summary.torn_at is None
        else {"file": summary.torn_at[0], "offset": summary.torn_at[1]},
        "refused": None
        if refused is None
        else {
            "code": refused.code,
            "detail": refused.detail,
            "file": refused.file,
            "offset": refused.offset,
        },
    }


def _show(summary: "Summary", out: Output) -> None:
    out.table(
        ["file", "created", "bytes", "entries", "erased", "erased bytes", "used bytes", "used %"],
        [
            (
                each["name"],
                _instant(each["created_ms"]),
                each["bytes"],
                each["entries"],
                each["erased"],
                each["erased_bytes"],
                each.get("used_bytes"),
                round(100 * each["utilisation"], 1) if "utilisation" in each else None,
            )
            for each in summary.files
        ],
    )
    totals: dict[str, int] = {}
    for each in summary.files:
        for name, count in each["types"].items():
            totals[name] = totals.get(name, 0) + count
    out.table(["type", "entries"], sorted(totals.items(), key=lambda item: -item[1]))
    if summary.databases:
        out.table(
            ["id", "database", "dropped", "dups", "comparator"],
            [
                (str(each["id"]), each["name"], each["dropped"], each["dups"], each["comparator"])
                for each in summary.databases
            ],
        )
    if summary.checkpoint is not None:
        shown = dict(summary.checkpoint)
        shown["ended"] = _instant(shown.pop("ended_ms"))
        out.facts(shown, title="Last checkpoint")
    out.facts(summary.vlsn or {}, title="VLSN")
    if summary.torn_at is not None:
        out.note(f"{summary.torn_at[0]} is torn off at offset {summary.torn_at[1]}: JE would cut it there.")
    if summary.refused is not None:
        out.note(f"{summary.refused.code}: {summary.refused} (nothing could be erased here)")


def _instant(ms: int | None) -> datetime | None:
    return None if ms is None else datetime.fromtimestamp(ms / 1000, UTC)

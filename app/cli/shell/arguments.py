"""Values of options that are more than text: NAME=VALUE pairs, times, choices."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated, Final

import typer

from app.kit.json_bodies import sendable

StoreId = Annotated[str, typer.Argument(metavar="STORE", help="Id of the store.")]
JobId = Annotated[str, typer.Argument(metavar="JOB", help="Id of the job.")]
Timeout = Annotated[
    float | None,
    typer.Option("--timeout", min=0, metavar="SECONDS", help="Stop waiting (exit 75); the job goes on."),
]

States = Annotated[list[str] | None, typer.Option("--state", help="Only in this state. Repeatable.")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=100_000, help="At most so many.")]
LIMIT_DEFAULT: Final = 50
DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def pairs(values: Iterable[str] | None, *, option: str) -> dict[str, str]:
    """Read repeated NAME=VALUE.

    Raises: typer.BadParameter: no `=`, no name, or a name twice.
    """
    found: dict[str, str] = {}
    for value in values or ():
        name, equals, text = value.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{value!r} is not NAME=VALUE", param_hint=option)
        if name in found:
            raise typer.BadParameter(f"{name} is given twice", param_hint=option)
        found[name] = text
    return found


def scalar(text: str) -> str | int | float | bool:
    """Turn JSON's numbers and truth values into themselves; anything else stays text."""
    try:
        value = sendable(text)
    except ValueError:
        return text
    return value if isinstance(value, bool | int | float) else text


def instant(value: str | None, *, option: str) -> datetime | None:
    """Read an RFC 3339 time, or a plain date: midnight UTC at its beginning, which is said on stderr.

    A time without an offset would mean something else on every machine.

    Raises: typer.BadParameter: neither, or a time without an offset.
    """
    if value is None:
        return None
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        raise typer.BadParameter(
            f"{value!r} is neither a time such as 2026-11-01T03:00:00Z nor a date such as 2026-11-01",
            param_hint=option,
        ) from None
    if DATE.fullmatch(value):
        typer.echo(f"{option} {value} is taken as {value}T00:00:00Z.", err=True)
        return time.replace(tzinfo=UTC)
    if time.tzinfo is None:
        raise typer.BadParameter(f"{value!r} has no offset; write Z or +01:00", param_hint=option)
    return time

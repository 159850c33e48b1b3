"""Bytes on the command line: UTF-8 text, or base64 where an option says so."""

import base64
import binascii
from typing import Annotated, Final

import typer

Base64Option = Annotated[
    bool, typer.Option("--base64", help="Databases, keys and values stand in base64, not in UTF-8 text.")
]
NO_TEXT: Final = "base64:"
"""Marks bytes that are no text, where text is shown."""


def bytes_of(text: str, *, is_base64: bool, name: str) -> bytes:
    """Read an argument.

    Raises: typer.BadParameter: no base64.
    """
    if not is_base64:
        return text.encode("utf-8", "surrogateescape")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise typer.BadParameter(f"{text[:80]!r} is no base64", param_hint=name) from error


def shown(value: bytes | None, *, is_base64: bool) -> str | None:
    """Write bytes for people: as they were asked for; what is no printable text is always base64."""
    if value is None:
        return None
    encoded = base64.b64encode(value).decode()
    if is_base64:
        return encoded
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return NO_TEXT + encoded
    return text if text.isprintable() else NO_TEXT + encoded

"""Captured texts, read one sign after the other: values in double quotes, NULL empty without quotes."""

from __future__ import annotations


class NotReadable(Exception):
    """A text is not what a trigger writes."""


def parse(text: str) -> list[str | None]:
    """The values of a captured text.

    Raises: NotReadable.
    """
    found: list[str | None] = []
    place = 0
    while True:
        value, place = _value(text, place)
        found.append(value)
        if place == len(text):
            return found
        if text[place] != ",":
            raise NotReadable(text)
        place += 1


def _value(text: str, place: int) -> tuple[str | None, int]:
    if place == len(text) or text[place] == ",":
        return None, place
    if text[place] != '"':
        raise NotReadable(text)
    signs: list[str] = []
    place += 1
    while place < len(text):
        sign = text[place]
        if sign == '"':
            return "".join(signs), place + 1
        if sign == "\\":
            place += 1
            if place == len(text):
                break
            sign = text[place]
        signs.append(sign)
        place += 1
    raise NotReadable(text)


def write(values: list[str | None]) -> str:
    """What a trigger writes of such values."""
    return ",".join(
        "" if value is None else '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
        for value in values
    )

"""JSON into frozen dataclasses: unknown members are tolerated, missing ones get the field's default."""

import re
import types
from collections.abc import Hashable, Mapping
from dataclasses import MISSING, Field, fields
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from lethe_client.errors import UnexpectedAnswer

T = TypeVar("T")

_DURATION = re.compile(
    r"P(?=.)(?:(?P<days>\d+)D)?"
    r"(?:T(?=.)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)


@cache
def _hints(kind: Hashable) -> dict[str, Any]:
    return get_type_hints(kind)


def decode(kind: type[T], document: Any) -> T:
    """Build a result from a JSON object; a field named `raw` receives the object itself.

    Raises: UnexpectedAnswer: it is no object, or a member without a default is missing or of another type.
    """
    if not isinstance(document, Mapping):
        raise UnexpectedAnswer(f"expected a JSON object for {kind.__name__}, got {type(document).__name__}")
    hints = _hints(cast(Hashable, kind))
    values: dict[str, Any] = {}
    for member in fields(kind):  # type: ignore[arg-type]  # every kind is a dataclass of results.py
        if member.name == "raw":
            values["raw"] = document
        elif document.get(member.name) is not None:
            values[member.name] = _value(hints[member.name], document[member.name], where=member.name)
        elif _is_required(member):
            if not _allows_none(hints[member.name]):
                raise UnexpectedAnswer(f"the answer lacks {kind.__name__}.{member.name}")
            values[member.name] = None
    return kind(**values)


def _is_required(member: "Field[Any]") -> bool:
    return member.init and member.default is MISSING and member.default_factory is MISSING


def _allows_none(hint: Any) -> bool:
    return hint is Any or type(None) in get_args(hint)


def _value(hint: Any, value: Any, *, where: str) -> Any:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        [hint] = [each for each in get_args(hint) if each is not type(None)]
        return _value(hint, value, where=where)
    if hint is Any or origin is Mapping:
        return value
    if origin is tuple:
        if not isinstance(value, list):
            raise UnexpectedAnswer(f"{where} is not a list")
        return tuple(_value(get_args(hint)[0], each, where=where) for each in value)
    if origin is Literal:
        # A newer service may know more values than the type does.
        hint = str
    if hint is datetime:
        return _time(value, where=where)
    if hint is timedelta:
        return _duration(value, where=where)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint in (str, int, float, bool):
        if type(value) is not hint:
            raise UnexpectedAnswer(f"{where} is not {hint.__name__}: {value!r:.80}")
        return value
    return decode(hint, value)


def _time(value: Any, *, where: str) -> datetime:
    try:
        return datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise UnexpectedAnswer(f"{where} is no RFC 3339 time: {value!r:.80}") from None


def _duration(value: Any, *, where: str) -> timedelta:
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise UnexpectedAnswer(f"{where} is no ISO 8601 duration: {value!r:.80}")
    return timedelta(**{name: float(part) for name, part in match.groupdict().items() if part})

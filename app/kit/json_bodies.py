"""JSON whose objects name each thing once: two values under one key mean two things to two readers."""

import json
import math
from typing import Any, NoReturn


class TwiceNamed(ValueError):
    """An object has two values under one key."""


def loads(text: str | bytes) -> Any:
    """Read JSON.

    Raises: TwiceNamed, ValueError (not JSON), RecursionError.
    """
    return json.loads(text, object_pairs_hook=_once)


def sendable(text: str | bytes) -> Any:
    """Read JSON that people give, as far as it can go on to a service as it stands.

    Raises: ValueError: none; a number without an end, half of a pair of UTF-16, a key that stands twice.
    """
    try:
        found = json.loads(text, object_pairs_hook=_once, parse_constant=_refuse, parse_float=_finite)
        json.dumps(found, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError("a text holds half of a character") from None
    except RecursionError:
        raise ValueError("too many levels within each other") from None
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _value in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise TwiceNamed(f"{json.dumps(twice[:100])} is given twice in one object")
    return found


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _finite(text: str) -> float:
    found = float(text)
    if not math.isfinite(found):
        raise ValueError(f"{text[:40]} is too large a number")
    return found

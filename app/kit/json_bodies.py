"""JSON whose objects name each thing once: two values under one key mean two things to two readers."""

import json
from typing import Any


class TwiceNamed(ValueError):
    """An object has two values under one key."""


def loads(text: str | bytes) -> Any:
    """Read JSON.

    Raises: TwiceNamed, ValueError (not JSON), RecursionError.
    """
    return json.loads(text, object_pairs_hook=_once)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _value in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise TwiceNamed(f"{json.dumps(twice[:100])} is given twice in one object")
    return found

"""The texts that SymmetricDS's triggers write: values by comma, and the key in them.

Each value stands in double quotes, in which a backslash escapes itself and a quote; NULL is nothing at all.
Source: the trigger templates of SymmetricDS 3.15; facts/symmetricds-purge, section 1.
"""

import re
from collections.abc import Sequence

_VALUE = re.compile(r'"((?:[^"\\]|\\[\\"])*)"(,|\Z)|(,|\Z)', re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
INSERT, UPDATE, DELETE = "I", "U", "D"


def values_of(text: str) -> tuple[str | None, ...]:
    """The values of a captured text.

    Raises: ValueError: no trigger writes it so.
    """
    found: list[str | None] = []
    at, is_open = 0, True
    while is_open:
        match = _VALUE.match(text, at)
        if match is None:
            raise ValueError("not a text of SymmetricDS's triggers")
        quoted, end, bare = match.groups()
        found.append(None if quoted is None else _ESCAPED.sub(r"\1", quoted))
        at, is_open = match.end(), (bare if quoted is None else end) == ","
    return tuple(found)


def key_of(
    event: str,
    *,
    row_data: str | None,
    pk_data: str | None,
    old_data: str | None,
    columns: Sequence[str],
    key: Sequence[str],
) -> tuple[str, ...] | None:
    """The values of a row's key in a capture of it.

    Args:
        columns, key: names, as the trigger's history has them.
    Returns: None: the texts do not hold it, or it has a NULL.
    """
    texts = ((row_data, columns),) if event == INSERT else ((pk_data, key), (old_data, columns))
    for text, names in texts:
        if not text:
            continue
        try:
            values = values_of(text)
        except ValueError:
            return None
        if len(values) != len(names) or not set(key) <= set(names):
            return None
        found = tuple(values[names.index(name)] for name in key)
        return None if None in found else tuple(value for value in found if value is not None)
    return None

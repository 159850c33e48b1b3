"""When two texts are the same to a database: node ids and statuses are compared by its collation.

SymmetricDS names no collation in the tables that it creates (its MySqlDdlBuilder writes none), so they have
that of their database. SQLite (BINARY) and PostgreSQL (any deterministic collation) compare byte by byte.
MariaDB's default, utf8mb4_general_ci, knows neither case nor most accents, pads with spaces, and takes every
character beyond the basic plane for the same one. test_symmetricds_text.py asks the servers.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable

# The form of a text in which two texts are equal where the database says that they are.
Collation = Callable[[str], str]


def exact(text: str) -> str:
    """SQLite and PostgreSQL: a text is only the same as itself."""
    return text


def general_ci(text: str) -> str:
    """utf8mb4_general_ci, for Latin letters, ideographs and what lies beyond the basic plane."""
    return "".join(map(_weight, text.rstrip(" ")))


def _weight(character: str) -> str:
    if ord(character) > 0xFFFF:
        return "\ufffd"
    if character == "ß":
        return "S"
    return unicodedata.normalize("NFD", character)[0].upper()

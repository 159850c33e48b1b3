"""How a row becomes an entry: `schema.table/value/value...`, the values of the primary key in column order.

The encoding is injective: in a name `%`, `/`, `.` and `!` are written as `%25`, `%2F`, `%2E` and `%21`, in a
value `%` and `/`; so the first `/` ends the table and each further one a value, and no table begins with `!`.
What is no row has a key that begins with `!`. Values of entries are JSON objects, their names sorted.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

SYNC_KEY: Final = "!sync"
"""The newest unit that has changed anything: its origin and seqno."""
_IN_VALUE: Final = str.maketrans({"%": "%25", "/": "%2F"})
_IN_NAME: Final = str.maketrans({"%": "%25", "/": "%2F", ".": "%2E", "!": "%21"})


def table_key(schema: str, table: str) -> str:
    """What the keys of all rows of a table begin with."""
    return f"{schema.translate(_IN_NAME)}.{table.translate(_IN_NAME)}/"


def row_key(schema: str, table: str, values: Sequence[str]) -> str:
    """The key of a row."""
    return table_key(schema, table) + "/".join(value.translate(_IN_VALUE) for value in values)


def sequence_key(schema: str, name: str) -> str:
    """The key of a sequence."""
    return f"!sequence/{schema.translate(_IN_NAME)}.{name.translate(_IN_NAME)}"


def script_key(actionseq: int) -> str:
    """The key of an EXECUTE SCRIPT; log_actionseq counts up at its origin."""
    return f"!ddl/{actionseq}"


def value_of(found: Mapping[str, Any]) -> bytes:
    """The value of an entry: of a row its columns, each a text as PostgreSQL prints it, or null."""
    return json.dumps(found, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()

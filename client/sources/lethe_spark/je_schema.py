"""The columns of `lethe_je`, by their types in Spark. What plans a frame needs no more than this."""

from typing import Final

ENTRIES: Final = {
    "environment": "string",
    "file": "string",
    "offset": "bigint",
    "lsn": "bigint",
    "type": "string",
    "item_bytes": "int",
    "flags": "smallint",
    "invisible": "boolean",
    "vlsn": "bigint",
    "all_zero": "boolean",
    "db": "bigint",
    "key": "binary",
    "value_bytes": "int",
    "txn": "bigint",
    "abort_lsn": "bigint",
    "embedded": "boolean",
    "expiration": "int",
    "node": "bigint",
    "level": "int",
    "slots": "int",
    "last_full": "bigint",
    "first_active": "bigint",
    "start": "bigint",
    "name": "string",
    "root": "bigint",
    "id": "bigint",
    "deleted": "boolean",
}
KEYS: Final = {
    "environment": "string",
    "file": "string",
    "lsn": "bigint",
    "type": "string",
    "slot": "int",
    "db": "bigint",
    "key": "binary",
    "version": "bigint",
    "txn": "bigint",
    "says": "string",
}


def ddl(columns: dict[str, str]) -> str:
    """Columns as Spark writes a schema."""
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())

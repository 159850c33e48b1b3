"""What the console shows of a kind of store is there in the API: a column that is renamed would be blank."""

from __future__ import annotations

import json
from typing import Any

from app.console.store_pages import FILE_COLUMNS
from app.console.store_parts import PARTS
from tests.style.source_files import ROOT

DOCUMENT: dict[str, Any] = json.loads((ROOT / "openapi" / "openapi.json").read_text())
STORE = "/v1/stores/{store_id}/"


def answer_of(path: str) -> dict[str, Any]:
    """The schema of what an operation answers."""
    content = DOCUMENT["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]
    return named(content["schema"])


def named(schema: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return found


def test_columns_of_lists_are_fields_of_their_rows() -> None:
    missing = {}
    for part in PARTS.values():
        for reading in part.readings:
            schema = answer_of(STORE + "/".join(reading.path))
            if reading.columns:
                row = named(schema["properties"]["items"]["items"])
                missing[reading.path] = set(reading.columns) - set(row["properties"])
    assert {path: names for path, names in missing.items() if names} == {}
    assert len(missing) >= 5


def test_columns_of_files_are_fields_of_a_file() -> None:
    schema = answer_of(STORE + "erasure-cycles/{cycle_id}/files")
    assert set(FILE_COLUMNS) <= set(named(schema["properties"]["items"]["items"])["properties"])

"""What the console shows of a kind of store is there in the API: a column that is renamed would be blank."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from app.console.store_pages import FILE_COLUMNS
from app.console.store_parts import PARTS
from tests.style.source_files import ROOT

DOCUMENT: dict[str, Any] = json.loads((ROOT / "openapi" / "openapi.json").read_text())
STORE = "/v1/stores/{store_id}/"


def answer_of(path: str) -> dict[str, Any]:
    """The schema of what an operation answers."""
    content = DOCUMENT["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]
    return named(content["schema"].get("anyOf", [content["schema"]])[0])


def named(schema: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return found


def test_columns_of_lists_are_fields_of_their_rows() -> None:
    missing = {}
    for part in PARTS.values():
        for reading in part.readings:
            schema = answer_of(("/v1/" if reading.by is not None else STORE) + "/".join(reading.path))
            if reading.columns:
                row = named(schema["properties"]["items"]["items"])
                names = set(row["properties"])
                if reading.told_by_one:
                    [told, _null] = row["properties"][reading.told_by_one]["anyOf"]
                    names = names - {reading.told_by_one} | set(named(told)["properties"])
                missing[reading.path] = set(reading.columns) - names
    assert {path: names for path, names in missing.items() if names} == {}
    assert len(missing) >= 5


def test_columns_of_files_are_fields_of_a_file() -> None:
    schema = answer_of(STORE + "erasure-cycles/{cycle_id}/files")
    assert set(FILE_COLUMNS) <= set(named(schema["properties"]["items"]["items"])["properties"])


class Answers:
    """The API: two agreements, whose target is away or not."""

    def __init__(self, code: str | None) -> None:
        self.status = {"last_update_status": "Error (0)", "lag_changes": 7, "target_code": code}
        self.asked: list[str] = []

    async def get(self, *_path: str, **_query: object) -> dict[str, Any]:
        return {"items": [{"id": "agr_1", "status": None}, {"id": "agr_2", "status": None}]}

    async def find(self, *path: str) -> dict[str, Any]:
        self.asked.append(path[-1])
        return {"id": path[-1], "status": self.status}


@pytest.mark.parametrize(("code", "asked"), [(None, ["agr_1", "agr_2"]), ("TARGET_UNREACHABLE", ["agr_1"])])
def test_agreements_are_shown_with_their_status(code: str | None, asked: list[str]) -> None:
    # A list has none: the column was a dash for every agreement.
    api: Any = Answers(code)
    [agreements, _letters] = PARTS["replication"].readings
    rows = asyncio.run(agreements.read(api, "r"))["rows"]
    assert api.asked == asked
    assert [row.get("lag_changes") for row in rows] == [7] * len(asked) + [None] * (2 - len(asked))
    assert set(api.status) <= set(agreements.columns)

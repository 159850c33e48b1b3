"""The reference of commands and of the API is the one of the code, and leaves nothing without a sentence."""

import functools
import json
from typing import Any

from app.cli import reference
from app.cli.shell.exits import ExitCode
from app.runbook import api_page
from app.runbook.glossary.describing import (
    FIELDS,
    PARAMETERS,
    describe_names,
    operations_of,
    properties_of,
)
from tests.style.source_files import ROOT
from tests.style.test_examples import COMMANDS

PAGES = ROOT / "docs" / "reference"


@functools.cache
def _document() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((ROOT / "openapi" / "openapi.json").read_text())
    return document


def test_page_of_commands_is_the_one_of_the_code() -> None:
    assert reference.render() == (PAGES / "commands.md").read_text(), "commands.md is stale: make runbook"


def test_page_of_the_api_is_the_one_of_the_document() -> None:
    assert api_page.render(_document()) == (PAGES / "api.md").read_text(), "api.md is stale: make runbook"


def test_every_command_option_and_ending_is_in_the_page() -> None:
    text = (PAGES / "commands.md").read_text()
    for words, command in COMMANDS.items():
        assert f"## lethe {' '.join(words)}\n" in text
        assert [
            each.name for each in command.params if each.opts[0] not in text and each.opts[0][0] == "-"
        ] == []
    assert set(reference.ENDINGS) == set(ExitCode)


def test_every_field_parameter_and_operation_is_described() -> None:
    schemas = _document()["components"]["schemas"]
    fields = [each for name, schema in schemas.items() for each in properties_of(name, schema)]
    operations = list(operations_of(_document()))
    parameters = [(name, each) for name, operation in operations for each in operation.get("parameters", ())]
    assert (len(fields) > 2_000, len(operations) > 150, len(parameters) > 350) == (True, True, True)
    assert [path for path, _, each in fields if not each.get("description")] == []
    assert [name for name, each in operations if not (each.get("summary") and each.get("description"))] == []
    assert [f"{name} {each['name']}" for name, each in parameters if not each.get("description")] == []


def test_every_operation_and_field_is_in_the_page() -> None:
    text = (PAGES / "api.md").read_text()
    assert [name for name, _ in operations_of(_document()) if f"#### `{name}`\n" not in text] == []
    for name, schema in _document()["components"]["schemas"].items():
        assert f"\n### {name}\n" in text
        assert [field for field in schema.get("properties", {}) if f"| `{field}`" not in text] == []


def test_every_sentence_of_the_glossary_is_of_a_name_in_use() -> None:
    schemas = _document()["components"]["schemas"]
    names = {field for name, schema in schemas.items() for _, field, _ in properties_of(name, schema)}
    asked = {each["name"] for _, one in operations_of(_document()) for each in one.get("parameters", ())}
    assert (set(FIELDS) - names, set(PARAMETERS) - asked) == (set(), set())
    for text in (*FIELDS.values(), *PARAMETERS.values()):
        assert text[0].isupper() or text[0] == "`"
        assert text.endswith(".")


def test_a_fields_own_description_goes_before() -> None:
    own = {"properties": {"rows": {"description": "Its own."}, "bytes": {}, "nobody_knows": {}}}
    document = {"paths": {}, "components": {"schemas": {"Mug": own}}}
    describe_names(document)
    fields = document["components"]["schemas"]["Mug"]["properties"]
    assert fields["rows"]["description"] == "Its own."
    assert fields["bytes"]["description"] == FIELDS["bytes"]
    assert fields["nobody_knows"] == {}

"""Every setting has an entry with its default, and the documents say the same defaults."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from pydantic import BaseModel

from app.cli.main import main
from app.runbook.registry import RUNBOOK
from app.runbook.settings.page import render
from app.runbook.settings.registry import SECTIONS, SETTINGS, variable
from app.settings import Settings
from tests.style.source_files import ROOT

PAGE: Final = ROOT / "docs" / "reference" / "settings.md"
OPERATIONS: Final = ROOT / "docs" / "reference" / "operations.md"
VARIABLE: Final = re.compile(r"LETHE_[A-Z0-9_]+[A-Z0-9]")
NO_CODES: Final = {
    *(
        "ARCHIVE_NOT_SHARED",
        "NO_JAVA",
        "READ_ONLY",
        "SPARK_FAILED",
        "SETTINGS_INVALID",
        "SERVICE_UNREACHABLE",
        "JAVA_HOME",
    ),
}
"""Reasons of events and of `/readyz`, and codes of the command itself."""


def settings_of(model: type[BaseModel], prefix: str = "LETHE_") -> Iterator[tuple[str, Any]]:
    """(variable, default) of all fields, those of groups too."""
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from settings_of(kind, f"{prefix}{name.upper()}__")
        else:
            yield prefix + name.upper(), field.default


def written(value: Any) -> str:
    """A default as somebody would write it."""
    if value is None or value in ([], {}):
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(value) if isinstance(value, list) else str(value)


FOUND: Final = dict(settings_of(Settings))


def test_every_setting_has_an_entry_and_every_entry_a_setting() -> None:
    assert len(FOUND) > 140
    assert sorted(FOUND) == sorted(SETTINGS)
    assert sum(len(entries) for entries in SECTIONS.values()) == len(SETTINGS)


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_an_entry_says_the_default_of_the_code_in_plain_sentences(name: str) -> None:
    entry = SETTINGS[name]
    assert entry.default == written(FOUND[name])
    for text in (entry.meaning, entry.wrong):
        assert re.fullmatch(r"[A-Z0-9`].*[.]", text, re.DOTALL), text
        assert all(len(sentence.split()) <= 40 for sentence in re.split(r"[.:] ", text)), text
        assert set(VARIABLE.findall(text)) <= {*SETTINGS, "LETHE_SECRET"}, text


def test_codes_that_entries_name_are_in_the_runbook() -> None:
    texts = " ".join(f"{entry.meaning} {entry.wrong}" for entry in SETTINGS.values())
    codes = set(re.findall(r"\b[A-Z]+(?:_[A-Z]+)+\b", VARIABLE.sub("", texts)))
    assert len(codes) > 20
    assert codes - set(RUNBOOK) - NO_CODES == set()


def test_page_is_the_one_of_the_code() -> None:
    assert render() == PAGE.read_text(), "docs/reference/settings.md is stale: make runbook"


@pytest.mark.parametrize("text", ["LETHE_PORT", "lethe_port", "port", "--port", " Port "])
def test_a_setting_is_found_however_it_is_written(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert variable(text) == "LETHE_PORT"
    assert main(["explain", text.strip().lstrip("-")]) == 0
    shown = capsys.readouterr().out
    assert "8765" in shown
    assert "when wrong" in shown


def _rows(path: Path) -> Iterator[tuple[list[str], list[str]]]:
    """(variables, defaults) of each row of a table that begins with a variable."""
    for line in path.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        names = re.findall(r"`(LETHE_[A-Z0-9_]+)`", cells[0])
        if line.startswith("| `LETHE_") and len(cells) >= 3 and names:
            yield names, [cell.strip("` ") for cell in re.sub(r"\(.*?\)", "", cells[1]).split(", ")]


def _number(text: str) -> float | None:
    found = re.fullmatch(r"([0-9.]+)(?: (MiB))?", text)
    return None if found is None else float(found[1]) * (1_048_576 if found[2] else 1)


def test_tables_of_the_operations_guide_say_the_same_defaults() -> None:
    compared = 0
    for names, defaults in _rows(OPERATIONS):
        assert set(names) <= set(SETTINGS), names
        if len(names) != len(defaults):
            continue
        for name, said in zip(names, defaults, strict=True):
            if (number := _number(said)) is not None:
                assert number == float(SETTINGS[name].default), name
                compared += 1
    assert compared > 30


@pytest.mark.parametrize("path", sorted((ROOT / "docs").rglob("*.md")), ids=lambda path: path.name)
def test_documents_name_no_setting_that_is_not_there(path: Path) -> None:
    ours = set(SETTINGS) | {"LETHE_URL", "LETHE_TOKEN", "LETHE_TOKEN_FILE", "LETHE_PROFILE"}
    tests_own = {name for name in VARIABLE.findall(path.read_text()) if name.startswith("LETHE_TEST")}
    named = set(VARIABLE.findall(path.read_text())) - tests_own
    unknown = {each for each in named - ours if not any(known.startswith(each) for known in ours)}
    assert {each for each in unknown if not each.startswith("LETHE_SECRET_")} <= {"LETHE_REQUIRE_PEERS"}

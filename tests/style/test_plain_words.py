"""What operators read is plain English: messages, help and documents without obscure words."""

import ast
import json
import re
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.style.source_files import ROOT, SourceFile, source_files
from tests.style.test_examples import COMMANDS

OBSCURE: Final = re.compile(
    r"(?<!:)\b(told|minded|minds|the\s+hands|puts?\s+(?:\w+\s+){0,4}back|in\s+moments|starves|starved"
    r"|stands\s+first|the\s+program's\s+own|waits\s+in\s+front\s+of|what\s+is\s+run\s+again\s+with\s+its\s+label"
    r"|must\s+not\s+empty\s+each\s+other|an\s+admin's\s+word|the\s+document's|the\s+document\s+behind"
    r"|stands?\s+around\s+them)\b",
    re.IGNORECASE,
)
"""`told` says neither who says what nor to whom; `put back` may be restored, undone or replaced."""
PAGES: Final = ("concepts", "how-to", "monitoring", "reference", "tutorial")
"""Folders of docs for operators; design, decisions and contributing are for developers."""
DOCUMENTS: Final = sorted(
    [
        *(path for folder in PAGES for path in (ROOT / "docs" / folder).glob("*.md")),
        *(ROOT / name for name in ("README.md", "SECURITY.md", "docs/index.md", "client/README.md")),
    ]
)
NAMES: Final = re.compile(r"`[^`]*`|\b[A-Z]+(?:_[A-Z]+)+\b")
"""Code and codes in a text: names stay what they are."""


def _docstrings(tree: ast.AST) -> set[int]:
    """The expressions that are only text: docstrings of modules, classes, functions, and of attributes."""
    return {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }


def messages(file: SourceFile) -> Iterator[tuple[int, str]]:
    """(line, text) of what is no docstring and has more than one word; identifiers and keys have one."""
    left_out = _docstrings(file.tree)
    for node in ast.walk(file.tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in left_out
        if is_text and " " in node.value.strip():
            yield node.lineno, node.value


def _without_names(text: str) -> str:
    """The text with as many lines as before."""
    return NAMES.sub(lambda match: "\n" * match.group(0).count("\n"), text)


def obscure(text: str) -> list[str]:
    return [" ".join(match.group(0).split()) for match in OBSCURE.finditer(_without_names(text))]


def test_messages_are_in_plain_words() -> None:
    found = [
        f"{file.name}:{line} {words}: {text.strip()[:100]}"
        for file in source_files("app", "spark", "client/lethe_client")
        for line, text in messages(file)
        if (words := obscure(text))
    ]
    assert found == [], "\n".join(found)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_is_in_plain_words(words: tuple[str, ...]) -> None:
    command = COMMANDS[words]
    texts = [command.help or "", *(getattr(each, "help", "") or "" for each in command.params)]
    assert [found for text in texts for found in obscure(text)] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_documents_are_in_plain_words(path: Any) -> None:
    text = _without_names(path.read_text())
    found = [
        f"{text.count(chr(10), 0, match.start()) + 1}: {' '.join(match.group(0).split())}"
        for match in OBSCURE.finditer(text)
    ]
    assert found == [], "\n".join(found)


def test_the_rule_sees_messages_and_leaves_names_and_docstrings_alone() -> None:
    text = '''
def told(told: str) -> str:
    """What is told."""
    told = {"told": "`told` is a name"}["told"]
    raise ValueError(f"{told} was put back")
'''
    file = SourceFile("x.py", text, ast.parse(text))
    assert [obscure(each) for _, each in messages(file)] == [[], ["put back"]]
    assert obscure(json.dumps({"x": "TARGET_TOLD"})) == []


def test_the_rule_sees_what_stands_over_the_end_of_a_line() -> None:
    assert obscure("after it was put\n  back, or put the right database\nback") == [
        "put back",
        "put the right database back",
    ]
    assert obscure("The document's\nfirst step, as `put\nback` says") == ["The document's"]

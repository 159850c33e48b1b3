"""Audit actions are written in one form, noun.verb with dashes inside a word, in one registry.

Two spellings were in use (`erasure-cycle.create`, `event_cleanup.create`): a filter by action found half.
"""

import ast
import re
from collections.abc import Iterator

from app.auth.actions import Action
from tests.style.source_files import ROOT, source_files

WORD = "[a-z]+(-[a-z]+)*"
FORM = re.compile(rf"{WORD}\.{WORD}")
OPERATIONS = ROOT / "docs" / "reference" / "operations.md"


def _texts_as_actions() -> Iterator[str]:
    """Places where an action is given as text, past the registry."""
    for file in source_files("app"):
        if file.name.startswith("app/cli/"):
            continue
        for node in ast.walk(file.tree):
            is_text = isinstance(node, ast.keyword) and isinstance(node.value, ast.Constant | ast.JoinedStr)
            if is_text and isinstance(node, ast.keyword) and node.arg == "action":
                yield f"{file.name}:{node.value.lineno}"


def test_actions_have_one_form() -> None:
    assert [action for action in Action if not FORM.fullmatch(action)] == []


def test_actions_are_taken_from_the_registry() -> None:
    assert list(_texts_as_actions()) == []


def test_every_action_is_used_and_listed_for_operators() -> None:
    text = OPERATIONS.read_text()
    code = "\n".join(file.text for file in source_files("app") if file.name != "app/auth/actions.py")
    verbs = set(re.findall(r'Action\(f"([a-z-]+)\.\{', code))  # a family whose verb is the path's
    unused = [
        each for each in Action if f"Action.{each.name}" not in code and each.split(".")[0] not in verbs
    ]
    assert unused == []
    assert [each for each in Action if f"`{each}`" not in text] == []

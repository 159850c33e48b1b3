"""A process can have one JVM: a test that starts one by itself first ends the one which others may have left.

Which tests a worker has run before differs from run to run, and so does what is alive in its process.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.style.source_files import ROOT

STARTS = {"SparkPool", "start_session"}
ENOUGH = {"no_spark", "shared_pool"}
"""`no_spark` ends the JVM of the others; whoever has `shared_pool` has that one."""


def _names_called(tree: ast.AST) -> set[str]:
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return {called.id for called in calls if isinstance(called, ast.Name)}


def _texts(nodes: Iterable[ast.AST]) -> set[str]:
    return {str(each.value) for node in nodes for each in ast.walk(node) if isinstance(each, ast.Constant)}


def _fixtures_of(test: ast.FunctionDef) -> set[str]:
    """By its parameters and its decorators."""
    return {argument.arg for argument in test.args.args} | _texts(test.decorator_list)


def _of_all_tests(tree: ast.Module) -> set[str]:
    """What `pytestmark` uses."""
    assigned = (node for node in tree.body if isinstance(node, ast.Assign))
    return _texts(node.value for node in assigned if "pytestmark" in map(ast.unparse, node.targets))


def _careless(tree: ast.Module) -> Iterator[str]:
    always = _of_all_tests(tree)
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef) or not node.name.startswith("test_"):
            continue
        if _names_called(node) & STARTS and not (always | _fixtures_of(node)) & ENOUGH:
            yield node.name


def _starting() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text()
        if any(f"{name}(" in text for name in STARTS):
            yield path, ast.parse(text)


def test_who_starts_a_jvm_in_the_process_has_ended_the_last_one() -> None:
    starting = list(_starting())
    assert len(starting) > 3, "they are called so"
    assert [(path.name, name) for path, tree in starting for name in _careless(tree)] == []


def test_a_careless_one_is_found() -> None:
    tree = ast.parse("def test_a(tmp_path): start_session(1)\ndef test_b(no_spark): SparkPool(1)\n")
    assert list(_careless(tree)) == ["test_a"]

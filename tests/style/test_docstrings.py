"""Docstrings: there where a reader needs one, and true to the signature."""

import ast
import re

from tests.style.source_files import Function, shipped_files

SECTION = re.compile(r"^\s*(Args|Returns|Yields|Raises|Source|Attributes):", re.MULTILINE)
ARGUMENT = re.compile(r"^\s{4}(\*{0,2}\w+):", re.MULTILINE)


def _documented_arguments(docstring: str) -> list[str]:
    """Names below `Args:`, which are indented by four; continuation lines are deeper."""
    _, found, rest = docstring.partition("Args:\n")
    if not found:
        return []
    end = SECTION.search(rest)
    return [name.lstrip("*") for name in ARGUMENT.findall(rest[: end.start()] if end else rest)]


def _parameters(function: Function) -> set[str]:
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    named += [argument for argument in (arguments.vararg, arguments.kwarg) if argument is not None]
    return {argument.arg for argument in named}


def test_modules_say_what_they_are_for() -> None:
    silent = [
        file.name for file in shipped_files() if file.tree.body and ast.get_docstring(file.tree) is None
    ]
    assert silent == []


def test_public_functions_have_a_docstring() -> None:
    # Classes are left out: an error whose place is in the tree above it would only restate its name.
    silent = [
        f"{file.name}:{node.lineno} {node.name}"
        for file in shipped_files()
        for node in file.tree.body
        if isinstance(node, Function) and not node.name.startswith("_")
        if ast.get_docstring(node) is None
    ]
    assert silent == []


def test_documented_arguments_exist() -> None:
    wrong = []
    for file in shipped_files():
        for function in file.functions:
            documented = _documented_arguments(ast.get_docstring(function) or "")
            missing = set(documented) - _parameters(function)
            if missing:
                wrong.append(f"{file.name}:{function.lineno} {function.name}: {sorted(missing)}")
    assert wrong == []


def test_modules_assert_their_invariants() -> None:
    # What a lock, a guarded update or an order of steps keeps is called "Rules:", and tests prove it.
    found = [
        file.name
        for file in shipped_files()
        if re.search(r"^Invariants\b", ast.get_docstring(file.tree) or "", re.MULTILINE)
        and not any(isinstance(node, ast.Assert) for node in ast.walk(file.tree))
    ]
    assert found == []

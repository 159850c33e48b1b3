"""What the rules of the house are applied to: the parsed source files of the project."""

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ("app", "spark", "client/lethe_client", "client/sources/lethe_spark")
HELD_TO_THE_RULES = (*SHIPPED, "lethe_samples")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class SourceFile:
    """One file; `name` is its path below the root, `tree` its syntax."""

    name: str
    text: str
    tree: ast.Module

    @property
    def functions(self) -> Iterator[Function]:
        """Every function and method, nested ones too."""
        return (node for node in ast.walk(self.tree) if isinstance(node, Function))

    @property
    def imported(self) -> Iterator[tuple[int, str]]:
        """(line, dotted name) of every absolute import; of `from a import b` the name is `a.b`."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from ((node.lineno, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and not node.level:
                yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


@functools.cache
def source_files(*folders: str) -> tuple[SourceFile, ...]:
    """Parse every Python file below the folders, in the order of their names."""
    files = []
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text()
            files.append(SourceFile(str(path.relative_to(ROOT)), text, ast.parse(text)))
    return tuple(files)


def shipped_files() -> tuple[SourceFile, ...]:
    """The files of the two floors and of the client library, and the writers of samples, held to the same."""
    files = source_files(*HELD_TO_THE_RULES)
    assert files, "no source file was found: the rules would hold for nothing"
    return files

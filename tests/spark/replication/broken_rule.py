"""One rule of the product replaced by a naive one, to show that a test notices: a mutation, no fake."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def broken_rule(module: Any, name: str, naive: Any) -> Iterator[None]:
    """Let `module.name` be `naive` until the end of the block."""
    right = getattr(module, name)
    setattr(module, name, naive)
    try:
        yield
    finally:
        setattr(module, name, right)


def does_nothing(*_arguments: Any, **_named: Any) -> None:
    """The naive form of a check or of a note: none."""

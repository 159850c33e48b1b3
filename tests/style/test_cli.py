"""Every command of `lethe` speaks JSON where a program reads it."""

import importlib
from typing import Any

from typer.main import get_command

from app.cli.main import Root

EXPECTED = {
    "serve", "worker", "migrate", "demo", "recover", "store add", "store list", "store check",
    "purge run", "purge plan", "job list", "job show", "job watch", "job pause", "job resume", "job abort",
    "token create", "token list", "token revoke", "archive list", "archive verify", "archive restore",
    "je dump", "je stat",
}  # fmt: skip


def _commands() -> dict[str, Any]:
    """Every command by its words; all nouns are imported, which the command itself puts off until it must."""
    found: dict[str, Any] = {}
    for name, noun in Root.nouns.items():
        found |= _leaves(get_command(importlib.import_module(noun.module).app), name)
    return found


def _leaves(command: Any, name: str) -> dict[str, Any]:
    children = getattr(command, "commands", None)
    if children is None:
        return {name: command}
    found: dict[str, Any] = {}
    for word, child in children.items():
        found |= _leaves(child, f"{name} {word}")
    return found


def test_commands_of_the_contract_are_there() -> None:
    assert sorted(EXPECTED - set(_commands())) == []


def test_every_command_takes_json() -> None:
    without = [
        name
        for name, command in _commands().items()
        if not any("--json" in parameter.opts for parameter in command.params)
    ]
    assert without == []


def test_every_command_and_option_is_explained() -> None:
    silent = []
    for name, command in _commands().items():
        if not command.help:
            silent.append(name)
        silent += [f"{name} {part.name}" for part in command.params if not getattr(part, "help", "")]
    assert silent == []

"""Every command of `lethe` speaks JSON where a program reads it."""

import importlib
from collections.abc import Iterator
from typing import Any

import typer

EXPECTED = {
    "serve", "worker", "migrate", "demo", "recover", "store add", "store list", "store check",
    "purge run", "purge plan", "job list", "job show", "job watch", "job pause", "job resume", "job abort",
    "token create", "token list", "token revoke", "archive list", "archive verify", "archive restore",
}  # fmt: skip


def _commands() -> dict[str, Any]:
    module = importlib.import_module("app.cli.main")
    applications = [value for value in vars(module).values() if isinstance(value, typer.Typer)]
    # The root is the one that the others were added to.
    added = {
        id(group.typer_instance) for application in applications for group in application.registered_groups
    }
    (root,) = [application for application in applications if id(application) not in added]
    return dict(_leaves(typer.main.get_command(root), ()))


def _leaves(command: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    children = getattr(command, "commands", None)
    if children is None:
        yield " ".join(path), command
        return
    for name, child in children.items():
        yield from _leaves(child, (*path, name))


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

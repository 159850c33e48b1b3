"""Every command's help has an example, and every example is one that the command understands."""

import re
import shlex
from typing import Any, Final

import pytest
from typer.main import get_command

from app.cli.main import Root, app
from app.cli.shell.lazy import load

EXAMPLE: Final = re.compile(r"^\s*Example: (.+)$", re.MULTILINE)


def _leaves(command: Any, words: tuple[str, ...]) -> dict[tuple[str, ...], Any]:
    children = getattr(command, "commands", None)
    if not children:
        return {words: command}
    found: dict[tuple[str, ...], Any] = {}
    for word, child in children.items():
        found |= _leaves(child, (*words, word))
    return found


COMMANDS: Final[dict[tuple[str, ...], Any]] = {
    words: command
    for name, noun in Root.nouns.items()
    for words, command in _leaves(get_command(load(noun.module)), (name,)).items()
}


def examples(command: Any) -> list[list[str]]:
    """The words of each example, without `lethe`."""
    lines = EXAMPLE.findall(command.help or "")
    assert all(line.startswith("lethe ") for line in lines), lines
    return [shlex.split(line)[1:] for line in lines]


def understood(words: list[str]) -> None:
    """Have the real command line read it, from the root down, without running it.

    Raises: what the command would complain about.
    """
    group: Any = get_command(app)
    context = group.make_context("lethe", list(words))
    while hasattr(group, "resolve_command"):
        name, command, rest = group.resolve_command(context, [*context._protected_args, *context.args])
        assert command is not None, words
        context = command.make_context(name, rest, parent=context)
        group = command
    assert not context.args, f"left over: {context.args}"


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_help_has_an_example_that_the_command_understands(words: tuple[str, ...]) -> None:
    found = examples(COMMANDS[words])
    assert any(tuple(line[: len(words)]) == words for line in found), "no example of this command"
    for line in found:
        understood(line)


def test_an_example_with_a_wrong_option_is_seen() -> None:
    with pytest.raises(Exception, match="No such option"):
        understood(["store", "list", "--colour", "red"])
    with pytest.raises(Exception, match="Missing"):
        understood(["store", "show"])


def test_all_commands_are_looked_at() -> None:
    assert len(COMMANDS) > 140

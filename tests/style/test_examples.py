"""Every command's help has an example, and every example is one that the command understands."""

import re
import shlex
from typing import Any, Final

import pytest
from typer.main import get_command

from app.cli.main import Root, app
from app.cli.shell.lazy import load
from tests.style.source_files import ROOT

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


INLINE: Final = re.compile(r"`lethe ([a-z][^`]*)`")
OPTION: Final = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
CONTEXTS: Final = {"acquire 1", "erasure certificate 1"}
"""What signatures are made over, and no commands."""


def _candidates(words: list[str]) -> list[Any]:
    """The commands that a line may mean: one, or all of a noun (`lethe archive list | verify JOB`)."""
    named: tuple[str, ...] = ()
    for word in words:
        if not any(each[: len(named) + 1] == (*named, word) for each in COMMANDS):
            break
        named = (*named, word)
    one = named in COMMANDS and "|" not in words[len(named) : len(named) + 1]
    prefix = named if one else named[:-1] if named in COMMANDS else named
    return [command for each, command in COMMANDS.items() if prefix and each[: len(prefix)] == prefix]


def unknown_in(line: str) -> list[str]:
    """What no command has of a line in running text: its noun, or options."""
    ours = re.split(r" -- | \| (?=psql|mariadb)", line)[0]
    found = _candidates(ours.split())
    opts = {opt for command in found for each in command.params for opt in (*each.opts, *each.secondary_opts)}
    return [] if found and set(OPTION.findall(ours)) <= opts | {"--help"} else [line]


def test_commands_in_running_text_have_the_options_that_it_names() -> None:
    pages = [ROOT / name for name in ("README.md", "SECURITY.md", "CONTRIBUTING.md", "client/README.md")]
    lines = {
        (page.name, " ".join(line.split()))
        for page in (*pages, *sorted((ROOT / "docs").rglob("*.md")))
        for line in INLINE.findall(page.read_text())
    }
    assert len(lines) > 300
    assert [each for each in sorted(lines) if each[1] not in CONTEXTS and unknown_in(each[1])] == []


@pytest.mark.parametrize(
    "line", ["stores list", "store list --colour", "archive list | verify JOB --colour", "purg"]
)
def test_a_command_in_running_text_that_is_none_is_seen(line: str) -> None:
    assert unknown_in(line) == [line]


def test_all_commands_are_looked_at() -> None:
    assert len(COMMANDS) > 140

"""`python -m app.cli.reference`: docs/reference/commands.md on standard output."""

import re
import sys
from collections.abc import Iterator
from typing import Any, Final

from typer.main import get_command

from app.cli.main import Root
from app.cli.shell.exits import ExitCode
from app.cli.shell.lazy import load

HEAD: Final = """\
# Commands

Every command of `lethe` with its arguments, options and examples. This page is made by `make runbook` from
the command's own parser; `lethe COMMAND --help` prints the same. `lethe explain CODE` says what a code means.

Commands that ask the service take `--url`, `--token-file`, `--data-dir` and `--profile`, or the variables
LETHE_URL, LETHE_TOKEN, LETHE_TOKEN_FILE and LETHE_PROFILE. `--json` prints one JSON document on standard
output, nothing else. The plugins (`lethe slony health`, `lethe ds389 health`, `lethe symmetricds backlog`)
end with 0 to 3, and `lethe backup run` with the code of the command that it ran.

| exit code | meaning |
|---|---|
"""
ENDINGS: Final = {
    ExitCode.OK: "done",
    ExitCode.FAILED: "not done, or it did not succeed; the message says why",
    ExitCode.USAGE: "the command line, or the request, is not valid",
    ExitCode.BUG: "a fault of the command or the service itself",
    ExitCode.TRY_AGAIN: "not now: try again later",
    ExitCode.NOT_ALLOWED: "the token is not known, or may not do it",
    ExitCode.CONFIGURATION: "an address, a file or a setting cannot be used",
    ExitCode.INTERRUPTED: "Ctrl-C",
}
EXAMPLE: Final = re.compile(r"^\s*Example: (.+)$", re.MULTILINE)


def leaves(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """(words, command) of every command below one."""
    children = getattr(command, "commands", None)
    if not children:
        yield words, command
    for word, child in (children or {}).items():
        yield from leaves(child, (*words, word))


def commands() -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command, in the order of the command's own help."""
    for name, noun in Root.nouns.items():
        yield from leaves(get_command(load(noun.module)), (name,))


def render() -> str:
    """The page as committed."""
    parts = [HEAD, *(f"| {int(code)} | {meaning} |\n" for code, meaning in ENDINGS.items())]
    last = ""
    for words, command in commands():
        if words[0] != last:
            last = words[0]
            parts.append(f"\n## lethe {last}\n")
            parts += [f"\n{Root.nouns[last].help}\n"] if len(words) > 1 else []
        parts += _shown(words, command)
    return "".join(parts)


def _shown(words: tuple[str, ...], command: Any) -> Iterator[str]:
    text = EXAMPLE.sub("", command.help or "")
    if len(words) > 1:
        yield f"\n### lethe {' '.join(words)}\n"
    yield f"\n{' '.join(text.split())}\n"
    rows = [_row(each) for each in command.params if not getattr(each, "hidden", False)]
    if rows:
        yield "\n| argument or option | meaning |\n|---|---|\n"
        yield from rows
    lines = "\n".join(EXAMPLE.findall(command.help or ""))
    yield f"\n```text\n{lines}\n```\n"


def _row(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        shown = parameter.metavar or str(parameter.name).upper()
    else:
        shown = ", ".join((*parameter.opts, *parameter.secondary_opts))
        if not getattr(parameter, "is_flag", False):
            shown += f" {parameter.metavar or str(parameter.name).upper()}"
    parts = [getattr(parameter, "help", None) or ""]
    if parameter.required and parameter.param_type_name != "argument":
        parts.append("Needed.")
    default = parameter.default
    if isinstance(default, str | int | float) and not isinstance(default, bool) and default != "":
        parts.append(f"Default: `{default}`.")
    text = " ".join(" ".join(parts).split()).replace("|", "\\|").replace("<", "&lt;")
    return f"| `{shown.replace('|', '/')}` | {text} |\n"


if __name__ == "__main__":
    sys.stdout.write(render())

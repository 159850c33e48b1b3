"""A command group that imports a noun's module only when that noun is used, so that help is fast."""

import gc
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

from typer import Typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command


@dataclass(frozen=True, slots=True)
class Noun:
    """Where a top-level command lives: a module with a Typer `app`, and the line that help shows for it."""

    module: str
    help: str


class LazyGroup(TyperGroup):
    """The root; subclasses fill `nouns`."""

    nouns: ClassVar[Mapping[str, Noun]] = {}

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.nouns)

    def get_command(self, ctx: Any, cmd_name: str) -> TyperCommand | None:
        """A stand-in with the name and the help line, for listing."""
        noun = self.nouns.get(cmd_name)
        return None if noun is None else TyperCommand(name=cmd_name, help=noun.help, callback=None)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The real one, for running; the stand-in's way finds the name or complains about it."""
        if args and args[0] not in self.nouns:
            # The complaint takes the names that it suggests from here.
            self.commands = {name: TyperCommand(name=name) for name in self.nouns}
        name, stand_in, rest = super().resolve_command(ctx, args)
        if name is None or stand_in is None:
            return name, stand_in, rest
        app = load(self.nouns[name].module)
        command = get_command(app)
        command.name = name
        return name, command, rest


def load(module: str) -> Typer:
    """Import a noun's module; what it loads stays to the end of the process.

    The collector finds nothing among modules and classes, and looks at all of them again and again while they
    are loaded, and once more at the exit: a third of what the start of a service takes.
    """
    if module not in sys.modules:
        gc.disable()
        try:
            import_module(module)
        finally:
            gc.enable()
        gc.freeze()
    app = sys.modules[module].app
    assert isinstance(app, Typer)
    return app

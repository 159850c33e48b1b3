"""The typed client of Lethe: `Lethe(url, token)`, its resources, and one tree of errors."""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lethe_client.asynchronous.client import AsyncLethe as AsyncLethe
    from lethe_client.public import *  # noqa: F403


def __getattr__(name: str) -> Any:
    """Load names when they are asked for: whoever takes one module of the client does not pay for all."""
    if name == "AsyncLethe":
        return import_module("lethe_client.asynchronous.client").AsyncLethe
    if name.islower() and find_spec(module := f"{__name__}.{name}") is not None:
        return import_module(module)  # before the rest: modules of the client take each other from here
    public = import_module("lethe_client.public")
    if name == "__all__":
        return [*public.__all__, "AsyncLethe"]
    try:
        return getattr(public, name)
    except AttributeError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return sorted({*globals(), *import_module("lethe_client.public").__all__, "AsyncLethe"})

"""Dependencies that need no thread."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from fastapi import Request

T = TypeVar("T")


def at_once(read: Callable[[Request], T]) -> Callable[[Request], Awaitable[T]]:
    """Make a dependency of what only looks at the request.

    A plain function is run in a thread of the pool by the framework, which costs more than the look.
    """

    async def reading(request: Request) -> T:
        return read(request)

    return reading

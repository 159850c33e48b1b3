"""The tasks of a spread plan, run here one after the other; what crosses processes is pickled."""

import pickle
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from spark.erase.calls.calls import PlanAnswer
from spark.erase.errors import LogRefused


class SpreadHere:
    """Three tasks at a time, or so it says."""

    parallelism = 3

    def each(self, function: Callable[[Any], Any], arguments: Sequence[Any]) -> list[Any]:
        return [crossed(crossed(function)(crossed(argument))) for argument in arguments]

    def exchange(
        self,
        function: Callable[[Any], Iterable[tuple[int, bytes]]],
        arguments: Sequence[Any],
        *,
        parts: int,
        gather: Callable[[Iterable[bytes]], bytes],
    ) -> list[bytes]:
        made: list[list[bytes]] = [[] for _ in range(parts)]
        # Contents reach a part in any order.
        for argument in reversed(arguments):
            for part, content in crossed(function)(crossed(argument)):
                made[part].append(content)
        return [crossed(gather)(contents) for contents in made]


def crossed(value: Any) -> Any:
    """A value as another process gets it."""
    return pickle.loads(pickle.dumps(value))


def outcome(plan: Callable[[], PlanAnswer]) -> PlanAnswer | tuple[type, str, str | None, int | None]:
    """A plan, or what refused it."""
    try:
        return plan()
    except LogRefused as refused:
        return type(refused), refused.detail, refused.file, refused.offset

"""Nodes that hang: one look at each at a time, so that one of them takes one thread and not all.

A look takes milliseconds. One that takes LONG_S waits for a server that has taken the connection and says
nothing, and holds a thread of the runner until the connection is given up.

Rules:
- where a look has taken LONG_S, no other one begins at that store: its waits take the node as away meanwhile;
- where one has taken so long in vain, no two look there at once, for AGAIN_S or until one succeeds;
- it is of this process alone: what another one can reach is its own.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Final

LONG_S: Final = 3.0
AGAIN_S: Final = 120.0
"""Longer than the look and the longest pause of who finds a node away."""


class NodeHangs(Exception):
    """Another look at the node has had no answer so far."""


class Looks:
    """The looks of all waits of this process; any thread."""

    def __init__(self) -> None:
        self._guard = Lock()
        self._begun: dict[str, list[float]] = {}
        self._hung: dict[str, float] = {}

    @contextmanager
    def at(self, store: str, *, clock_s: Callable[[], float]) -> Iterator[None]:
        """Look at a store's node.

        Raises: NodeHangs: nothing was begun.
        """
        began_s = clock_s()
        with self._guard:
            self._require_room(store, began_s)
            self._begun.setdefault(store, []).append(began_s)
        is_answered = False
        try:
            yield
            is_answered = True
        finally:
            ended_s = clock_s()
            with self._guard:
                self._end(store, began_s)
                self._hung.pop(store, None)
                if not is_answered and ended_s - began_s >= LONG_S:
                    self._hung[store] = ended_s

    def _require_room(self, store: str, now_s: float) -> None:
        self._hung = {name: at_s for name, at_s in self._hung.items() if now_s - at_s < AGAIN_S}
        if not (begun := self._begun.get(store)):
            return
        if store in self._hung or now_s - min(begun) >= LONG_S:
            raise NodeHangs(f"another look at it has had no answer for {now_s - min(begun):.0f} s")

    def _end(self, store: str, began_s: float) -> None:
        self._begun[store].remove(began_s)
        if not self._begun[store]:
            del self._begun[store]


LOOKS: Final = Looks()

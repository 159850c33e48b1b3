"""Who may look now: few looks at once, few of one store, and none is waited for without an end.

Rules:
- a look that is late is left alone, and its place is given to others; its thread ends by itself, when the
  node answers, closes or its timeouts strike. Until then it counts against its store, and no other;
- a store whose looks hang holds LOOKS_OF_STORE_MAX threads at most, whoever asks and how often;
- who waits for a turn holds no thread, and is told after the same time as who waits for a look.
"""

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, TypeVar

from spark.targets.errors import TargetUnreachable

LOOKS_AT_ONCE_MAX: Final = 8
LOOKS_OF_STORE_MAX: Final = 2
T = TypeVar("T")


class Looks:
    """The looks of one application; used in its own loop alone."""

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(LOOKS_AT_ONCE_MAX)
        self._of_store: dict[str, asyncio.Semaphore] = {}
        self._users: dict[str, int] = {}

    async def look(self, store: str, work: Callable[[], T], *, max_s: float) -> T:
        """Run a look in a thread of its own, when it is its turn.

        Args:
            store: whose node is asked first, and without whom there is no answer.
            max_s: for the turn and the look together.
        Raises: TargetUnreachable: it was not done in time; what `work` raises.
        """
        try:
            async with asyncio.timeout(max_s), self._turn(store) as start, self._slots:
                return await _in_thread(work, start)
        except TimeoutError:
            raise TargetUnreachable(
                f"no answer within {max_s:.0f} s: the node takes connections and does not answer, or others"
                " wait for it already"
            ) from None

    @asynccontextmanager
    async def _turn(self, store: str) -> AsyncIterator[Callable[[], Callable[[], None]]]:
        """A turn of a store: whoever starts a thread gets what ends the turn; without one it ends here."""
        turns = self._of_store.setdefault(store, asyncio.Semaphore(LOOKS_OF_STORE_MAX))
        self._users[store] = self._users.get(store, 0) + 1
        is_taken, is_started = False, False

        def leave() -> None:
            if is_taken:
                turns.release()
            self._users[store] -= 1
            if not self._users[store]:
                del self._users[store], self._of_store[store]

        def start() -> Callable[[], None]:
            nonlocal is_started
            is_started = True
            return leave

        try:
            await turns.acquire()
            is_taken = True
            yield start
        finally:
            if not is_started:
                leave()


async def _in_thread(work: Callable[[], T], start: Callable[[], Callable[[], None]]) -> T:
    loop, done = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()

    def run() -> None:
        result: T | None = None
        error: BaseException | None = None
        try:
            result = work()
        except BaseException as raised:  # noqa: BLE001 -- the last frame of the thread: whoever waits gets it
            error = raised
        try:
            loop.call_soon_threadsafe(settle, result, error)
        except RuntimeError:
            return  # the loop is closed: nobody waits any more

    def settle(result: T | None, error: BaseException | None) -> None:
        leave()
        if done.cancelled():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)

    context = contextvars.copy_context()  # what is logged there bears the request's id
    thread = threading.Thread(target=context.run, args=(run,), name="lethe-looks", daemon=True)
    thread.start()  # raises where the machine has no thread left: then the turn ends with its waiter
    leave = start()
    found: T = await done
    return found

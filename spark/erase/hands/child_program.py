"""The program of a child: calls come in over its standard input, answers go out over its standard output."""

import gc
import os
import select
import sys
import threading
import time
from typing import Final, cast

from spark.erase.calls.any_call import Call
from spark.erase.hands.child import read_message, write_message
from spark.erase.unit import do

# The service answers first where both want a processor.
NICENESS: Final = 5


def _end_with_input(descriptor: int) -> None:
    """End this process as soon as nobody can send any more, whatever it is doing."""
    waiting = select.poll()
    # No event is asked for: a hang-up is always told.
    waiting.register(descriptor, 0)
    waiting.poll()
    os._exit(0)


def main() -> None:
    """Do calls until the input ends."""
    os.nice(NICENESS)
    # What is loaded stays to the end: the collector need not look at it again, least of all at the end.
    gc.freeze()
    answers = os.fdopen(os.dup(1), "wb")
    # Whatever anybody prints goes where errors go.
    os.dup2(2, 1)
    threading.Thread(target=_end_with_input, args=(0,), daemon=True).start()
    while (call := read_message(sys.stdin.buffer)) is not None:
        write_message(answers, do(cast(Call, call), clock=time.perf_counter))


if __name__ == "__main__":
    main()

"""Print the path of the Python that runs this, and how many microseconds a small piece of work takes it.

An interpreter that was built without optimisation, as pyenv builds by itself, needs half as long again.
"""

import sys
import time

ROUNDS = 15


class Place:
    def __init__(self, number: int) -> None:
        self.number = number

    def beside(self, other: int) -> int:
        return self.number + other


def work() -> None:
    """Calls, attributes, dictionaries and texts: what a program of Python mostly does."""
    found: dict[str, int] = {}
    for number in range(3_000):
        found[f"{number:d}"] = Place(number).beside(1)
    sorted(found.items(), key=lambda each: -each[1])


def took_us() -> int:
    """The processor time of one round; other programs lengthen it and never shorten it."""
    began = time.process_time_ns()
    work()
    return (time.process_time_ns() - began) // 1_000


assert sys.version_info >= (3, 11)
print(min(took_us() for _ in range(ROUNDS)), sys.executable)

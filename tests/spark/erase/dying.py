"""A text that kills the first worker which unpickles it; for calls whose task dies."""

import os
from pathlib import Path


class Deadly(str):
    """A directory's name: whoever reads it first elsewhere ends at once."""

    def __reduce__(self) -> tuple[object, ...]:
        return read_by_a_worker, (str(self), os.getpid())


def read_by_a_worker(text: str, driver: int) -> str:
    """Die once, and leave a note of it; later it is a text like any other."""
    note = Path(text).with_name("died")
    if os.getpid() != driver and not note.exists():
        note.touch()
        os._exit(9)
    return text

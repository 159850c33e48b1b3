"""What a Python worker of Spark should not do again for each task."""

import gc
import sys

from pyspark import TaskContext

_seen = 0


def keep_modules() -> None:
    """In a worker: the collector of garbage need not look at what is loaded; elsewhere nothing.

    pyspark's daemon collects behind every task: 70 ms, once numba, pyarrow and SQLAlchemy are there.
    Called where a task has imported what it needs; what is alive then is never looked at again.
    """
    global _seen
    if TaskContext.get() is None or len(sys.modules) == _seen:
        return
    gc.collect()
    gc.freeze()
    _seen = len(sys.modules)

"""A service that kills itself (SIGKILL) at a named moment of a purge of tombstones, as its environment says.

DIES_AT is `MOMENT:COUNT`: the moment, and the how manieth time. The forge calls `prepare`; without it this
module runs as `lethe`, with the same arguments.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any, Final

from app.cli.main import main
from app.replication.tombstones import loop, task
from app.sweeps import frame
from spark.replication.tombstones import units
from spark.targets import transaction
from tests.forge import FIRST
from tests.journeys.service import LETHE, Service

VARIABLE: Final = "DIES_AT"
MOMENTS: Final[dict[str, tuple[Any, str]]] = {
    "planned": (loop, "plan_tombstones"),
    "opened": (frame, "open_archive"),
    "chosen": (loop.TombstoneWalk, "next_span"),
    "raised": (units, "raise_bound"),
    "archived": (transaction, "archive_delete"),
    "deleted": (units, "delete_rows"),
    "recorded": (transaction, "_record"),
    "committed": (loop, "run_tombstones"),
    "counted": (loop.BurialCourse, "count"),
    "swept": (task, "forget_removed"),
    "told": (task, "left_result"),
    "closed": (frame, "end_archive"),
}
"""After the return of what happens there. Up to `recorded` the unit is not committed."""
AT_THE_END: Final = ("swept", "told", "closed")


def dying_at(service: Service, moment: str) -> None:
    """Let the process that begins next die at a moment."""
    service.settings |= {VARIABLE: moment, FIRST: __name__}
    if os.environ.get("LETHE_TEST_FORGE") == "0":
        service.command = [sys.executable, "-m", __name__]


def living(service: Service) -> None:
    """Let the process that begins next live."""
    service.settings.pop(FIRST, None)
    service.command = [LETHE]


def die_at(moment: str, count: int) -> None:
    """Put an end behind a function."""
    place, name = MOMENTS[moment]
    real, left = getattr(place, name), [count]

    def dying(*args: Any, **named: Any) -> Any:
        found = real(*args, **named)
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    setattr(place, name, dying)


def prepare() -> None:
    """Put the end there that the environment names."""
    wanted, _, number = os.environ[VARIABLE].partition(":")
    die_at(wanted, int(number))


if __name__ == "__main__":
    prepare()
    sys.exit(main())

"""How far ahead of this service's clock a time of a peer may be: beyond it nothing follows it.

A CSN carries its maker's clock, and whoever follows it hands that on with every change of its own: so what is
too far ahead is refused by name before anything is adopted. What this replica holds already is no news.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from spark.formats.csn import Csn
from spark.replication.session_errors import ClockSkewed

AHEAD_MAX_S: Final = 300
"""Five minutes, where the store says nothing else."""


def require_in_time(csns: Iterable[Csn], *, now_s: int, ahead_max_s: int) -> None:
    """Raise ClockSkewed where a CSN is further ahead of the clock than that."""
    latest = max(csns, default=None)
    if latest is None or latest.timestamp - now_s <= ahead_max_s:
        return
    ahead_s = latest.timestamp - now_s
    raise ClockSkewed(
        f"{latest} of replica {latest.rid} is {ahead_s} s ahead of this service's clock, {ahead_max_s} s are"
        " taken (lethe.replication.clock.ahead.max): set the clocks; a replica that stays ahead is brought"
        " back by `lethe replication clock repair`",
        {"csn": str(latest), "rid": latest.rid, "ahead_s": ahead_s, "ahead_max_s": ahead_max_s},
    )


def news(shown: Mapping[int, Csn], held: Mapping[int, Csn]) -> list[Csn]:
    """The elements of a vector that are above what is held already."""
    return [csn for rid, csn in shown.items() if csn > held.get(rid, "")]

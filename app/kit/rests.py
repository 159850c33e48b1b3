"""Rests between looks: who had nothing for us, or did not answer, is asked ever less often."""

from collections.abc import MutableMapping, Set
from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True)
class Rest:
    """Until when somebody is not asked without a reason, and how long that was.

    Attributes:
        is_away: there was no answer: even a reason to ask waits.
    """

    until: datetime
    length: timedelta
    is_away: bool = False

    @classmethod
    def after(
        cls,
        before: "Rest | None",
        *,
        now: datetime,
        first: timedelta,
        longest: timedelta,
        is_away: bool = False,
    ) -> "Rest":
        """Twice as long as the one before, from the first up to the longest."""
        length = first if before is None else max(first, min(before.length * 2, longest))
        return cls(now + length, length, is_away)


def is_resting(rests: MutableMapping[str, Rest], name: str, *, now: datetime) -> bool:
    """Whether somebody is to be left alone still."""
    rest = rests.get(name)
    return rest is not None and now < rest.until


def forget_others(rests: MutableMapping[str, Rest], names: Set[str]) -> None:
    """Forget the rests of all that are gone."""
    for gone in rests.keys() - names:
        del rests[gone]

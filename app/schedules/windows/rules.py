"""What several windows say together, by the wall clock alone.

Rules:
- inside of windows the smallest intensity of all of them holds: a DENY of 0 wins over every ALLOW;
- where there is an ALLOW, nothing is allowed outside of all of them;
- a window lasts its duration in real time: on a day on which the clocks change it ends an hour earlier or
  later by the wall.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from app.schedules.crontab import Crontab

STEPS_MAX: Final = 400
"""Beginnings and ends that are looked through for the next time at which work may go on."""


class WindowKind(StrEnum):
    """Whether a window opens or closes."""

    ALLOW = "ALLOW"
    DENY = "DENY"


@dataclass(frozen=True, slots=True)
class Rule:
    """One window."""

    id: str
    kind: WindowKind
    crontab: Crontab
    duration: timedelta
    intensity: float

    def ends_at(self, at: datetime) -> datetime | None:
        """When the window that is open now ends; None: it is not open."""
        began = self.crontab.last_until(at)
        if began is None or at >= began + self.duration:
            return None
        return began + self.duration


@dataclass(frozen=True, slots=True)
class Level:
    """How hard may be worked.

    Attributes:
        rule: the window that says so; None: nothing says anything, or it lies outside of all ALLOW.
    """

    intensity: float
    rule: Rule | None


def level_at(rules: Sequence[Rule], at: datetime) -> Level:
    """What holds at an instant."""
    inside = [rule for rule in rules if rule.ends_at(at) is not None]
    allows = [rule for rule in rules if rule.kind is WindowKind.ALLOW]
    if allows and not any(rule in inside for rule in allows):
        return Level(0.0, next((rule for rule in inside if rule.intensity == 0.0), None))
    tightest = min(inside, key=lambda rule: rule.intensity, default=None)
    return Level(1.0, None) if tightest is None else Level(tightest.intensity, tightest)


def change_after(rules: Sequence[Rule], at: datetime) -> datetime | None:
    """The next end of a window that is open, or beginning of one that is not; None: there is none.

    One that begins anew while it is open ends later, and changes nothing before.
    """
    found = [rule.ends_at(at) or rule.crontab.next_after(at) for rule in rules]
    return min((each for each in found if each is not None), default=None)


@dataclass(frozen=True, slots=True)
class Opens:
    """When work may go on, from an instant at which it may not.

    Attributes:
        at: then; None: not as far as was looked.
        not_before: it may surely not before; None: it never may.
    """

    at: datetime | None
    not_before: datetime | None


def opens(rules: Sequence[Rule], at: datetime) -> Opens:
    """When work may go on, from an instant at which it may not."""
    for _ in range(STEPS_MAX):
        later = _closed_until(rules, at)
        if later is None:
            return Opens(None, None)
        at = later
        if level_at(rules, at).intensity > 0:
            return Opens(at, at)
    return Opens(None, at)


def _closed_until(rules: Sequence[Rule], at: datetime) -> datetime | None:
    """An instant before which nothing opens what is closed now; None: there is none.

    Not the next change of any window: what neither holds the work nor could let it go on is passed over.
    """
    bounds = [end for rule in rules if rule.intensity == 0.0 and (end := rule.ends_at(at)) is not None]
    allows = [rule for rule in rules if rule.kind is WindowKind.ALLOW]
    if allows and all(rule.ends_at(at) is None for rule in allows):
        begins = [begun for rule in allows if (begun := rule.crontab.next_after(at)) is not None]
        if not begins:
            return None
        bounds.append(min(begins))
    return max(bounds, default=None)


def finishes_at(rules: Sequence[Rule], at: datetime, *, work_s: float) -> datetime | None:
    """When work of so many seconds at full intensity is done; None: not within the steps looked through."""
    for _ in range(STEPS_MAX):
        intensity, changed = level_at(rules, at).intensity, change_after(rules, at)
        room_s = float("inf") if changed is None else (changed - at).total_seconds() * intensity
        if intensity > 0 and work_s <= room_s:
            return at + timedelta(seconds=work_s / intensity)
        if changed is None:
            return None
        work_s -= room_s
        at = changed
    return None

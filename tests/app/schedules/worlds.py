"""Random crontabs and windows, and what differs from the minutes of a model."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

from app.schedules.crontab import Crontab
from app.schedules.windows.rules import STEPS_MAX, Rule, WindowKind, finishes_at, level_at, opens
from tests.app.schedules.minutes import CHANGES, MINUTE, ZONES, MinuteCron, random_cron


def fits(expression: str, zone: str, first: datetime, last: datetime) -> list[datetime]:
    return MinuteCron(expression, ZoneInfo(zone)).between(first, last)


def crons_differ(seed: int) -> str | None:
    """One expression in one zone around a change of its clocks; what differs."""
    draw = random.Random(seed)
    expression, zone = random_cron(draw), draw.choice(ZONES)
    crontab = Crontab(expression, zone)
    middle = draw.choice(CHANGES) + timedelta(minutes=draw.randint(-300, 300))
    first, last = middle - timedelta(hours=15), middle + timedelta(hours=15)
    expected = fits(expression, zone, first, last)
    on, at = [], first - timedelta(seconds=1)
    for found in crontab.upcoming(at):
        if found > last:
            break
        on.append(found)
    back, before = [], crontab.last_until(last)
    while before is not None and before >= first:
        back.append(before)
        before = crontab.last_until(before - timedelta(seconds=1))
    if on == expected and back[::-1] == expected:
        return None
    return f"{seed}: {expression} in {zone}: {set(on) ^ set(expected)} {set(back) ^ set(expected)}"


# -- windows


def is_far(told: datetime | None, wanted: datetime | None, at: datetime) -> bool:
    """Whether more changes of windows may lie between than are looked through: then nothing is told."""
    return told is None and wanted is not None and wanted - at > STEPS_MAX * MINUTE


def differs(told: datetime | None, wanted: datetime, at: datetime) -> bool:
    """By more than what floating numbers cost."""
    if told is None:
        return not is_far(told, wanted, at)
    return abs(told - wanted) > timedelta(milliseconds=1)


def windows_differ(seed: int) -> str | None:
    """A few windows over a day and more: each minute's level, and when a closed one opens."""
    draw = random.Random(seed)
    middle = draw.choice(CHANGES) + timedelta(minutes=draw.randint(-300, 300))
    first, last = middle - timedelta(hours=14), middle + timedelta(hours=14)
    rules, open_minutes = [], []
    for number in range(draw.randint(1, 4)):
        cron, zone = random_cron(draw), draw.choice(ZONES)
        length = timedelta(minutes=draw.choice((1, 7, 30, 90, 600)))
        kind = draw.choice(list(WindowKind))
        intensity = draw.choice((0.0, 0.25, 0.5, 1.0))
        rules.append(Rule(f"win_{number}", kind, Crontab(cron, zone), length, intensity))
        covered: set[datetime] = set()
        for begun in fits(cron, zone, first - length, last):
            covered.update(begun + MINUTE * each for each in range(int(length / MINUTE)))
        open_minutes.append(covered)

    @cache
    def model(at: datetime) -> float:
        inside = [rule for rule, covered in zip(rules, open_minutes, strict=True) if at in covered]
        allows = [rule for rule in rules if rule.kind is WindowKind.ALLOW]
        if allows and not set(allows) & set(inside):
            return 0.0
        return min((rule.intensity for rule in inside), default=1.0)

    for _ in range(12):
        at = first + MINUTE * draw.randint(0, int((last - first) / MINUTE))
        seen = level_at(rules, at + timedelta(seconds=draw.randint(0, 59))).intensity
        if seen != model(at):
            return f"{seed}: {at} is {seen}, not {model(at)}: {rules}"
        ahead = [each for each in (at + MINUTE * n for n in range(1, 2_000)) if each <= last]
        if model(at) == 0:
            due = next((each for each in ahead if model(each) > 0), None)
            told = opens(rules, at).at
            if (
                (due is not None or (told is not None and told <= last))
                and told != due
                and not is_far(told, due, at)
            ):
                return f"{seed}: closed at {at}, opens {told}, not {due}: {rules}"
        work_s = draw.choice((60.0, 1_800.0, 20_000.0))
        done_s, done_at = 0.0, None
        for each in (at, *ahead):
            step = model(each) * 60
            if step and done_s + step >= work_s:
                done_at = each + timedelta(seconds=(work_s - done_s) / model(each))
                break
            done_s += step
        told = finishes_at(rules, at, work_s=work_s)
        if done_at is not None and differs(told, done_at, at):
            return f"{seed}: work of {work_s} s from {at} is done {told}, not {done_at}: {rules}"
    return None

"""Worlds: random schedules, crontabs and windows, and what differs from the minutes of a model."""

from __future__ import annotations

import random
from collections import Counter
from datetime import datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

from sqlmodel import col, select, update

from app.db import Database
from app.schedules.crontab import Crontab
from app.schedules.rows import Schedule, ScheduleFiring
from app.schedules.rules import MISSED_AFTER
from app.schedules.windows.rules import STEPS_MAX, Rule, WindowKind, finishes_at, level_at, opens_at
from app.settings import Settings
from tests.app.schedules.minutes import (
    CHANGES,
    MINUTE,
    ZONES,
    MinuteCron,
    MinuteSchedule,
    random_cron,
)
from tests.app.schedules.schedules_bench import SchedulesBench, WallClock

SPAN = timedelta(hours=30)
IN_A_WORLD = 30


def fits(expression: str, zone: str, first: datetime, last: datetime) -> list[datetime]:
    return MinuteCron(expression, ZoneInfo(zone)).between(first, last)


def looks(draw: random.Random, begin: datetime) -> list[datetime]:
    """When somebody looks: every so often, after long sleeps, and with a clock that is set."""
    at, found = begin, []
    while len(found) < 40:
        kind = draw.random()
        if kind < 0.7:
            at += timedelta(seconds=draw.choice((10, 30, 60, 90, 300)))
        elif kind < 0.85:
            at += timedelta(minutes=draw.randint(20, 300))
        else:
            at -= timedelta(minutes=draw.choice((1, 30, 60, 61, 200)))
        found.append(min(max(at, begin - timedelta(hours=4)), begin + SPAN))
        at = found[-1]
    return found


def run_world(bench: SchedulesBench, seed: int) -> int:
    """Let one path of a clock meet many schedules; returns how many due times were fired."""
    draw = random.Random(seed)
    begin = draw.choice(CHANGES) + timedelta(minutes=draw.randint(-600, 600))
    bench.clock.set(begin)
    bench.scheduler = type(bench.scheduler)(bench.database, bench.settings, bench.clock)
    ann = bench.caller()
    written: dict[str, MinuteSchedule] = {}
    for _ in range(IN_A_WORLD):
        cron, zone = random_cron(draw), draw.choice(ZONES)
        missed = draw.choice(("SKIP", "RUN_ONCE"))
        jitter = draw.choice((0, 0, 45, 600))
        row = bench.write(
            ann, cron=cron, time_zone=zone, missed=missed, jitter=timedelta(seconds=jitter), store="shop"
        )
        offset = timedelta(0)
        if row.next_at is not None and row.next_due is not None:
            offset = row.next_at - row.next_due
        assert timedelta(0) <= offset <= timedelta(seconds=jitter)
        due_times = fits(cron, zone, begin - timedelta(hours=6), begin + SPAN)
        model = MinuteSchedule(due_times, offset, makes_up=missed == "RUN_ONCE", late_after=MISSED_AFTER)
        model.now = begin
        model.begin(begin)
        written[row.id] = model
    bench.set_token(ann, revoked_at=begin)  # each due time is refused: it is written down, and makes no job
    expected: list[tuple[str, datetime, datetime]] = []
    for at in looks(draw, begin):
        bench.look_at(at)
        for name, model in written.items():
            due = model.look(at)
            if due is not None:
                expected.append((name, due, at))
    with bench.database.reading() as db:
        query = select(ScheduleFiring).where(col(ScheduleFiring.schedule_id).in_(written))
        got = [(row.schedule_id, row.due_at, row.fired_at) for row in db.exec(query).all()]
        crons = {row.id: (row.cron, row.time_zone, row.missed) for row in db.exec(select(Schedule)).all()}
    wrong = set(got) ^ set(expected)
    assert not wrong, (seed, [(crons[name], due, at) for name, due, at in sorted(wrong)])
    assert max(Counter(expected).values(), default=1) == 1
    with bench.database.transaction() as db:
        db.execute(update(Schedule).values(next_at=None, next_due=None, reckoned_at=begin - SPAN))
    return len(got)


def world_bench(database: Database, settings: Settings) -> SchedulesBench:
    clock = WallClock()
    database.clock = clock
    bench = SchedulesBench(database, settings, clock)
    bench.store()
    return bench


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
            opens = next((each for each in ahead if model(each) > 0), None)
            told = opens_at(rules, at)
            if (
                (opens is not None or (told is not None and told <= last))
                and told != opens
                and not is_far(told, opens, at)
            ):
                return f"{seed}: closed at {at}, opens {told}, not {opens}: {rules}"
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

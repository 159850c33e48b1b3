"""Larger casts than the model can exhaust: random schedules in memory, and over the real control file."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark.targets.files.control_record import ProtectedRange
from tests.spark.targets.control_descriptors import InMemory, OnDisk, Unsynced, run_schedule
from tests.spark.targets.control_programs import (
    Change,
    Program,
    Rules,
    change_at_once,
    change_by_steps,
    claim,
    protector,
    recover_protection,
    writer,
)

HELD = (
    ProtectedRange("a", "BACKUP", 0, 0),
    ProtectedRange("b", "SCAN", 0, None),
    ProtectedRange("c", "FEEDER", 1, 1),
)
ACTORS = ("writer", "a", "b", "claim 2", "c", "claim 3")


def cast(rules: Rules, change: Change) -> tuple[Mapping[str, Callable[[], Program]], Mapping[str, str]]:
    made: dict[str, Callable[[], Program]] = {
        "writer": partial(writer, rules, epoch=1, numbers=(0, 1, 0, 1), writes=3)
    }
    after_crash = {"writer": "claim 4", "claim 2": "claim 4", "claim 3": "claim 4"}
    for held in HELD:
        made[held.id] = partial(protector, rules, held=held, change=change)
        made[f"{held.id} again"] = partial(recover_protection, rules, held=held, change=change)
        after_crash[held.id] = after_crash[f"{held.id} again"] = f"{held.id} again"
    for epoch in (2, 3, 4):
        made[f"claim {epoch}"] = partial(claim, rules, epoch=epoch, numbers=(1, 0), change=change, writes=3)
    return made, after_crash


def crashing(schedule: Sequence[int], deaths: Sequence[int]) -> list[int]:
    """The schedule with deaths in it: at turn n the one whose turn it is dies."""
    return [-turn if place in deaths and turn else turn for place, turn in enumerate(schedule)]


def is_whole(steps: list[str]) -> bool:
    """Whether all programs came to their ends; else the last step says what happened."""
    return " -> " in steps[-1] or steps[-1].endswith("dies")


def on_disk(rules: Rules, actors: Sequence[str], schedule: Sequence[int]) -> list[str]:
    programs, after_crash = cast(rules, change_at_once)
    with tempfile.TemporaryDirectory(prefix="control-") as directory:
        world = OnDisk(Path(directory), calls=Unsynced())
        try:
            steps = run_schedule(world, programs, actors=actors, schedule=schedule, after_crash=after_crash)
            if is_whole(steps):
                assert world.locks_left() == []
                assert set(world._file("observer").read().ranges) == set(world.judge.active())
        finally:
            world.close()
    return steps


@given(st.lists(st.integers(0, 11), max_size=200), st.sets(st.integers(0, 199), max_size=3))
@settings(max_examples=150, deadline=None)
def test_random_schedules_of_six_in_memory_have_no_fault(schedule: list[int], deaths: set[int]) -> None:
    programs, after_crash = cast(Rules(), change_by_steps)
    world = InMemory()
    steps = run_schedule(
        world,
        programs,
        actors=ACTORS,
        schedule=crashing(schedule, sorted(deaths)),
        after_crash=after_crash,
    )
    assert is_whole(steps), "\n".join(steps)
    assert set(world.memory.record.ranges) == set(world.judge.active())
    assert world.memory.locks == frozenset()


@given(st.lists(st.integers(0, 11), max_size=150), st.sets(st.integers(0, 149), max_size=3))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_random_schedules_of_six_over_real_descriptors_have_no_fault(
    schedule: list[int], deaths: set[int]
) -> None:
    steps = on_disk(Rules(), ACTORS, crashing(schedule, sorted(deaths)))
    assert is_whole(steps), "\n".join(steps)


def switching(first: int, second: int, switches: Sequence[int], length: int) -> list[int]:
    """The first goes on until a switch, then the second until the next one, and so on."""
    turns, who = [], first
    for turn in range(length):
        if turn in switches:
            who = second if who == first else first
        turns.append(who)
    return turns


@pytest.mark.parametrize("other", ["a", "claim 2"])
def test_every_schedule_with_two_switches_over_real_descriptors_has_no_fault(other: str) -> None:
    length = 24
    for switches in combinations(range(length), 2):
        steps = on_disk(Rules(), ("writer", other), switching(0, 1, switches, length))
        assert is_whole(steps), "\n".join((str(switches), *steps))


@pytest.mark.parametrize(
    ("rules", "other", "fault"),
    [
        (Rules(waits_for_round=False), "a", "writer/0 wrote to protected file 0"),
        (Rules(reads_under_lock=False, checks_stop=False), "a", "writer/0 wrote to protected file 0"),
        (Rules(checks_stop=False), "claim 2", "writer/0 wrote 2 times under epoch 1 after the claim of 2"),
    ],
)
def test_wrong_protocol_is_found_over_real_descriptors(rules: Rules, other: str, fault: str) -> None:
    length = 24
    assert any(
        fault in on_disk(rules, ("writer", other), switching(0, 1, switches, length))[-1]
        for switches in combinations(range(length), 2)
    )

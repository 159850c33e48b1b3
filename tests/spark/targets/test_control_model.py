"""All interleavings of writers, protectors, claims and crashes, step by step; and proof that the model bites.

Each wrong protocol below differs from the right one in one rule. If the model did not find its fault, it
would say nothing about the right one either.
"""

from collections.abc import Callable
from functools import partial

import pytest

from spark.targets.files.control_record import ProtectedRange
from tests.spark.targets.control_memory import Exploration, Programs, explore
from tests.spark.targets.control_programs import (
    Program,
    Rules,
    change_by_steps,
    claim,
    protector,
    recover_protection,
    writer,
)

STATES_MAX = 60_000
LONG_STATES_MAX = 1_500_000
RIGHT = Rules()
FIRST = ProtectedRange("first", "BACKUP", 0, 0)
BOTH = ProtectedRange("both", "SCAN", 0, None)
SECOND = ProtectedRange("second", "FEEDER", 1, 1)


def nothing() -> Program:
    yield from ()


def programs(rules: Rules) -> Programs:
    made: dict[str, Callable[[], Program]] = {
        "nothing": nothing,
        "writer": partial(writer, rules, epoch=1, numbers=(0,)),
        "writer of two": partial(writer, rules, epoch=1, numbers=(0, 1)),
        "other writer": partial(writer, rules, epoch=1, numbers=(1,), writes=1),
    }
    for held in (FIRST, BOTH, SECOND):
        protect = partial(protector, rules, held=held, change=change_by_steps)
        made[held.id] = protect
        made[f"{held.id} in haste"] = partial(protect, may_give_up=True)
        made[f"{held.id} again"] = partial(recover_protection, rules, held=held, change=change_by_steps)
    for epoch in (2, 3):
        made[f"claim {epoch}"] = partial(
            claim, rules, epoch=epoch, numbers=(0,), change=change_by_steps, writes=1
        )
    return made


def run(
    *actors: str,
    rules: Rules = RIGHT,
    crashes: int = 0,
    states_max: int = STATES_MAX,
    judges_end: bool = True,
) -> Exploration:
    after_crash = {"writer": "claim 2", "writer of two": "claim 2", "other writer": "claim 2"}
    after_crash |= {"claim 2": "claim 3"}
    for held in (FIRST, BOTH, SECOND):
        for name in (held.id, f"{held.id} in haste", f"{held.id} again"):
            after_crash[name] = f"{held.id} again"
    return explore(
        programs(rules),
        actors=actors,
        crashes=crashes,
        after_crash=after_crash,
        states_max=states_max,
        judges_end=judges_end,
    )


SCENES = [
    (("writer of two", "first"), 2),
    (("writer of two", "both in haste"), 2),
    (("first", "both"), 2),
    (("writer of two", "claim 2"), 2),
    (("writer", "other writer", "both"), 0),
    (("writer", "claim 2", "first"), 0),
    (("claim 2", "claim 3", "writer"), 0),
    (("writer", "first", "both"), 0),
]
LONG_SCENES = [
    (("writer", "first", "both"), 1),
    (("writer", "first", "second"), 1),
    (("writer of two", "other writer", "both"), 1),
    (("writer", "claim 2", "first"), 1),
]


def assert_no_fault(found: Exploration) -> None:
    assert found.fault == "", "\n".join((found.fault, *found.steps))
    assert found.ends > 1


@pytest.mark.parametrize(("actors", "crashes"), SCENES)
def test_right_protocol_has_no_fault_in_any_interleaving(actors: tuple[str, ...], crashes: int) -> None:
    assert_no_fault(run(*actors, crashes=crashes))


@pytest.mark.long
@pytest.mark.parametrize(("actors", "crashes"), LONG_SCENES)
def test_right_protocol_has_no_fault_in_many_interleavings(actors: tuple[str, ...], crashes: int) -> None:
    assert_no_fault(run(*actors, crashes=crashes, states_max=LONG_STATES_MAX))


@pytest.mark.parametrize(
    ("rules", "actors", "crashes", "fault"),
    [
        # Without the stop check a round outlives a claim; the wait for byte n alone saves the backup.
        (Rules(checks_stop=False), ("writer", "claim 2"), 0, "writer/0 wrote 2 times under epoch 1 after"),
        (Rules(checks_epoch=False), ("writer", "claim 2"), 0, "under epoch 1 after"),
        # The record is read before the lock: what came in between is overlooked, unless stop tells of it.
        (Rules(reads_under_lock=False, checks_stop=False), ("writer", "first"), 0, "protected file 0"),
        (
            Rules(reads_under_lock=False, remembers_stop_of_record=False),
            ("writer", "first"),
            0,
            "protected file 0",
        ),
        (Rules(range_before_lock=False), ("writer", "first"), 0, "writer/0 wrote to protected file 0"),
        (Rules(waits_for_round=False), ("writer", "first"), 0, "writer/0 wrote to protected file 0"),
        # Two protectors that read, change and write without the lock of byte 2^62.
        (Rules(locks_record=False), ("first", "both"), 0, "is lost"),
        # A range without a row: nobody ever takes it back.
        (Rules(row_before_range=False), ("first",), 1, "at the end the rows say set(), the record"),
    ],
)
def test_wrong_protocol_is_found(rules: Rules, actors: tuple[str, ...], crashes: int, fault: str) -> None:
    found = run(*actors, rules=rules, crashes=crashes, judges_end="at the end" in fault)

    assert fault in found.fault, found
    assert found.steps


def test_rule_that_two_mistakes_must_break_holds_with_one() -> None:
    """The stop counter and the reading under the lock stand in for each other: either alone is enough."""
    assert_no_fault(run("writer of two", "first", rules=Rules(reads_under_lock=False)))
    assert_no_fault(run("writer of two", "first", rules=Rules(checks_stop=False)))

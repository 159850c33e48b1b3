"""Which units go together: bounded at each place, sized by time, a suspect alone."""

from __future__ import annotations

from collections import Counter, deque

from spark.exchange.gather import Gathered, Pending, Waiting, gather


def waiting(
    place: str, units: int, *, workers: int = 2, unit_s: float | None = 0.3, size: int = 0
) -> Waiting:
    made = [Pending(number, number, bytes(size)) for number in range(units)]
    return Waiting(place, workers, "BULK", deque(made), unit_s)


def shape(found: list[Gathered]) -> list[tuple[str, int]]:
    return [(task.lease.place, len(task.units)) for task in found]


def gathered(
    *leases: Waiting, running: dict[str, int] | None = None, tasks_max: int = 64, bytes_max: int = 1000
) -> list[Gathered]:
    counts = Counter(running or {})
    return gather(leases, counts.__getitem__, tasks_max=tasks_max, task_s=1.5, bytes_max=bytes_max)


def test_units_are_shared_among_the_workers_of_a_place() -> None:
    assert shape(gathered(waiting("a", 6))) == [("a", 3), ("a", 3)]


def test_task_holds_no_more_than_is_worth_its_time() -> None:
    lease = waiting("a", 40)
    assert shape(gathered(lease)) == [("a", 5), ("a", 5)]
    assert len(lease.units) == 30


def test_short_units_make_long_tasks() -> None:
    assert shape(gathered(waiting("a", 400, unit_s=0.01))) == [("a", 150), ("a", 150)]


def test_units_longer_than_a_task_go_one_by_one() -> None:
    assert shape(gathered(waiting("a", 5, unit_s=9.0))) == [("a", 1), ("a", 1)]


def test_tasks_that_run_at_a_place_count_for_all_leases_there() -> None:
    first, second, other = waiting("a", 9), waiting("a", 9), waiting("b", 9)
    assert shape(gathered(first, second, other, running={"a": 1})) == [("a", 5), ("b", 5), ("b", 4)]


def test_leases_take_turns_until_the_job_is_full() -> None:
    leases = [waiting(place, 50) for place in "abc"]
    assert shape(gathered(*leases, tasks_max=4)) == [("a", 5), ("b", 5), ("c", 5), ("a", 5)]


def test_suspect_unit_has_a_job_for_itself() -> None:
    suspect, other = waiting("a", 3), waiting("b", 3)
    suspect.units[0].alone = True
    assert shape(gathered(suspect, other)) == [("a", 1)]
    assert shape(gathered(other, suspect)) == [("b", 2), ("a", 1), ("b", 1), ("a", 1)]


def test_job_carries_no_more_bytes_than_it_may_and_one_unit_in_any_case() -> None:
    """All that run at a time have all of them in memory: those of one plan may be megabytes of keys."""
    large, other = waiting("a", 9, size=300), waiting("b", 9, size=10)
    assert shape(gathered(large, other)) == [("a", 3), ("b", 5), ("b", 4)]
    assert [len(large.units), len(other.units)] == [6, 0]
    huge = waiting("a", 3, size=5000)
    assert shape(gathered(huge, waiting("b", 3, size=1))) == [("a", 1)]
    assert len(huge.units) == 2


def test_suspect_unit_waits_for_its_turn() -> None:
    suspect, other = waiting("a", 3), waiting("b", 3)
    suspect.units[1].alone = True
    assert shape(gathered(other, suspect)) == [("b", 2), ("a", 1), ("b", 1)]
    assert [unit.ticket for unit in suspect.units] == [1, 2]

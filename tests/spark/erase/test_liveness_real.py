"""The plan against an independent model of what is alive, on environments that JE wrote."""

import hashlib
from functools import cache
from pathlib import Path

import pytest

from spark.erase.calls.request import PlanRequest
from spark.erase.plan.plan import Plan, plan_erasure
from spark.erase.reasons import Cause
from tests.oracles.je_liveness import Rule, Verdict, judge
from tests.oracles.je_liveness_reader import Log, read_environment
from tests.oracles.je_liveness_recovery import as_the_user_sees, recover, replay, with_erased
from tests.spark.erase.conftest import Sample
from tests.spark.erase.liveness import chosen_by

SAMPLES = ["closed", "crash", "replicated", "swept", "halted", "comparator"]
WHOLE = ["closed", "crash", "replicated"]  # in which the cleaner has deleted nothing


@cache
def log_of(path: Path) -> Log:
    return read_environment(path)


@cache
def verdict_of(path: Path) -> Verdict:
    return judge(log_of(path))


@cache
def plan_of(path: Path) -> Plan:
    return plan_erasure(path, PlanRequest())


def digests(records: set[tuple[str, bytes, bytes]]) -> set[tuple[str, str, str]]:
    return {(name, key.hex(), hashlib.sha256(value).hexdigest()) for name, key, value in records}


@pytest.mark.parametrize("name", SAMPLES)
def test_records_of_a_replayed_recovery_are_those_that_je_read(samples: dict[str, Sample], name: str) -> None:
    log = log_of(samples[name].path)
    recovered = recover(log)
    live = {tuple(record) for record in samples[name].expected["live_records"]}
    assert digests(as_the_user_sees(log, recovered.records)) == live
    assert (recovered.fatal, recovered.missing) == ([], [])
    if name in WHOLE:
        assert digests(as_the_user_sees(log, replay(log))) == live


@pytest.mark.parametrize(("name", "count"), [("closed", 8725), ("crash", 4791)])
def test_model_calls_obsolete_what_je_itself_erased(
    samples: dict[str, Sample], name: str, count: int
) -> None:
    verdict, rule = verdict_of(samples[name].path), Rule(log_of(samples[name].path))
    end = rule.first_active >> 32
    theirs = {
        (int(file[:8], 16) << 32) + offset
        for file, offsets in samples[name].expected["je_erased_offsets"].items()
        for offset in offsets
        if int(file[:8], 16) < end
    }
    ours = set(verdict.erasable)
    assert len(ours) == count
    if name == "closed":
        assert ours == theirs
    # After a recovery JE knew more: those entries are reached from A on, and from nowhere else.
    assert ours <= theirs
    for lsn in theirs - ours:
        ln = rule.log.at[lsn]
        assert ln.db is not None
        newest = [each for each in rule.lns if (each.db, each.key) == (ln.db, ln.key)][-1]
        assert not rule.is_before(newest.lsn)


@pytest.mark.parametrize("name", SAMPLES)
def test_plan_erases_what_the_model_calls_obsolete_and_nothing_else(
    samples: dict[str, Sample], name: str
) -> None:
    path = samples[name].path
    plan, verdict = plan_of(path), verdict_of(path)
    ours = chosen_by(plan)
    assert not ours.keys() & verdict.must_stay.keys()
    assert ours.items() <= verdict.obsolete.items()
    whole_file_stays = {file.columns.number for file in plan.files if file.causes}
    few = {lsn for lsn in verdict.erasable.keys() - ours.keys() if lsn >> 32 not in whole_file_stays}
    assert few == set()
    if name == "comparator":
        assert all(Cause.COMPARATOR in file.causes for file in plan.files)


@pytest.mark.parametrize("name", SAMPLES)
def test_plan_and_model_veto_the_same(samples: dict[str, Sample], name: str) -> None:
    path = samples[name].path
    verdict = verdict_of(path)
    by_tree = {lsn for lsn in verdict.vetoed if verdict.must_stay[lsn] != "VLSN_INDEX"}
    assert {lsn for lsn, _ in plan_of(path).vetoed} == by_tree
    assert len(by_tree) == (7 if name == "swept" else 0)


@pytest.mark.parametrize("name", SAMPLES)
def test_recovery_after_the_plan_fetches_nothing_erased(samples: dict[str, Sample], name: str) -> None:
    log = log_of(samples[name].path)
    before, after = recover(log), recover(with_erased(log, chosen_by(plan_of(samples[name].path))))
    assert after.fatal == []
    assert after == before


@pytest.mark.parametrize("name", ["halted", "crash"])
def test_whatever_a_recovery_fetches_is_noticed_when_it_is_erased(
    samples: dict[str, Sample], name: str
) -> None:
    # The judge itself: without a node or an LN that slots name, a recovery is no recovery.
    log = log_of(samples[name].path)
    before = recover(log)
    needed = sorted(before.fetched)
    assert len(needed) > 500
    assert set(needed) <= verdict_of(samples[name].path).must_stay.keys()
    for lsn in needed[:: len(needed) // 7]:
        after = recover(with_erased(log, {lsn}))
        assert after.fatal or after.records != before.records

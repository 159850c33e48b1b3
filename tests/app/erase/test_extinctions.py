"""Extinctions in cycles: what a plan is told of them, what waits for them, and what makes it plan again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from app.extinction.records import insert_row, note_attested, note_dropped, note_logged
from app.extinction.rows import ExtinctionOrigin, ExtinctionRow, ExtinctionState
from app.extinction.status import known_extinctions, note_log_extinctions
from app.stores.rows import ExtinctionFilterMode
from spark.erase.calls.calls import PlanCall
from spark.erase.calls.request import ExtinctionTerms, FilterMode, HoldingExtinction, LogExtinction
from spark.formats.extinction import Extinction
from tests.app.erase.erasers import Erasers
from tests.app.erase.fake_hands import FakeLog

WAITS = {"EXTINCTION_METADATA": "3 entries may be extinct"}
RANGE = Extinction("ext_01k9x2m4c6d8e0f2g4h6j8k0mn", frozenset({b"users"}), b"a", b"b", label="users of 2024")


def add(erasers: Erasers, extinction: Extinction = RANGE, **values: Any) -> None:
    fields = {"state": ExtinctionState.RESERVED, "now": erasers.clock.now()} | values
    with erasers.database.transaction() as db:
        insert_row(db, erasers.store_id, extinction, **fields)


def settle(erasers: Erasers, *, committed: bool) -> None:
    with erasers.database.transaction() as db:
        row = db.get_one(ExtinctionRow, (erasers.store_id, RANGE.id))
        if committed:
            note_logged(db, row, now=erasers.clock.now())
        else:
            note_dropped(db, row)


def told(log: FakeLog) -> list[ExtinctionTerms]:
    return [call.request.extinctions for call in log.asked if isinstance(call, PlanCall)]


def installed(erasers: Erasers) -> None:
    erasers.change_store(extinction_filter=ExtinctionFilterMode.INSTALLED)


def test_file_that_may_hold_extinct_records_waits_and_the_others_are_erased(
    erasers: Erasers, log: FakeLog
) -> None:
    installed(erasers)
    add(erasers)
    log.files[0].causes = WAITS
    erasers.begin()
    erasers.run()
    assert erasers.states() == {0: "PENDING", 1: "ERASED", 2: "NOT_SELECTED"}
    job = erasers.job()
    assert (job.state, job.waiting_on[0]["kind"], job.waiting_on[0]["ref"]) == (
        "WAITING",
        "EXTINCTION_METADATA",
        "0x0",
    )
    assert erasers.cycle().state == "RUNNING"
    assert told(log) == [ExtinctionTerms(FilterMode.INSTALLED, (), (RANGE.to_json(),))]


def test_extinction_that_is_settled_has_the_cycle_plan_again_and_go_on(
    erasers: Erasers, log: FakeLog
) -> None:
    installed(erasers)
    add(erasers)
    log.files[0].causes = WAITS
    erasers.begin()
    erasers.run()
    settle(erasers, committed=True)
    log.files[0].causes = {}
    erasers.run(until_s=30)
    assert (erasers.cycle().state, erasers.states()[0]) == ("COMPLETE", "ERASED")
    holding = (HoldingExtinction(RANGE.to_json()),)
    assert told(log)[1:] == [ExtinctionTerms(FilterMode.INSTALLED, holding)]


def test_extinction_that_never_was_frees_the_file(erasers: Erasers, log: FakeLog) -> None:
    installed(erasers)
    add(erasers)
    log.files[0].causes = WAITS
    erasers.begin(min_file_age="PT0S", duration="PT1000S")
    erasers.run()
    settle(erasers, committed=False)
    log.files[0].causes = {}
    erasers.run(until_s=3000)
    assert erasers.cycle().state == "COMPLETE"
    assert told(log)[-1] == ExtinctionTerms(FilterMode.INSTALLED)


def test_cycle_whose_end_comes_first_is_incomplete_and_says_why(erasers: Erasers, log: FakeLog) -> None:
    installed(erasers)
    add(erasers)
    log.files[0].causes = WAITS
    erasers.begin(min_file_age="PT0S", duration="PT100S")
    erasers.run(until_s=200)
    assert erasers.cycle().state == "INCOMPLETE"
    assert erasers.cycle().incomplete == {"EXTINCTION_METADATA": ["00000000.jdb"]}


def test_attestation_and_new_extinctions_make_it_plan_again(erasers: Erasers, log: FakeLog) -> None:
    installed(erasers)
    add(erasers, state=ExtinctionState.LOGGED)
    protection = erasers.protect(0, lease=timedelta(hours=20))
    erasers.begin()
    erasers.run()
    with erasers.database.transaction() as db:
        row = db.get_one(ExtinctionRow, (erasers.store_id, RANGE.id))
        note_attested(db, row, now=erasers.clock.now(), caller="ann", reason="r")
    erasers.unprotect(protection)
    erasers.run(until_s=100)
    assert erasers.cycle().state == "COMPLETE"
    assert told(log) == [
        ExtinctionTerms(FilterMode.INSTALLED, (HoldingExtinction(RANGE.to_json(), attested),))
        for attested in (False, True)
    ]


def test_store_without_a_filter_tells_the_plan_nothing(erasers: Erasers, log: FakeLog) -> None:
    add(erasers, state=ExtinctionState.LOGGED)
    erasers.begin()
    erasers.run()
    assert told(log) == [ExtinctionTerms()]


def test_extinctions_of_the_log_are_noted_once_and_those_of_a_java_filter_are_maybe(
    erasers: Erasers, log: FakeLog
) -> None:
    plain = Extinction("ext_0000000000" + "a" * 16, frozenset({b"users"}), b"a", None, label="by JE")
    filtered = Extinction("ext_0000000000" + "b" * 16, frozenset({b"users"}), None, b"a")
    found = [LogExtinction(7, plain.to_json(), False), LogExtinction(9, filtered.to_json(), True)]
    for _ in range(2):
        with erasers.database.transaction() as db:
            note_log_extinctions(db, erasers.store_id, found, now=erasers.clock.now())
    with erasers.database.reading() as db:
        known = known_extinctions(db, erasers.store_id)
        rows = [db.get_one(ExtinctionRow, (erasers.store_id, each.id)) for each in (plain, filtered)]
    assert (known.holding, known.reserved, known.filtered) == ((plain,), (), (filtered,))
    assert [(row.origin, row.state, row.has_java_filter) for row in rows] == [
        (ExtinctionOrigin.LOG, "DONE", False),
        (ExtinctionOrigin.LOG, "DONE", True),
    ]

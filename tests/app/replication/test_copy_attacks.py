"""Attacks on a total initialisation that is under way, over the product's own sessions; see copy_world.

Whatever is put back, purged, killed or sent in between: in the end the consumer shows what its supplier
shows, it would refuse what its supplier would refuse, and no attempt ends without a word of what to do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.app.replication.copy_chaos import Chaos
from tests.app.replication.copy_world import Ending, Kept, World, die

SEEDS, SEEDS_LONG = 8, 400


@pytest.fixture
def world(tmp_path: Path, sqlite_template: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World(tmp_path, sqlite_template, monkeypatch)
    for number in range(9):
        made.a.write(b"k%02d" % number, b"v")
    yield made
    made.close()


def level(world: World) -> None:
    """Also after another change."""
    for _ in range(2):
        supplier, consumer = world.a.state(), world.c.state()
        assert (supplier.replica.status, consumer.replica.status) == ("ONLINE", "ONLINE")
        assert consumer.vectors.ruv == supplier.vectors.ruv
        assert world.c.entries() == world.a.entries()
        assert world.a.write(b"later", b"v")
        assert world.lead.run("INCREMENTAL").code == "UP_TO_DATE"


def settled(world: World, ending: Ending) -> list[str]:
    """Do what the messages say; how each attempt ended."""
    world.quiet()
    codes = [ending.code]
    while codes[-1] != "UP_TO_DATE":
        assert len(codes) < 6, codes
        if world.a.state().replica.status == "RESTORED":
            world.a.recover()
        ending = world.lead.run("TOTAL") if ending.has_ended else world.lead.go_on()
        codes.append(ending.code)
    return codes


# -- the supplier is put back


@pytest.mark.parametrize("step", ["before entries", "before complete", "after complete", "before changes"])
def test_what_a_supplier_has_lost_since_is_never_shown(world: World, step: str) -> None:
    """A page showed a change, then the target was put back; behind the last page nobody looked."""
    kept: list[Kept] = []
    a = world.a
    world.at("after acquire", lambda: kept.append(a.back_up()), lambda: a.write(b"k08", b"lost"))
    world.at(step, lambda: a.put_back(kept[0]), number=5 if step == "before entries" else 1)
    ending = world.lead.run()
    assert ending.code == ("UP_TO_DATE" if step == "before changes" else "REPLICA_PUT_BACK"), ending
    assert "--total" in ending.detail or ending.code == "UP_TO_DATE"
    if step == "before changes":  # the consumer gets it as a change, and can bring it back
        assert world.c.entries()[b"k08"][1] == b"lost"
        return
    assert world.c.state().replica.status == "INITIALIZING"
    assert settled(world, ending)[-1] == "UP_TO_DATE"
    level(world)


def test_changes_that_a_supplier_lost_before_it_proved_them_are_its_loss_and_no_forgery(world: World) -> None:
    """The consumer refused them as unsigned, and the runbook would have let its admin trust the supplier."""
    a, kept = world.a, []
    writes = [lambda key=b"n%d" % number: a.write(key, b"lost") for number in range(5)]
    world.at("after acquire", lambda: kept.append(a.back_up()), *writes)
    world.at("after changes", lambda: a.put_back(kept[0]))
    ending = world.lead.run()
    assert (ending.code, "--total" in ending.detail) == ("REPLICA_PUT_BACK", True), ending
    settled(world, ending)
    level(world)


def test_a_supplier_that_gives_its_loss_up_and_writes_on_begins_anew(world: World) -> None:
    """Its RUV is past the lost change again before the next page is read: only its incarnation tells."""
    a, kept = world.a, []
    world.at("after acquire", lambda: kept.append(a.back_up()), lambda: a.write(b"k00", b"lost"))
    found_out = (lambda: a.put_back(kept[0]), lambda: a.write(b"k08", b"refused"), a.recover)
    world.at("after entries", *found_out, lambda: a.write(b"k08", b"another history"))
    ending = world.lead.run()
    assert (ending.code, "--total" in ending.detail) == ("REPLICA_PUT_BACK", True)
    assert settled(world, ending) == ["REPLICA_PUT_BACK", "UP_TO_DATE"]
    level(world)


def test_a_whole_machine_is_put_back_behind_a_purge(world: World) -> None:
    """Target and metadata forget the purge, and the bound of the pages after it; the consumer does not."""
    a, kept = world.a, []
    deleted = a.write(b"k05", None)
    world.at("after entries", lambda: kept.append(a.back_up()), lambda: a.bury())
    world.at("after entries", die, number=4)
    world.lead.submit()
    assert world.lead.attempt().code == "DIED"
    a.put_back(kept[0], metadata=True)
    assert settled(world, world.lead.go_on()) == ["UP_TO_DATE"]
    assert (a.entries()[b"k05"], a.state().replica.buried) == ((deleted, None), None)
    assert b"k05" not in world.c.entries()
    assert world.c.state().replica.buried == deleted


def test_older_changes_that_a_supplier_hears_of_after_it_was_put_back_begin_the_copy_anew(
    world: World,
) -> None:
    """Below the bound of the copy they would be refused, by every session that goes on with it."""
    late = world.b.write(b"k05", b"late")
    world.a.write(b"k05", None)
    kept = world.a.back_up()
    assert world.a.bury() == 1
    world.at("after complete", die)
    world.lead.submit()
    assert world.lead.attempt().code == "DIED"
    world.a.put_back(kept)
    assert world.bring().code == "UP_TO_DATE"
    assert settled(world, world.lead.go_on()) == ["UP_TO_DATE"]
    assert world.c.state().vectors.ruv[3] == late
    level(world)


# -- the consumer is put back


@pytest.mark.parametrize(
    ("to", "at"),
    [
        ("before entries", "before complete"),
        ("before complete", "after complete"),
        ("before changes", "after changes"),
        ("before changes", "before release as complete"),
        ("before acquire", "after entries"),
    ],
)
def test_a_consumer_that_is_put_back_goes_on_by_itself(world: World, to: str, at: str) -> None:
    kept: list[Kept] = []
    world.at("after acquire", lambda: world.a.write(b"k01", b"changed"))
    world.at(to, lambda: kept.append(world.c.back_up()))
    world.at(at, lambda: world.c.put_back(kept[0]))
    assert world.lead.run().code == "UP_TO_DATE"
    level(world)


@pytest.mark.parametrize("to", ["before complete", "before changes"])
def test_a_release_whose_consumer_was_put_back_is_not_waited_for(world: World, to: str) -> None:
    """Its supplier died in the release, and would have asked for it again for ever: BATCH_GAP."""
    kept: list[Kept] = []
    world.at("after acquire", lambda: world.a.write(b"k01", b"changed"))
    world.at(to, lambda: kept.append(world.c.back_up()))
    world.at("before release as complete", lambda: world.c.put_back(kept[0]), die)
    world.lead.submit()
    assert world.lead.attempt().code == "DIED"
    world.quiet()
    assert world.lead.go_on(attempts=2).code == "UP_TO_DATE"
    level(world)


def test_a_consumer_in_the_middle_of_an_older_copy_is_gone_on_with_where_that_is_right(world: World) -> None:
    kept: list[Kept] = []
    world.at("after entries", lambda: kept.append(world.c.back_up()), die, number=4)
    world.lead.submit()
    assert world.lead.attempt().code == "DIED"
    world.quiet()
    world.a.write(b"k00", None)
    assert world.lead.go_on().code == "UP_TO_DATE"
    assert world.a.bury() == 1
    world.at("after entries", lambda: world.c.put_back(kept[0]))
    assert world.lead.run().code == "UP_TO_DATE"
    assert b"k00" not in world.c.entries()
    level(world)


# -- both, and the metadata


def test_both_are_put_back_in_the_middle(world: World) -> None:
    kept: list[tuple[Kept, Kept]] = []
    a, c = world.a, world.c
    world.at("after acquire", lambda: a.write(b"k08", b"lost"))
    world.at("after entries", lambda: kept.append((a.back_up(), c.back_up())))
    world.at("after entries", lambda: a.write(b"k00", None), number=2)
    world.at("after entries", lambda: a.put_back(kept[0][0]), lambda: c.put_back(kept[0][1]), number=4)
    ending = world.lead.run()
    assert ending.code == "REPLICA_PUT_BACK"
    settled(world, ending)
    level(world)


@pytest.mark.parametrize("step", ["after entries", "after complete", "after release as complete"])
def test_metadata_from_before_the_job_begins_the_copy_anew(world: World, step: str) -> None:
    """Nobody here knows of the session that holds the lease, nor of what it has copied."""
    kept = world.a.back_up()
    world.at(step, die)
    world.lead.submit()
    assert world.lead.attempt().code == "DIED"
    world.quiet()
    world.a.put_back(kept, target=False, metadata=True)
    world.a.write(b"k00", None)
    world.lead.submit()
    waits = world.lead.attempt()
    if step != "after release as complete":
        assert (waits.code, waits.has_ended) == ("REPLICA_BUSY", False)
        world.lead.expire()
        assert world.lead.go_on().code == "UP_TO_DATE"
    level(world)


# -- another supplier


def test_a_supplier_that_comes_back_does_not_empty_what_another_one_has_copied(world: World) -> None:
    world.meet()
    world.at("after entries", die, number=3)
    world.lead.submit()
    assert world.lead.attempt().code == "DIED"
    world.quiet()
    world.b.write(b"of b", b"v")
    busy = world.rival.run(attempts=1)
    assert (busy.code, busy.has_ended) == ("REPLICA_BUSY", False)
    # Of which replica, but not in which session: whoever knows its name could send batches in it.
    assert "a session of replica" in busy.detail
    assert "rps_" not in busy.detail
    world.lead.expire()
    assert world.rival.go_on().code == "UP_TO_DATE"
    there = world.c.entries()
    assert there == world.b.entries()
    world.c.consents = False
    for _ in range(2):  # it lacks what `b` has brought
        ending = world.lead.go_on(attempts=2)
        assert ending.code in ("CONSUMER_AHEAD", "DISCARD_NOT_GRANTED"), ending
        assert (world.c.entries(), world.c.state().replica.status) == (there, "ONLINE")
        world.bring()
        world.lead.submit()


def test_two_suppliers_that_take_turns_leave_one_copy(world: World) -> None:
    world.meet()
    for lead in (world.lead, world.rival, world.lead):
        if not lead.job_id:
            lead.submit()
        world.lead.job_id or world.lead.submit()
        world.at("after entries", die, number=2)
        assert lead.attempt().code == "DIED"
        world.quiet()
        lead.expire()
    assert world.c.write(b"k00", b"no") is None, "half a copy takes no local change"
    assert world.rival.go_on().code == "UP_TO_DATE"
    assert world.c.entries() == world.b.entries()


# -- random


def _trials(seeds: range, folder: Path, template: Path) -> Counter[str]:
    happened: Counter[str] = Counter()
    for seed in seeds:
        place = folder / str(seed)
        place.mkdir()
        with pytest.MonkeyPatch.context() as patch:
            world = World(place, template, patch)
            try:
                trial = Chaos(world, seed)
                trial.run()
            finally:
                world.close()
        happened += trial.happened
    return happened


def test_random_attacks_leave_what_a_run_without_them_leaves(tmp_path: Path, sqlite_template: Path) -> None:
    happened = _trials(range(SEEDS), tmp_path, sqlite_template)
    assert {"PUT BACK a", "PUT BACK c", "ENDED DIED", "RIVAL", "BURIED"} <= happened.keys(), happened


@pytest.mark.long
@pytest.mark.parametrize("share", range(20))
def test_many_random_attacks(tmp_path: Path, sqlite_template: Path, share: int) -> None:
    size = SEEDS_LONG // 20
    _trials(range(SEEDS + share * size, SEEDS + (share + 1) * size), tmp_path, sqlite_template)

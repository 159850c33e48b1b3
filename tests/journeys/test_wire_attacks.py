"""T1 to T10: what broke trust in replication, over two and three services with sick wires between them.

Each service is a process with metadata and a target of its own; the wires cut, delay, double and flip.
T9 (answers in gzip) and what dribbles of T10 are in tests/http/test_sick_wire.py.
Source: issue 15, B1 to B7.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

from app.replication.peer.answers import PeerError, PeerRefused
from app.replication.peer.content_digest import TARGET_HEADER, target_digest
from spark.formats.csn import Csn
from spark.replication.proofs.chain import chain_of, seed_of
from spark.replication.proofs.values import History
from spark.replication.records import entry_schema, record_schema
from tests.journeys.service import until
from tests.journeys.sick_wire import DamagingWire, Faults, SickWire
from tests.journeys.wire_attacker import DAY_S, Attacker
from tests.journeys.wire_lives import live
from tests.journeys.wire_sites import Services, Star, three_services

pytestmark = pytest.mark.journey
SEED = 1_000
LIVES = 1
LIVES_LONG = 60
UNFINISHED = 40
DISCONNECTED = 20


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    """Three services, side by side."""
    with three_services(tmp_path_factory.mktemp("wire"), seed=SEED) as made:
        yield made


def test_t1_a_machine_put_back_and_written_to(services: Services) -> None:
    star = services.star(1, 2)
    a, b = star.nodes
    a.put("first")
    star.level()
    kept = a.back_up()
    a.put("x", "y", "z")
    assert star.bring(a, b) == "UP_TO_DATE"
    acknowledged = b.held()
    a.put_back_machine(kept)
    # Within that second its next change is numbered below the newest lost one, and the loss is seen sooner.
    newest = Csn(max(csn for csn, _ in acknowledged))
    until(lambda: time.time() >= newest.timestamp + 1)
    assert a.put("new")
    for supplier, consumer in ((b, a), (a, b)):
        assert star.bring(supplier, consumer) == "DIVERGED"
        assert star.bring(supplier, consumer, mode="TOTAL") in ("DIVERGED", "CONSUMER_AHEAD")
    assert star.bring(a, b, mode="TOTAL", discard=True) == "DISCARD_NOT_GRANTED"
    assert b.held() == acknowledged


def test_t2_a_replica_id_used_twice_in_a_star(services: Services) -> None:
    star = services.star(1, 5, 5)
    hub, leaf, twin = star.nodes
    hub.put("hub")
    leaf.put("leaf")
    assert star.bring(hub, leaf) == star.bring(leaf, hub) == "UP_TO_DATE"
    twin.put("twin")
    before = [node.held() for node in star.nodes]
    assert star.bring(twin, hub) == "DUPLICATE_RID"
    for mode in ("INCREMENTAL", "TOTAL"):
        assert star.bring(hub, twin, mode=mode) == "DUPLICATE_RID"
    assert star.bring(hub, twin, mode="TOTAL", discard=True) == "DUPLICATE_RID"
    assert [node.held() for node in star.nodes] == before
    assert twin.put("more")


@pytest.fixture(scope="module")
def level(services: Services) -> Star:
    """Two replicas that hold the same."""
    star = services.star(1, 2)
    for node in star.nodes:
        node.put(f"of {node.rid}", f"more of {node.rid}")
    star.level()
    return star


def test_t3_a_claim_about_own_changes_that_were_never_made(level: Star) -> None:
    victim = level.nodes[0]
    with Attacker(victim) as nine:
        seen, claimed, chain = nine.look(), nine.csn(rid=1, ahead_s=100), bytes(32)
        told = nine.echo(seen)
        assert seen.ruv is not None
        history = History(nine.public_key, {**told.heads, 1: nine.signed(1, claimed, chain)})
        assert nine.refused(ruv={**seen.ruv, 1: claimed}, history=history) == "HISTORY_UNPROVEN"
    assert victim.put(f"after {nine.rid}")
    level.assert_level()


def test_t4_a_clock_a_day_ahead(level: Star) -> None:
    victim = level.nodes[0]
    with Attacker(victim) as nine:
        seen = nine.look()
        assert seen.ruv is not None
        told, ahead = nine.echo(seen), nine.csn(ahead_s=DAY_S)
        assert nine.refused(ruv=seen.ruv, history=told, csn_now=ahead) == "CLOCK_SKEW"
        assert nine.refused(ruv={**seen.ruv, nine.rid: ahead}, history=told) == "CLOCK_SKEW"
        others = nine.csn(rid=2, ahead_s=DAY_S)
        assert nine.refused(ruv={**seen.ruv, 2: others}, history=told) == "CLOCK_SKEW"
    assert victim.put("in time")
    assert Csn(victim.vector()[1]).timestamp < time.time() + 60
    level.assert_level()


def _records(*rows: tuple[object, ...]) -> pa.RecordBatch:
    dicts = [dict(zip(record_schema().names, row, strict=True)) for row in rows]
    return pa.RecordBatch.from_pylist(dicts, schema=record_schema())


def test_t5_forged_changes_of_another_replica(level: Star) -> None:
    victim = level.nodes[1]
    before = victim.held()
    with Attacker(victim) as nine:
        seen = nine.look()
        assert seen.ruv is not None
        assert seen.history is not None
        name, granted = nine.acquire(ruv=seen.ruv, history=nine.echo(seen))
        csn = nine.csn(rid=1, ahead_s=2)  # above what was written within this second
        forged = _records((csn, seen.ruv[1], "CHANGE", b"db", b"of 1", b"forged"))
        _, ends = chain_of(forged, {1: seen.history.heads[1].chain})
        assert ends[1] is not None
        for proof in (None, nine.proof(1, csn, ends[1])):
            assert nine.send(name, granted.epoch, forged, proof) == "CHANGES_UNPROVEN"
        nine.release(name, granted.epoch)
    assert victim.held() == before
    level.nodes[0].put("true")
    level.assert_level()


@pytest.mark.parametrize("discard", [False, True], ids=["covered", "discard"])
def test_t6_a_peer_that_empties_a_replica_and_forges_a_copy(level: Star, discard: bool) -> None:
    # It showed the victim's own heads as the proof that it had all, and put its own entries in their place.
    victim = level.nodes[1]
    before = victim.held()
    with Attacker(victim) as nine:
        seen = nine.look()
        assert seen.ruv is not None
        code = "GRANTED"
        told = History(nine.public_key) if discard else nine.echo(seen)
        try:
            name, granted = nine.acquire(
                ruv=seen.ruv, history=told, mode="TOTAL", discard_consumer_changes=discard
            )
        except PeerRefused as error:
            code = error.code
        else:
            rows = [(b"db", b"of 1", b"forged", str(seen.ruv[1]), False)]
            entries = [dict(zip(entry_schema().names, row, strict=True)) for row in rows]
            nine.send(name, granted.epoch, pa.RecordBatch.from_pylist(entries, schema=entry_schema()), None)
            nine.client.complete_total(
                name, epoch=granted.epoch, batch_seq=1, ruv=seen.ruv, generation=str(seen.generation)
            )
            nine.client.release(name, epoch=granted.epoch, complete=True, batch_seq=1)
    assert victim.held() == before
    assert code == "DISCARD_NOT_GRANTED"
    assert victim.put(f"after {nine.rid}")
    level.assert_level()


def test_t6_a_peer_that_comes_as_another_one_spends_no_grant_of_it(level: Star) -> None:
    # A grant is for a replica id: that is what a peer says, and keys are public.
    supplier, victim = level.nodes
    assert level.bring(victim, supplier) == "UP_TO_DATE"
    before = victim.held()
    level.grant(supplier, victim)
    with Attacker(victim, rid=supplier.rid) as other:
        seen = other.look()
        assert seen.ruv is not None
        assert seen.history is not None
        told = replace(other.echo(seen), key=seen.history.keys[supplier.rid])
        for discard in (False, True):
            assert (
                other.refused(ruv=seen.ruv, history=told, mode="TOTAL", discard_consumer_changes=discard)
                == "SUPPLIER_UNPROVEN"
            )
    assert victim.held() == before
    assert level.bring(supplier, victim, mode="TOTAL") == "UP_TO_DATE"


def test_t7_unfinished_bodies_of_one_token(level: Star) -> None:
    a, b = level.nodes
    with Attacker(b) as nine:
        bodies = nine.unfinished(UNFINISHED)
        try:
            a.put("through")
            assert level.bring(a, b) == "UP_TO_DATE"
            assert httpx.get(f"{b.service.url}/readyz", timeout=5).status_code == 200
        finally:
            for each in bodies:
                each.close()
    assert {value for _, value in b.held()} >= {b"through"}


def _flip(star: Star, count: int) -> str:
    """Send batches after so many damaged copies of them each; a line that tells how many were refused."""
    a, b = star.nodes
    # A session sends at least ten batches: the small count in one, the large one in many.
    copies, number = min(25, count // 10), 0
    with DamagingWire(b.service.port, copies=copies, seed=SEED) as wire:
        damaged = Star(star.nodes, [wire])
        while wire.answers.total() < count:
            a.put(*(f"{SEED}-{number}-{each}" for each in range(20)))
            number += 1
            assert damaged.bring(a, b) == "UP_TO_DATE"
        told = f"{wire.answers.total()} flipped bits of batches and requests (seed {SEED}), answered"
        told = f"{told} {dict(wire.answers)}: none applied"
        print(told)
        assert set(wire.answers) == {"422"}
    return told


def _flip_answers(star: Star, count: int) -> str:
    """Ask for what no answer can be read of; a line that tells how many were refused."""
    b = star.nodes[1]
    codes: Counter[str] = Counter()
    with (
        SickWire(b.service.port, Faults(answer_flips=1.0), seed=SEED) as wire,
        Attacker(b, port=wire.port) as nine,
    ):
        while codes.total() < count:
            try:
                nine.look()
            except PeerError as error:
                codes[error.code] += 1
            else:
                codes["BELIEVED"] += 1
    told = f"{codes.total()} flipped bits of answers (seed {SEED}), {dict(codes)}: none believed"
    print(told)
    assert set(codes) == {"PEER_ANSWER_DAMAGED"}
    return told


FLIPS = (60, pytest.param(5_000, marks=[pytest.mark.long, pytest.mark.timeout(3_600)]))


@pytest.mark.parametrize("count", FLIPS)
def test_t8_flipped_bits_of_requests_are_refused(level: Star, count: int) -> None:
    _flip(level, count)


@pytest.mark.parametrize("count", FLIPS)
def test_t8_flipped_bits_of_answers_are_not_believed(level: Star, count: int) -> None:
    _flip_answers(level, count)


def test_t8_flipped_bits_of_what_is_asked_for(level: Star) -> None:
    # A batch of a copy that came under the number of the one before it took its place.
    victim = level.nodes[1]
    with Attacker(victim) as nine:
        path = f"/v1/replicas/{victim.store}/sessions/rps_1/batches?epoch=1&batch_seq="
        headers = {
            "Authorization": f"Bearer {nine.token}",
            TARGET_HEADER: target_digest("POST", f"{path}3"),
            "Content-Type": "application/vnd.apache.arrow.stream",
        }
        answer = httpx.post(f"{victim.service.url}{path}2", headers=headers, content=b"x")
    assert (answer.status_code, answer.json()["code"]) == (422, "BODY_DAMAGED")


def test_t10_who_disconnects_leaves_no_trace(level: Star) -> None:
    a, b = level.nodes
    with Attacker(b) as nine:
        for each in nine.unfinished(DISCONNECTED):
            with closing(each):
                each.shutdown(1)
    a.put("after")
    assert level.bring(a, b) == "UP_TO_DATE"
    log = b.service.log.read_text()
    assert "Traceback" not in log
    assert '"level":"ERROR"' not in log.replace(" ", "")


def test_t10_a_lease_that_ran_out_is_good_until_somebody_takes_it(level: Star) -> None:
    a, b = level.nodes
    with Attacker(b) as nine:
        seen = nine.look()
        assert seen.ruv is not None
        name, granted = nine.acquire(ruv=seen.ruv, history=nine.echo(seen), lease="PT1S")
        time.sleep(1.2)
        first, second = nine.csn(), nine.csn(ahead_s=1)
        own = [_records((first, None, "CHANGE", b"db", b"9", b"9"))]
        own.append(_records((second, first, "CHANGE", b"db", b"99", b"99")))
        _, ends = chain_of(own[0], {nine.rid: seed_of(nine.rid)})
        assert ends[nine.rid] is not None
        assert (
            nine.send(name, granted.epoch, own[0], nine.proof(nine.rid, first, ends[nine.rid])) == "APPLIED"
        )
        a.put("x")
        time.sleep(1.2)
        assert level.bring(a, b) == "UP_TO_DATE"
        _, ends = chain_of(own[1], ends)
        assert ends[nine.rid] is not None
        proof = nine.proof(nine.rid, second, ends[nine.rid])
        refused = nine.send(name, granted.epoch, own[1], proof, batch_seq=2)
        assert refused in ("SESSION_ENDED", "SESSION_NOT_FOUND", "STALE_EPOCH")


@pytest.mark.timeout(600)
def test_random_lives(services: Services) -> None:
    assert "UP_TO_DATE" in live(services, range(SEED, SEED + LIVES))


@pytest.mark.long
@pytest.mark.timeout(7_200)
def test_many_random_lives(services: Services, tmp_path: Path) -> None:
    told = live(services, range(SEED + LIVES, SEED + LIVES + LIVES_LONG))
    assert all(what in told for what in ("UP_TO_DATE", "DIVERGED", "DUPLICATE_RID", "machine", "flips"))

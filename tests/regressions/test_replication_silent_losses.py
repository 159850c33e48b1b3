"""Two losses that a real server ended green with: here each ends as a refusal.

Source: facts/replication-session, [run p8] and [run p9].
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spark.formats.csn import Csn
from spark.replication import agreements
from spark.replication.consumer import arrival
from spark.replication.records import ReplicaStatus, SessionMode
from spark.replication.session_errors import BatchGap, PrevGap
from spark.replication.sessions.row import Ticket
from spark.replication.sessions.session import Acquire, Completion, acquire, complete_total, release
from spark.replication.supplier.decide import Consumer, Decision, Outcome, Reason, Strategy, Supplier, decide
from spark.replication.supplier.window import WindowReader
from spark.replication.trimming import units as trim
from tests.spark.replication.broken_rule import broken_rule, does_nothing
from tests.spark.replication.consumer_side import ConsumerSide, chain
from tests.spark.replication.wire_model_site import GENERATION, START_S, Oracle, Pending, Site

SESSION = "rps_one"


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[tuple[Site, Site]]:
    """Two replicas of one generation."""
    oracle = Oracle()
    pair = (
        Site(1, tmp_path / "1.db", oracle, GENERATION),
        Site(2, tmp_path / "2.db", oracle, GENERATION),
    )
    for site in pair:
        site.create()
    yield pair
    for site in pair:
        site.stop()


def _write(site: Site, *keys: bytes) -> str:
    return site.write(Pending([(key, b"value") for key in keys], None), dies=False)


def _offer(supplier: Site, consumer: Site, mode: SessionMode = SessionMode.INCREMENTAL) -> int:
    seen = supplier.state()
    request = Acquire(
        SESSION,
        mode,
        supplier.name,
        supplier.rid,
        seen.replica.generation,
        seen.vectors.ruv,
        Csn.of(START_S, 0, supplier.rid),
        600.0,
    )
    granted = acquire(consumer.conn, request, now_s=consumer.clock_s, consent=lambda: True)
    return granted.epoch


def _bring(supplier: Site, consumer: Site) -> None:
    """All that the consumer lacks, in one batch."""
    epoch = _offer(supplier, consumer)
    found = _decided(supplier, consumer)
    if found.outcome is Outcome.SEND:
        side = ConsumerSide(consumer.conn, now_s=consumer.clock_s)
        rows = [
            tuple(row.values())
            for batch in WindowReader(supplier.conn, found.windows, rows_max=1_000, bytes_max=1_000_000)
            for row in batch.to_pylist()
        ]
        side.apply(rows, epoch=epoch, seq=1, session_id=SESSION)  # type: ignore[arg-type]


def _decided(supplier: Site, consumer: Site) -> Decision:
    seen, there = supplier.state(), consumer.state()
    vectors = seen.vectors
    return decide(
        Supplier(vectors.ruv, vectors.min, vectors.purged, seen.replica.generation),
        Consumer(there.vectors.ruv, there.replica.generation),
        strategy=Strategy.WINDOW,
    )


def test_a_replica_that_was_put_back_refuses_local_writes_until_its_own_changes_are_back(
    sites: tuple[Site, Site],
) -> None:
    # [run p8]: restored, written locally, and then its RUV covered changes that it did not have.
    here, there = sites
    _write(here, b"a")
    here.back_up()
    _write(here, b"b", b"c")
    _bring(here, there)
    here.put_back(here.backups[0])
    assert _write(here, b"d") == "RESTORED"
    _bring(there, here)
    assert here.state().replica.status is ReplicaStatus.ONLINE
    assert _write(here, b"d") == "ANSWERED"
    assert set(here.held().entries) == {b"a", b"b", b"c", b"d"}


def test_a_peer_that_has_more_of_ones_own_changes_ends_local_writes_too(sites: tuple[Site, Site]) -> None:
    # The service has forgotten all as well: only the peer knows.
    here, there = sites
    _write(here, b"a")
    here.back_up()
    _write(here, b"b")
    _bring(here, there)
    here.memory = None
    here.put_back(here.backups[0])
    _offer(there, here)
    assert here.state().replica.status is ReplicaStatus.RESTORED
    assert _write(here, b"d") == "RESTORED"


def test_a_trimmed_changelog_with_an_idle_anchor_needs_a_total(sites: tuple[Site, Site]) -> None:
    # [run p9]: the anchor of an idle replica was there, and nobody asked whether the others' changes were.
    here, there = sites
    _write(there, b"idle")
    _bring(there, here)
    _write(here, b"a", b"b", b"c")
    limit = here.state().vectors.ruv[1]
    span = trim.Span(1, Csn("0" * 20), limit, 3)
    assert trim.run_trim(here.conn, trim.TrimUnit("job", span, 1, "changelog", has_ledger=False)).rows == 3
    kept = here.held().log
    assert set(kept) == {2}, "the idle replica's anchor is there"
    found = _decided(here, there)
    assert (found.outcome, found.reason, found.blocked_rids) == (Outcome.NEEDS_TOTAL, Reason.PURGED, (1,))


def test_the_consumer_refuses_the_rest_of_a_trimmed_changelog_by_itself(sites: tuple[Site, Site]) -> None:
    here, there = sites
    rows = chain(1, [1, 2, 3])
    side = ConsumerSide(there.conn, now_s=there.clock_s)
    epoch = _offer(here, there)
    with pytest.raises(PrevGap):
        side.apply(rows[1:], epoch=epoch, seq=1, session_id=SESSION)
    assert there.state().vectors.ruv == {}
    with broken_rule(arrival, "_refuse_gap", does_nothing):
        side.apply(rows[1:], epoch=epoch, seq=1, session_id=SESSION)
    assert there.state().vectors.ruv == {1: rows[2][0]}, "without the link it would be lost in silence"


def test_an_agreement_keeps_what_its_consumer_has_not_acknowledged(sites: tuple[Site, Site]) -> None:
    here, _ = sites
    agreements.register_agreement(here.conn, "agr_one", now_s=START_S)
    _write(here, b"a", b"b")
    span = trim.Span(1, Csn("0" * 20), here.state().vectors.ruv[1], 2)
    assert trim.run_trim(here.conn, trim.TrimUnit("job", span, 1, "changelog", has_ledger=False)).rows == 0


def test_a_copy_whose_target_was_put_back_is_not_completed(sites: tuple[Site, Site]) -> None:
    # Found by the wire model: the RUV covered entries that had gone with the newer file.
    here, there = sites
    _write(here, b"a", b"b")
    at = {key: held[0] for key, held in here.held().entries.items()}
    epoch = _offer(here, there, SessionMode.TOTAL)
    side = ConsumerSide(there.conn, now_s=there.clock_s)
    there.back_up()
    for seq, key in enumerate((b"a", b"b"), start=1):
        side.copy([(b"db", key, b"value", Csn(at[key]))], epoch=epoch, seq=seq, session_id=SESSION)
    there.put_back(there.backups[0])
    ruv = here.state().vectors.ruv
    with pytest.raises(BatchGap) as refused:
        complete_total(
            there.conn, Ticket(SESSION, epoch, 2), ruv=ruv, generation=GENERATION, now_s=there.clock_s
        )
    assert refused.value.expected == 1
    assert there.state().vectors.ruv == {}


def test_own_changes_that_a_copy_has_emptied_are_missed_when_the_supplier_lost_them(
    sites: tuple[Site, Site],
) -> None:
    # Found by the wire model: emptied, then the supplier was put back, and its copy taken for whole.
    here, there = sites
    here.back_up()
    _write(there, b"own")
    _bring(there, here)
    epoch = _offer(here, there, SessionMode.TOTAL)
    assert there.held().entries == {}
    here.put_back(here.backups[0])
    epoch = _offer(here, there, SessionMode.TOTAL)
    complete_total(there.conn, Ticket(SESSION, epoch), ruv={}, generation=GENERATION, now_s=there.clock_s)
    done = Completion("inc_new", there.adopt)
    found = release(there.conn, Ticket(SESSION, epoch), now_s=there.clock_s, complete=done)
    assert found.replica.status is ReplicaStatus.RESTORED
    assert there.memory is not None
    assert there.memory[1] == found.replica.restored_upto
    assert _write(there, b"more") == "RESTORED"

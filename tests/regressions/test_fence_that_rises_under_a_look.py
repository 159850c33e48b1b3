"""Our epoch was read before the fence: a job of ours that claimed the target in between had a token above it,
and a purge that came at that moment was refused with 409 EPOCH_AHEAD, as if another metadata had been there.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from app.db import Database
from app.errors import Conflict
from app.handlers import STORE_HOOKS
from app.jobs.errors import EpochAhead
from app.jobs.running.claims import current_epoch, next_token
from app.jobs.running.recovery import refuse_ahead
from app.kit.ids import new_id
from app.outbox.facts import Fact
from app.outbox.rows import WebhookEvent
from app.purge.kinds.table import KINDS
from app.purge.models import PurgeRequest
from app.purge.recover import is_epoch_ahead, recover_store
from app.purge.rules import fence_resource
from app.purge.service import prepare
from app.stores.checks.models import FindingSeverity, StoreCheck
from app.stores.models import StoreKind
from app.stores.rows import Store
from app.stores.service import get_store
from app.stores.targets import place_of
from app.working import Worker
from spark.targets.connection import Connection, connect
from spark.targets.fence import greatest_fence, raise_fence, read_fence
from spark.targets.ledger import ensure_ledger
from tests.app.hooks.outboxes import events_of, make_hook
from tests.oracles.symmetricds import Place
from tests.regressions.purges import OLD_CUTOFF, Purges

OURS = "job_of_ours"
FOREIGN = "job_of_a_lost_future"


@pytest.fixture
def store(purges: Purges, tmp_path: Path) -> Store:
    name = purges.store(purges.fill(Place(f"sqlite:///{tmp_path}/sym.db"), rows=20))
    with purges.bench.database.reading() as db:
        found = get_store(db, name)
    with connect(place_of(found), application_name="test") as conn:
        assert ensure_ledger(conn)
    return found


@pytest.fixture
def claims(purges: Purges, store: Store, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A job of ours claims each resource right before its fence is read; the tokens."""
    tokens: list[int] = []

    def claimed_first(conn: Connection, resource: str) -> tuple[int, str] | None:
        with purges.bench.database.transaction() as db:
            tokens.append(next_token(db))
        raise_to(store, resource, tokens[-1], owner=OURS)
        return greatest_fence(conn, resource)

    monkeypatch.setattr("app.jobs.running.recovery.greatest_fence", claimed_first)
    return tokens


def raise_to(store: Store, resource: str, token: int, *, owner: str) -> None:
    with connect(place_of(store), application_name="test") as conn:
        raise_fence(conn, resource, token=token, owner=owner)


def fence_of(store: Store, resource: str) -> tuple[int, str] | None:
    with connect(place_of(store), application_name="test", read_only=True) as conn:
        return read_fence(conn, resource)


def look(purges: Purges, store: Store) -> object:
    """What the submission of a purge sees at its target; None: nothing."""
    bench = purges.bench
    request = PurgeRequest.model_validate({"kind": "OUTGOING", "cutoff": OLD_CUTOFF, "force": True})
    _, early = prepare(
        bench.database, store, request, settings=bench.settings, now=bench.clock.now(), for_write=True
    )
    return early.inspection


def check_node(database: Database, store: Store) -> None:
    with connect(place_of(store), application_name="test", read_only=True) as conn:
        refuse_ahead(database, store.id, conn, "_shop.cleanup")


def test_purge_is_taken_while_a_job_of_ours_claims_the_target(
    purges: Purges, store: Store, claims: list[int]
) -> None:
    assert look(purges, store) is not None
    assert len(claims) == 1
    assert fence_of(store, fence_resource(store)) == (claims[0], OURS)


def test_target_is_not_ahead_while_a_job_of_ours_claims_it(
    purges: Purges, store: Store, claims: list[int]
) -> None:
    assert not is_epoch_ahead(purges.bench.database, store, purges.bench.settings)
    assert len(claims) == len({kind.resource for kind in KINDS.values()})  # a fence for each of these


def test_node_is_not_ahead_while_a_job_of_ours_claims_it(
    purges: Purges, store: Store, claims: list[int]
) -> None:
    check_node(purges.bench.database, store)
    assert fence_of(store, "_shop.cleanup") == (claims[0], OURS)


@pytest.mark.parametrize(
    ("resource", "asked", "fence"),
    [
        ("public.sym_outgoing", look, "public.sym_outgoing"),
        (
            "_shop.cleanup",
            lambda purges, store: check_node(purges.bench.database, store),
            "_shop.cleanup",
        ),
    ],
)
def test_token_that_is_not_ours_is_told_with_our_epoch(
    purges: Purges,
    store: Store,
    resource: str,
    asked: Callable[[Purges, Store], object],
    fence: str,
) -> None:
    raise_to(store, resource, 1000, owner=FOREIGN)
    make_hook(purges.bench.database)
    with purges.bench.database.reading() as db:
        ours = current_epoch(db)
    for _ in range(3):  # it is told to webhooks once, though no job has failed by it
        with pytest.raises(EpochAhead) as refused:
            asked(purges, store)
    assert (refused.value.code, refused.value.status) == ("EPOCH_AHEAD", 409)
    told = f"the target's fence of {fence} is at 1000 ({FOREIGN})"
    assert [event.subject for event in aheads(purges)] == [f"stores/{store.id}"]
    assert refused.value.detail == (
        f"{told}, ours at {ours}: another Lethe has worked there, or this metadata is an old copy;"
        " stop the other one, then `lethe recover STORE` raises ours"
    )


def test_a_check_says_before_any_job_that_another_metadata_was_there(purges: Purges, store: Store) -> None:
    bench = purges.bench

    def check() -> StoreCheck:
        return STORE_HOOKS.checks[StoreKind(store.kind)](
            bench.database, store, bench.settings, bench.clock.now()
        )

    def ahead(found: StoreCheck) -> list[FindingSeverity]:
        return [finding.severity for finding in found.findings if finding.code == "EPOCH_AHEAD"]

    assert ahead(check()) == []
    raise_to(store, "public.sym_outgoing", 1000, owner=FOREIGN)
    found = check()
    assert (found.ok, ahead(found)) == (False, [FindingSeverity.ERROR])
    recover_store(bench.database, bench.settings, store, "ann")
    assert ahead(check()) == []


def aheads(purges: Purges) -> list[WebhookEvent]:
    return [event for event in events_of(purges.bench.database) if event.type == Fact.EPOCH_AHEAD]


def test_what_was_recovered_and_is_ahead_again_is_told_again(purges: Purges, store: Store) -> None:
    make_hook(purges.bench.database)
    for token, number in ((1000, 1), (2000, 2)):
        raise_to(store, fence_resource(store), token, owner=FOREIGN)
        with pytest.raises(EpochAhead):
            look(purges, store)
        assert len(aheads(purges)) == number
        recover_store(purges.bench.database, purges.bench.settings, store, "ann")


def test_a_start_that_finds_all_stores_ahead_tells_of_each(purges: Purges, store: Store) -> None:
    make_hook(purges.bench.database)
    worker = Worker(purges.bench.settings, purges.bench.database, role="worker")
    assert not worker.every_store_is_ahead()
    assert aheads(purges) == []
    raise_to(store, fence_resource(store), 1000, owner=FOREIGN)
    assert worker.every_store_is_ahead()
    worker.lock.release()
    assert [event.store for event in aheads(purges)] == [store.id]


def test_fence_that_no_lethe_has_raised_is_not_followed(purges: Purges, store: Store) -> None:
    """Whoever owns a target writes any number there. `recover`, which EPOCH_AHEAD asks for, made it the epoch
    of the whole service: behind the greatest number there is no token for any job of any store.
    """
    resource, bench = fence_resource(store), purges.bench
    raise_to(store, resource, 2**63 - 1, owner=FOREIGN)
    with pytest.raises(Conflict) as refused:
        recover_store(bench.database, bench.settings, store, "ann")
    assert refused.value.code == "EPOCH_AHEAD"
    assert str(2**63 - 1) in refused.value.detail
    with bench.database.transaction() as db:
        assert next_token(db) < 100
    with connect(place_of(store), application_name="test") as conn:
        conn.execute("update lethe_fence set token = 1000000")
    assert recover_store(bench.database, bench.settings, store, "ann").epoch_after == 1_000_000


def test_ledger_makes_no_jobs_of_ids_that_no_lethe_gives(purges: Purges, store: Store) -> None:
    """Any text became the id of a job: one that nobody could ask for, or too long for the metadata."""
    bench, real = purges.bench, new_id("job")
    with connect(place_of(store), application_name="test") as conn:
        for job_id in (real, "", "../other", "x" * 10_000, f"{real}\n", real.upper()):
            conn.execute(
                "insert into lethe_unit_ledger (job_id, unit_id, step, attempt, token, rows_affected, detail)"
                " values (:job, 'u', 'DATA', 1, 1, 1, '{}')",
                {"job": job_id},
            )
    assert recover_store(bench.database, bench.settings, store, "ann").foreign_jobs == [real]

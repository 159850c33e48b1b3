"""A job that waited works with the consumer and the target that it was submitted for, or fails by name."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from sqlmodel import update

from app.db import Database
from app.jobs.errors import JobFailed
from app.jobs.running.context import JobContext
from app.replication.agreements.sessions.service import consumer_of, target_of_store
from app.replication.agreements.submitted import agreement_as_submitted
from app.replication.rows import Agreement, AgreementState
from app.settings import Settings
from app.stores.models import StoreKind
from app.stores.rows import Store
from tests.app.agreements import agreement_of
from tests.app.fake_clock import FakeClock
from tests.app.jobs.workbench import Workbench

NOON = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
TIMES = {"created_at": NOON, "updated_at": NOON}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOON)


@pytest.fixture
def context(database: Database, settings: Settings, clock: FakeClock) -> JobContext:
    jobs = Workbench(database, clock, settings)
    jobs.submit()
    return jobs.context()


@pytest.fixture
def store(database: Database) -> Store:
    store = Store(
        id="here",
        kind=StoreKind.REPLICA,
        url="sqlite:////nowhere/here.db",
        table_prefix="replica_",
        rid=1,
        **TIMES,
    )
    with database.transaction() as db:
        db.add(store)
    return store


@pytest.fixture
def agreement(database: Database, store: Store) -> Agreement:
    agreement = agreement_of(store.id, NOON, id="agr_one")
    with database.transaction() as db:
        db.add(agreement)
    return agreement


def _found(context: JobContext, store: Store, submitted: dict[str, Any]) -> Agreement:
    return agreement_as_submitted(context, store, "agr_one", **submitted)


def test_nothing_has_changed(context: JobContext, store: Store, agreement: Agreement) -> None:
    submitted = {"consumer": consumer_of(agreement), "target": target_of_store(store)}
    assert _found(context, store, submitted).id == "agr_one"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"consumer_url": "http://127.0.0.1:10"}, "AGREEMENT_CHANGED"),
        ({"consumer_store": "elsewhere"}, "AGREEMENT_CHANGED"),
        ({"state": AgreementState.REMOVED}, "AGREEMENT_NOT_FOUND"),
    ],
)
def test_an_agreement_that_is_another_now_ends_the_job(
    context: JobContext,
    database: Database,
    store: Store,
    agreement: Agreement,
    change: dict[str, Any],
    code: str,
) -> None:
    submitted = {"consumer": consumer_of(agreement), "target": target_of_store(store)}
    with database.transaction() as db:
        db.execute(update(Agreement).values(**change))
    with pytest.raises(JobFailed) as failed:
        _found(context, store, submitted)
    assert failed.value.code == code


@pytest.mark.parametrize(
    "change", [{"url": "sqlite:////nowhere/other.db"}, {"table_prefix": "other_"}, {"rid": 2}]
)
def test_a_store_that_names_another_target_now_ends_the_job(
    context: JobContext, store: Store, agreement: Agreement, change: dict[str, Any]
) -> None:
    submitted = {"consumer": consumer_of(agreement), "target": target_of_store(store)}
    for name, value in change.items():
        setattr(store, name, value)
    with pytest.raises(JobFailed) as failed:
        _found(context, store, submitted)
    assert failed.value.code == "STORE_CHANGED"

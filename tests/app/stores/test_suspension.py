"""`:suspend` and `:resume`, limits per store, and what a change of a store may touch."""

from datetime import timedelta
from typing import Any

import pytest

from app.db import Database
from app.errors import EtagMismatch, PreconditionMissing
from app.kit.conditional import etag, version_of
from app.secrets.models import SecretCreate
from app.secrets.service import create_secret
from app.settings import Settings
from app.stores.errors import StoreExists, StoreInUse, StoreNotFound, StoreUrlRefused
from app.stores.models import StoreCreate, StorePatch, SuspendRequest, read_store
from app.stores.resting import (
    end_past_suspensions,
    end_rest_until_recovered,
    rest_until_recovered,
    resume_store,
    suspend_store,
    suspended_stores,
)
from app.stores.rows import Store, is_suspended
from app.stores.service import change_store, create_store, get_store, parallel_limits, remove_store
from tests.app.fake_clock import FakeClock
from tests.app.jobs.workbench import in_threads

TLS = "postgresql+psycopg://u@db.example/shop"


class Stores:
    """The verbs of stores, each in a transaction of its own."""

    def __init__(self, database: Database, clock: FakeClock, settings: Settings) -> None:
        self.database, self.clock, self.settings = database, clock, settings

    def create(self, name: str = "shop", **fields: Any) -> Store:
        body = {"id": name, "kind": "SYMMETRICDS", "url": "postgresql+psycopg://u@db.example/shop"} | fields
        request = StoreCreate.model_validate(body)
        with self.database.transaction() as db:
            return create_store(
                db, request, settings=self.settings, database=self.database, now=self.clock.now()
            )

    def change(self, match: str | None, *, active_jobs: int = 0, **fields: Any) -> Store:
        patch = StorePatch.model_validate(fields)
        with self.database.transaction() as db:
            return change_store(
                db, "shop", patch, if_match=match, active_jobs=active_jobs, settings=self.settings,
                database=self.database, now=self.clock.now(),
            )  # fmt: skip

    def suspend(self, **fields: Any) -> Store:
        request = SuspendRequest.model_validate({"reason": "restore test"} | fields)
        with self.database.transaction() as db:
            return suspend_store(db, "shop", request, now=self.clock.now())

    def etag_of(self, number: int) -> str:
        """The ETag of a version of the store."""
        return etag(version_of(number, self.read().created_at))

    def read(self) -> Store:
        with self.database.reading() as db:
            return get_store(db, "shop")


@pytest.fixture
def stores(database: Database, clock: FakeClock, settings: Settings) -> Stores:
    return Stores(database, clock, settings)


def test_suspension_ends_by_itself_at_its_time(stores: Stores) -> None:
    stores.create()
    stores.suspend(duration="PT2H")
    until = stores.clock.now() + timedelta(hours=2)
    shown = read_store(stores.read()).suspended
    assert shown is not None
    assert (shown.reason, shown.until) == ("restore test", until)
    with stores.database.reading() as db:
        assert suspended_stores(db, now=stores.clock.now()) == {"shop": until}
        assert suspended_stores(db, now=until) == {}
    assert is_suspended(stores.read(), now=until - timedelta(microseconds=1))
    assert not is_suspended(stores.read(), now=until)
    for now, past in ((until - timedelta(microseconds=1), []), (until, ["shop"]), (until, [])):
        with stores.database.transaction() as db:
            assert end_past_suspensions(db, now=now) == past
    row = stores.read()  # the end is written, so that the ETag changes with what is shown
    assert (row.version, read_store(row).suspended) == (3, None)


def test_suspension_without_an_end_lasts_until_resume(stores: Stores) -> None:
    stores.create()
    stores.suspend()
    stores.clock.advance(10**8)
    assert is_suspended(stores.read(), now=stores.clock.now())
    with stores.database.transaction() as db:
        version = resume_store(db, "shop", now=stores.clock.now()).version
    assert not is_suspended(stores.read(), now=stores.clock.now())
    with stores.database.transaction() as db:
        assert resume_store(db, "shop", now=stores.clock.now()).version == version  # again changes nothing


@pytest.mark.parametrize("is_known", [True, False])
def test_store_that_may_have_been_worked_on_since_rests_until_it_is_recovered(
    stores: Stores, *, is_known: bool
) -> None:
    stores.create()
    now = stores.clock.now()
    for _ in range(2):  # two processes start at once, or the next restore comes before the recovery
        with stores.database.transaction() as db:
            rest_until_recovered(db, "shop", is_known=is_known, now=now)
    assert is_suspended(stores.read(), now=now + timedelta(days=5_000))
    assert (stores.read().suspended_reason or "").endswith("`lethe recover shop`")
    for is_over in (True, False):
        with stores.database.transaction() as db:
            assert end_rest_until_recovered(db, "shop", now=now) is is_over
    assert not is_suspended(stores.read(), now=now)


def test_rest_that_was_asked_for_goes_on_without_an_end_and_is_nobody_elses_to_end(stores: Stores) -> None:
    """It would end at its time, and the store had not been recovered by then."""
    stores.create()
    stores.suspend(duration="PT2H", reason="x" * 500)
    now = stores.clock.now()
    with stores.database.transaction() as db:
        for _ in range(2):
            rest_until_recovered(db, "shop", is_known=True, now=now)
        assert not end_rest_until_recovered(db, "shop", now=now)
    row = stores.read()
    assert is_suspended(row, now=now + timedelta(days=1))
    assert row.suspended_reason == f"`lethe recover shop` first: {'x' * 500}"[:500]


@pytest.mark.parametrize("duration", ["PT0S", "-PT1H", "P4000D"])
def test_suspension_of_no_or_endless_time_is_refused(stores: Stores, duration: str) -> None:
    with pytest.raises(ValueError, match="PT0S"):
        stores.suspend(duration=duration)


def test_change_wants_the_version_that_was_read(stores: Stores) -> None:
    stores.create()
    assert stores.change(stores.etag_of(1), labels={"region": "eu"}).version == 2
    with pytest.raises(EtagMismatch):
        stores.change(stores.etag_of(1), labels={})
    with pytest.raises(PreconditionMissing):
        stores.change(None, labels={})
    assert stores.read().labels == {"region": "eu"}


def test_changes_at_once_have_one_winner(stores: Stores) -> None:
    stores.create()
    first = stores.etag_of(1)
    results = in_threads(6, lambda number: stores.change(first, labels={"by": str(number)}))
    won = [result for result in results if isinstance(result, Store)]
    assert len(won) == 1
    assert all(isinstance(error, EtagMismatch) for error in results if error not in won), results
    assert stores.read().version == 2


@pytest.mark.parametrize(
    ("field", "value", "refused"),
    [
        ("url", "postgresql+psycopg://u@other/shop", True),
        ("schema", "sym", True),
        ("table_prefix", "x_", True),
        ("time_zone", "Europe/Berlin", True),
        ("labels", {"a": "b"}, False),
        ("limits", {"max_rows": 5}, False),
        ("parameters", {"purge.retention.minutes": 60}, False),
    ],
)
def test_target_does_not_change_under_running_jobs(stores: Stores, field, value, refused: bool) -> None:
    stores.create()
    if refused:
        with pytest.raises(StoreInUse):
            stores.change(stores.etag_of(1), active_jobs=1, **{field: value})
        assert stores.read().version == 1
        return
    assert stores.change(stores.etag_of(1), active_jobs=1, **{field: value}).version == 2


def test_changed_target_is_no_longer_the_known_one(stores: Stores) -> None:
    stores.create()
    with stores.database.transaction() as db:
        get_store(db, "shop").target_identity = "postgresql:1:2"
    assert stores.change(stores.etag_of(1), labels={}).target_identity == "postgresql:1:2"
    assert stores.change(stores.etag_of(2), schema="sym").target_identity is None


def test_password_is_a_reference_and_never_shown(stores: Stores) -> None:
    with stores.database.transaction() as db:
        request = SecretCreate(
            name="the-one", reference="env:LETHE_SECRET_SHOP", stores=["shop"], hosts=["db.example"]
        )
        create_secret(db, request, settings=stores.settings, now=stores.clock.now())
    stores.create(password="secret:the-one")
    shown = read_store(stores.read())
    assert shown.has_password is True
    assert "the-one" not in shown.model_dump_json()


@pytest.mark.parametrize(
    ("settings", "fields", "code"),
    [
        ({"allowed_hosts": ["db.example"]}, {}, None),
        ({"allowed_hosts": ["other"]}, {}, "HOST_NOT_ALLOWED"),
        ({"allowed_roots": ["/srv"]}, {"url": "sqlite:////srv/shop.db"}, None),
        ({"allowed_roots": ["/srv"]}, {"url": "sqlite:////srv/../etc/shop.db"}, "PATH_NOT_ALLOWED"),
        ({"allowed_roots": ["/srv"]}, {"url": "sqlite:////srvs/shop.db"}, "PATH_NOT_ALLOWED"),
        ({"allowed_roots": ["/srv"]}, {"url": f"{TLS}?sslrootcert=/etc/shadow"}, "PATH_NOT_ALLOWED"),
        ({"allowed_roots": ["/srv"]}, {"url": f"{TLS}?sslrootcert=/srv/ca.pem"}, None),
        ({"allowed_roots": ["/srv"]}, {"url": "postgresql://u@/shop?host=/run/other"}, "PATH_NOT_ALLOWED"),
        (
            {"allowed_hosts": ["/run/one"]},
            {"url": "postgresql://u@/shop?host=/run/other"},
            "HOST_NOT_ALLOWED",
        ),
        ({"allowed_hosts": ["/run/one"]}, {"url": "postgresql://u@/shop?host=/run/one"}, None),
        ({"allowed_hosts": ["10.0.0.0/8"]}, {"url": "postgresql://u@10.1.2.3/shop"}, None),
        ({"allowed_hosts": ["10.0.0.0/8"]}, {"url": "postgresql://u@192.0.2.1/shop"}, "HOST_NOT_ALLOWED"),
        (
            {"allowed_hosts": ["db.example:5432"]},
            {"url": "postgresql://u@db.example:1/s"},
            "HOST_NOT_ALLOWED",
        ),
    ],
)
def test_store_names_only_allowed_places(database, clock, settings, fields, code, tmp_path) -> None:
    limited = Settings(data_dir=tmp_path, **settings)
    stores = Stores(database, clock, limited)
    if code is None:
        assert stores.create(**fields).id == "shop"
        return
    with pytest.raises(StoreUrlRefused) as refused:
        stores.create(**fields)
    assert (refused.value.status, refused.value.code) == (422, code)


def test_own_metadata_is_no_store(sqlite_database: Database, clock: FakeClock, settings: Settings) -> None:
    stores = Stores(sqlite_database, clock, settings)
    with pytest.raises(StoreUrlRefused) as refused:
        stores.create(url=str(sqlite_database.url).replace("sqlite:///", "sqlite:///"))
    assert refused.value.code == "OWN_METADATA"


def test_same_id_at_once_is_created_once(stores: Stores) -> None:
    results = in_threads(6, lambda _: stores.create())
    assert sum(isinstance(result, Store) for result in results) == 1
    assert sum(isinstance(result, StoreExists) for result in results) == 5


def test_store_in_use_is_not_removed(stores: Stores) -> None:
    stores.create()
    for match, active, error in (
        (None, 0, PreconditionMissing),
        (stores.etag_of(2), 0, EtagMismatch),
        (stores.etag_of(1), 1, StoreInUse),
    ):
        with pytest.raises(error), stores.database.transaction() as db:
            remove_store(db, "shop", if_match=match, active_jobs=active, now=stores.clock.now())
    with stores.database.transaction() as db:
        remove_store(db, "shop", if_match=stores.etag_of(1), active_jobs=0, now=stores.clock.now())
    with pytest.raises(StoreNotFound):
        stores.read()


def test_parallel_limits_have_a_default_per_store(stores: Stores) -> None:
    stores.create()
    stores.create("calm", limits={"max_parallel_jobs": 1})
    with stores.database.reading() as db:
        assert parallel_limits(db, ["shop", "calm", "gone"]) == {"shop": 4, "calm": 1}
        assert parallel_limits(db, ["calm"]) == {"calm": 1}

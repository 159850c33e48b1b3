"""Who may use a secret, and for which hosts: looked at when it is named, and again at each use."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from app.db import Database
from app.errors import EtagMismatch, PreconditionMissing
from app.kit.conditional import etag, version_of
from app.secrets.errors import (
    SecretExists,
    SecretInUse,
    SecretNotAllowed,
    SecretReferenceRefused,
    SecretUnavailable,
)
from app.secrets.models import SecretCreate, SecretPatch
from app.secrets.rows import Secret
from app.secrets.service import (
    User,
    change_secret,
    create_secret,
    credential_of,
    permitted_secret,
    read_secret,
    reference_of,
    remove_secret,
)
from app.settings import Settings
from app.stores.models import StoreCreate, StorePatch
from app.stores.rows import Store
from app.stores.service import change_store, create_store, get_store, stores_naming, takes_secret_by_label
from app.stores.targets import target_of
from spark.targets.connection import SessionLimits, connect
from spark.targets.errors import TargetError, TargetHostNotAllowed
from tests.app.fake_clock import FakeClock
from tests.fake_databases import PG_CLEAR, asking_postgresql

VALUE = "hunter2"
URL = "postgresql+psycopg://u@db.example/shop"


class Registry:
    """Secrets and stores, each verb in a transaction of its own."""

    def __init__(self, database: Database, clock: FakeClock, settings: Settings) -> None:
        self.database, self.clock, self.settings = database, clock, settings

    def add(self, name: str = "shop", **fields: Any) -> Secret:
        body = {
            "name": name,
            "reference": "env:LETHE_SECRET_SHOP",
            "hosts": ["db.example"],
            "stores": ["shop"],
        }
        request = SecretCreate.model_validate(body | fields)
        with self.database.transaction() as db:
            return create_secret(db, request, settings=self.settings, now=self.clock.now())

    def change(self, name: str = "shop", **fields: Any) -> Secret:
        patch = SecretPatch.model_validate(fields)
        with self.database.transaction() as db:
            return change_secret(db, name, patch, if_match="*", settings=self.settings, now=self.clock.now())

    def store(self, name: str = "shop", **fields: Any) -> Store:
        body = {"id": name, "kind": "SYMMETRICDS", "url": URL, "password": "secret:shop"} | fields
        request = StoreCreate.model_validate(body)
        with self.database.transaction() as db:
            return create_store(
                db, request, settings=self.settings, database=self.database, now=self.clock.now()
            )

    def change_store(self, name: str = "shop", **fields: Any) -> Store:
        patch = StorePatch.model_validate(fields)
        with self.database.transaction() as db:
            return change_store(
                db, name, patch, if_match="*", active_jobs=0, settings=self.settings,
                database=self.database, now=self.clock.now(),
            )  # fmt: skip


@pytest.fixture
def registry(
    database: Database, clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Registry:
    monkeypatch.setenv("LETHE_SECRET_SHOP", VALUE)
    folder = tmp_path / "secrets"
    folder.mkdir()
    return Registry(database, clock, Settings(data_dir=tmp_path / "data", secrets_dir=folder))


def test_store_uses_what_is_registered_for_it(registry: Registry) -> None:
    registry.add(clear_text_on_loopback=True)
    target = target_of(registry.store(), registry.settings, registry.database)
    assert (target.password, target.hosts, target.tells_loopback) == (VALUE, (("db.example",),), True)
    assert VALUE not in repr(target)


@pytest.mark.parametrize(
    "reference", ["env:PATH", "file:/var/lib/lethe/admin.token", "env:LETHE_SECRET_SHOP"]
)
def test_store_that_names_a_place_itself_is_told_what_to_do(reference: str) -> None:
    with pytest.raises(ValidationError, match="lethe secret add NAME"):
        StoreCreate.model_validate({"id": "shop", "kind": "SYMMETRICDS", "url": URL, "password": reference})


def test_secret_of_another_store_is_refused_and_nobody_learns_that_it_is_there(registry: Registry) -> None:
    registry.add()
    told = []
    for name in ("shop", "nothing"):
        with pytest.raises(SecretNotAllowed) as refused:
            registry.store("other", password=f"secret:{name}")
        told.append(refused.value.detail.replace(name, "NAME").replace(name.upper(), "NAME"))
    assert told[0] == told[1]


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+psycopg://u@attacker.example/shop",
        "postgresql+psycopg://u@127.0.0.1/shop",
        "mysql+pymysql://u@attacker.example/shop",
    ],
)
def test_secret_goes_to_none_but_its_hosts(registry: Registry, url: str) -> None:
    registry.add()
    with pytest.raises(SecretNotAllowed, match="not registered for"):
        registry.store(url=url)
    registry.store()
    with pytest.raises(SecretNotAllowed):
        registry.change_store(url=url)


def test_attackers_server_hears_nothing_of_the_admins_token(registry: Registry) -> None:
    """The story of the issue: a store whose password is the admin's token, and a server that asks for it.

    Even a row that was written by another way than this service's is not connected by.
    """
    registry.settings.data_dir.mkdir()
    token = registry.settings.data_dir / "admin.token"
    token.write_text("lethe_of_the_admin")
    with asking_postgresql(PG_CLEAR) as heard:
        url = f"postgresql+psycopg://eve@127.0.0.1:{heard.port}/shop"
        registry.add(hosts=["127.0.0.1"])
        store = registry.store(url=url)
        limits = SessionLimits(connect_timeout_s=2)
        with pytest.raises(TargetError):
            connect(
                target_of(store, registry.settings, registry.database), application_name="t", limits=limits
            )
        for reference in (f"file:{token}", "env:PATH", "file:/etc/shadow"):
            with registry.database.transaction() as db:
                get_store(db, "shop").password = reference
            with pytest.raises(SecretUnavailable):
                target_of(_read(registry), registry.settings, registry.database)
            with registry.database.transaction() as db:
                db.get_one(Secret, "shop").reference = reference
                get_store(db, "shop").password = "secret:shop"
            with pytest.raises(SecretUnavailable):
                target_of(_read(registry), registry.settings, registry.database)
    assert heard.connections >= 1
    for secret in (VALUE, "lethe_of_the_admin", "/usr/bin"):
        assert secret.encode() not in heard.bytes


def _read(registry: Registry) -> Store:
    with registry.database.reading() as db:
        return get_store(db, "shop")


def test_hosts_are_those_of_now_at_each_connection(registry: Registry) -> None:
    registry.add(hosts=["127.0.0.1"])
    with asking_postgresql(PG_CLEAR) as heard:
        store = registry.store(url=f"postgresql+psycopg://u@127.0.0.1:{heard.port}/shop")
        registry.change(hosts=["db.example"])
        with pytest.raises(TargetHostNotAllowed):
            connect(target_of(store, registry.settings, registry.database), application_name="t")
        narrowed = registry.settings.model_copy(update={"allowed_hosts": ["10.0.0.0/8"]})
        registry.change(hosts=["127.0.0.1"])
        with pytest.raises(TargetHostNotAllowed):
            connect(target_of(store, narrowed, registry.database), application_name="t")
    assert heard.connections == 0


def test_right_that_is_taken_back_ends_the_next_use(registry: Registry) -> None:
    registry.add()
    store = registry.store()
    registry.change(stores=["other"])
    with pytest.raises(SecretUnavailable, match="not registered for the store shop"):
        target_of(store, registry.settings, registry.database)


def test_rotation_is_what_the_next_use_reads(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    registry.add()
    store = registry.store()
    monkeypatch.setenv("LETHE_SECRET_SHOP_2", "second")
    assert registry.change(reference="env:LETHE_SECRET_SHOP_2").version == 2
    assert target_of(store, registry.settings, registry.database).password == "second"


def test_secret_by_labels_is_for_stores_that_have_all_of_them(registry: Registry) -> None:
    registry.add(stores=[], labels={"zone": "east", "kind": "shop"})
    with pytest.raises(SecretNotAllowed):
        registry.store(labels={"zone": "east"})
    store = registry.store(labels={"zone": "east", "kind": "shop", "more": "x"})
    with registry.database.transaction() as db:
        assert takes_secret_by_label(db, store, {})
        unchanged = {"password": store.password, "labels": store.labels}
        assert not takes_secret_by_label(db, store, unchanged)
        assert takes_secret_by_label(db, store, unchanged | {"labels": {}})
    with pytest.raises(SecretNotAllowed):
        registry.change_store(labels={})


def test_token_of_some_stores_names_no_secret_that_goes_by_labels(registry: Registry) -> None:
    registry.add(labels={"zone": "east"})
    with registry.database.transaction() as db:
        for user, by_label in ((User("shop", {}), False), (User("other", {"zone": "east"}), True)):
            assert permitted_secret(db, "secret:shop", user, place=None, by_label=by_label) is not None
        with pytest.raises(SecretNotAllowed):
            permitted_secret(db, "secret:shop", User("other", {"zone": "east"}), place=None, by_label=False)


def test_secret_in_use_is_not_removed(registry: Registry) -> None:
    made_at = registry.add().created_at
    first, second = (etag(version_of(number, made_at)) for number in (1, 2))
    registry.store()
    for match, error in ((None, PreconditionMissing), (second, EtagMismatch), (first, SecretInUse)):
        with pytest.raises(error), registry.database.transaction() as db:
            remove_secret(db, "shop", if_match=match, users=stores_naming(db, reference_of("shop")))
    registry.change_store(password=None)
    with registry.database.transaction() as db:
        remove_secret(db, "shop", if_match=first, users=stores_naming(db, reference_of("shop")))


def test_name_that_is_taken_is_refused(registry: Registry) -> None:
    registry.add()
    with pytest.raises(SecretExists):
        registry.add()


@pytest.mark.parametrize(
    "fields",
    [
        {"reference": "env:PATH"},
        {"reference": "env:LETHE_METADATA_URL"},
        {"reference": "hunter2"},
        {"reference": "file:a/../../b"},
        {"reference": "file:a\nb"},
        {"hosts": []},
        {"hosts": ["http://db.example"]},
        {"stores": []},
        {"name": "UPPER"},
        {"value": "hunter2"},
    ],
)
def test_secret_that_is_none_is_refused(registry: Registry, fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        registry.add(**fields)


def test_file_elsewhere_is_refused_when_it_is_registered(registry: Registry) -> None:
    for path in ("/etc/shadow", str(registry.settings.data_dir / "admin.token")):
        with pytest.raises(SecretReferenceRefused):
            registry.add(reference=f"file:{path}")


def test_value_is_never_shown(registry: Registry) -> None:
    row = registry.add()
    shown = read_secret(row, registry.settings)
    assert shown.problem is None
    assert VALUE not in shown.model_dump_json()
    credential = credential_of(
        "secret:shop", User("shop", {}), settings=registry.settings, database=registry.database
    )
    assert credential is not None
    assert VALUE not in repr(credential)


def test_secret_that_cannot_be_read_says_why(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LETHE_SECRET_SHOP")
    assert "LETHE_SECRET_SHOP is not set" in str(read_secret(registry.add(), registry.settings).problem)

"""A password that is changed while a service works: the next connection has the new one, nobody restarts."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.engine import make_url

from app.secrets.reading import read_reference
from app.secrets.renewing import Renewal
from app.settings import Settings
from spark.targets.connection import Target, connect
from spark.targets.errors import TargetAuthFailed, TargetError
from tests.conftest import SharedServer
from tests.fake_databases import PG_CLEAR, asking_postgresql
from tests.postgresql_server import GUARDED_ROLE


class Door:
    """A role with a password, and the secret that names it: in a file, or told by a command."""

    def __init__(self, server: SharedServer, url: str, folder: Path) -> None:
        self._server = server
        self.secrets = folder / "secrets"
        self.secrets.mkdir(mode=0o700)
        self.url = make_url(url).set(username=GUARDED_ROLE).render_as_string(hide_password=False)
        program = folder / "tell"
        program.write_text(f"#!/bin/sh\necho run >> {folder}/runs\ncat {self.secrets}/shop\n")
        program.chmod(0o700)
        self.runs = folder / "runs"
        self.settings = Settings(
            data_dir=folder / "data",
            secrets_dir=self.secrets,
            exec_secrets={"tell": [str(program)]},
            secrets_fresh_s=300,
        )

    def lock(self, password: str) -> None:
        """Change it at the server."""
        self._server.execute(f"alter role {GUARDED_ROLE} password '{password}'")

    def note(self, password: str) -> None:
        """Change it where the secret lies."""
        path = self.secrets / "shop"
        path.write_text(password)
        path.chmod(0o600)

    def target(self, reference: str) -> Target:
        """As a job makes it, once."""
        value = read_reference(reference, name="shop", settings=self.settings)
        renewal = Renewal(reference, name="shop", settings=self.settings, value=value)
        return Target(url=self.url, password=value, renewal=renewal)


@pytest.fixture
def door(postgresql_server: SharedServer, postgresql_url: str, tmp_path: Path) -> Iterator[Door]:
    if postgresql_server.password is not None:
        pytest.skip("the server is not one that knows the guarded role")
    found = Door(postgresql_server, postgresql_url, tmp_path)
    postgresql_server.execute(
        f"do $$ begin create role {GUARDED_ROLE} login; exception when duplicate_object then null; end $$"
    )
    yield found
    postgresql_server.execute(f"drop role {GUARDED_ROLE}")


def _enter(target: Target) -> Any:
    with connect(target, application_name="lethe:test") as conn:
        return conn.execute("select 1")[0][0]


@pytest.mark.parametrize("reference", ["file:shop", "exec:tell"])
def test_next_connection_has_the_new_password(door: Door, reference: str) -> None:
    door.lock("one")
    door.note("one")
    target = door.target(reference)
    assert _enter(target) == 1
    for password in ("two", "three"):
        door.lock(password)
        door.note(password)
        assert _enter(target) == 1  # the target of a job that began before
        assert _enter(target) == 1
    if reference.startswith("exec:"):
        assert door.runs.read_text().split() == ["run"] * 3  # once more for each refusal


def test_refusal_of_a_password_that_is_still_the_same_is_one(door: Door, tmp_path: Path) -> None:
    door.note("one")
    renewal = Renewal("file:shop", name="shop", settings=door.settings, value="one")
    with asking_postgresql(PG_CLEAR) as heard:
        target = Target(
            url=f"postgresql+psycopg://u@127.0.0.1:{heard.port}/shop", password="one", renewal=renewal
        )
        with pytest.raises(TargetError):
            _enter(target)
        assert heard.connections == 1


def test_secret_that_cannot_be_read_now_leaves_the_last_one(door: Door) -> None:
    door.lock("one")
    door.note("one")
    target = door.target("file:shop")
    (door.secrets / "shop").unlink()
    assert _enter(target) == 1
    door.lock("two")
    with pytest.raises(TargetAuthFailed):
        _enter(target)
    door.note("two")
    assert _enter(target) == 1


def test_target_travels_without_where_its_password_is_from(door: Door) -> None:
    door.note("one")
    target = door.target("file:shop")
    there = pickle.loads(pickle.dumps(target))
    assert (there.password, there.renewal) == ("one", None)
    assert there == target
    assert not {"password", "renewal"}.intersection(repr(target).replace("=", " ").split())

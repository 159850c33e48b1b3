"""Real servers of 389 Directory Server, asked as an account that may read what the guide grants."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from app.db import Database
from app.replication.ds389.check import check_directory
from app.replication.ds389.looking import RID, Look, look, stores_of_suffix
from app.replication.ds389.showing import shown_health, shown_topology
from app.secrets.rows import Secret
from app.settings import Settings
from app.stores.borders import ask_target
from app.stores.checks.models import StoreCheck
from app.stores.rows import Store
from app.stores.service import note_target
from spark.targets.errors import (
    TargetAuthFailed,
    TargetCertificateInvalid,
    TargetHostNotAllowed,
    TargetIsAnother,
)
from spark.targets.ldap.connection import LdapTarget, directory_identity, opened_directory
from tests.certificates import make_certificate
from tests.ds389_answers import wait_until, write_everywhere
from tests.ds389_servers import FAKETIME, PASSWORD, READER, SUFFIX, Server, servers, tls_front

LAG_ERROR_S = 5.0
ALL = {"store-of-1", "store-of-2", "store-of-3", "store-of-4"}


class Site:
    """Servers, and a service that knows them as stores."""

    def __init__(self, ring: list[Server], database: Database, settings: Settings) -> None:
        self.ring, self.database, self.settings = ring, database, settings
        now = database.clock.now()
        with database.transaction() as db:
            db.add(
                Secret(
                    name="ldap",
                    reference="env:LETHE_SECRET_DS389",
                    hosts=["127.0.0.1"],
                    stores=[store_of(each) for each in ring],
                    clear_text_on_loopback=True,
                    created_at=now,
                    updated_at=now,
                )
            )
            for each in ring:
                db.add(
                    Store(
                        id=store_of(each),
                        kind="DS389",
                        url=each.url,
                        suffix="DC=Example, dc=com",
                        bind_dn=READER,
                        password="secret:ldap",
                        created_at=now,
                        updated_at=now,
                    )
                )

    def look(self) -> Look:
        return look(
            self.database, self.settings, stores_of_suffix(self.database, SUFFIX, None), is_whole=True
        )

    def check(self, server: Server) -> StoreCheck:
        """As `:check` does, and keeps what it has learned."""
        store = self.store(server)
        found = check_directory(self.database, store, self.settings, self.database.clock.now())
        if found.identity is not None:
            with self.database.transaction() as db:
                note_target(db, store.id, store, identity=found.identity, parameters=found.parameters)
        return found

    def store(self, server: Server) -> Store:
        with self.database.reading() as db:
            return db.get_one(Store, store_of(server))

    def remove(self, server: Server) -> None:
        with self.database.transaction() as db:
            db.delete(db.get_one(Store, store_of(server)))


MakeSite = Callable[[int], Site]


def store_of(server: Server) -> str:
    return f"store-of-{server.rid}"


def codes(seen: Look) -> set[tuple[str, str]]:
    """What is found, with the first server that it is about."""
    return {(each.code, each.servers[0]) for each in seen.found}


@pytest.fixture
def make_site(
    ds389: None, tmp_path: Path, sqlite_template: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[int], Site]]:
    opened, kept = [], []

    def make(count: int) -> Site:
        path = tmp_path / "lethe.db"
        shutil.copy(sqlite_template, path)
        monkeypatch.setenv("LETHE_SECRET_DS389", PASSWORD)
        folder = Path(tempfile.mkdtemp(prefix="ds"))  # the path of a socket has 107 bytes at most
        kept.append(folder)
        running = servers(folder, count)
        ring = running.__enter__()
        opened.append(running)
        database = Database(f"sqlite:///{path}")
        return Site(ring, database, Settings(data_dir=tmp_path))

    yield make
    for running in opened:
        running.__exit__(None, None, None)
    for folder in kept:
        shutil.rmtree(folder, ignore_errors=True)


def test_two_servers_are_read_and_one_is_missed_when_it_is_stopped(
    make_site: MakeSite, tmp_path: Path
) -> None:
    site = make_site(2)
    one, two = site.ring
    write_everywhere(site.ring)
    checked = site.check(one)
    assert (checked.ok, checked.reachable, checked.parameters) == (True, True, {RID: 1}), checked
    assert checked.identity is not None
    assert ask_target(site.database, site.settings, site.store(one)) == checked.identity
    assert site.check(two).identity != checked.identity
    _verifies_who_answers(one, tmp_path)
    topology = shown_topology(site.look())
    assert [(each.supplier, each.consumer) for each in topology.agreements] == [
        ("store-of-1", "store-of-2"),
        ("store-of-2", "store-of-1"),
    ]
    assert {each.rid for each in topology.servers[0].ruv} == {1, 2}
    two.stop()
    one.write("while-away")
    wait_until(lambda: ("AGREEMENT_FAILED", "store-of-1") in codes(site.look()), "a failed agreement")
    health = shown_health(site.look())
    assert health.status.value == "CRITICAL"
    [away] = [each for each in health.findings if each.code == "SERVER_AWAY"]
    assert (away.servers, away.rid) == (["store-of-2"], 2)
    assert "RID_DANGLING" not in {each.code for each in health.findings}, "it is known whose RID 2 is"
    assert not site.check(two).reachable


def _verifies_who_answers(server: Server, tmp_path: Path) -> None:
    """TLS to the right name with the right authority, and to nobody else; the password goes nowhere else."""
    certificate, key = make_certificate(tmp_path)
    (other := tmp_path / "other").mkdir()
    stranger, _ = make_certificate(other)
    with tls_front(server.port, certificate, key) as port:

        def asks(url: str) -> str | None:
            target = LdapTarget(url, READER, SUFFIX, PASSWORD)
            with opened_directory(target, connect_timeout_s=5) as directory:
                return directory_identity(directory)

        assert asks(f"ldaps://127.0.0.1:{port}?ca={certificate}")
        with pytest.raises(TargetCertificateInvalid):
            asks(f"ldaps://127.0.0.1:{port}?ca={stranger}")
        with pytest.raises(TargetCertificateInvalid):
            asks(f"ldaps://127.0.0.1:{port}")
        with pytest.raises(TargetCertificateInvalid):
            asks(f"ldaps://127.0.0.1:{port}?ca={tmp_path}/missing.pem")
        with pytest.raises(TargetCertificateInvalid):  # of another name
            asks(f"ldaps://localhost:{port}?ca={certificate}")
    with pytest.raises(TargetCertificateInvalid, match="TLS could not begin"):
        asks(f"ldap://localhost:{server.port}")
    with pytest.raises(TargetAuthFailed, match="clear text"):
        asks(f"ldap://localhost:{server.port}?tls=none")
    wrong = LdapTarget(server.url, READER, SUFFIX, "another", tells_loopback=True)
    with pytest.raises(TargetAuthFailed), opened_directory(wrong, connect_timeout_s=5):
        pass
    bound = LdapTarget(server.url, READER, SUFFIX, PASSWORD, tells_loopback=True, bound_to="ds389:other")
    with pytest.raises(TargetIsAnother), opened_directory(bound, connect_timeout_s=5):
        pass
    listed = LdapTarget(server.url, READER, SUFFIX, PASSWORD, hosts=(("10.0.0.0/8",),), tells_loopback=True)
    with pytest.raises(TargetHostNotAllowed), opened_directory(listed, connect_timeout_s=5):
        pass


@pytest.mark.long
def test_a_ring_of_four_names_each_fault_and_how_far_a_server_is_behind(
    make_site: MakeSite, tmp_path: Path
) -> None:
    site = make_site(4)
    s1, s2, s3, s4 = site.ring
    write_everywhere(site.ring)
    assert all(site.check(each).ok for each in site.ring)
    seen = site.look()
    assert {each.severity.value for each in seen.found} <= {"WARNING"}, seen.found
    assert not codes(seen) - {("AGREEMENT_WAITS", store) for store in ALL}

    # Lag: nothing goes to s3 any more.
    for each in (s2, s4):
        each.modify(each.agreements["s3"], nsds5ReplicaEnabled="off")
    for each in (s1,):
        if "s3" in each.agreements:
            each.modify(each.agreements["s3"], nsds5ReplicaEnabled="off")
    time.sleep(1)
    s1.write("first-missing")
    missing_since = datetime.now(UTC)
    time.sleep(8)
    s1.write("last-missing")
    seen = site.look()
    lags = {each.rid: each for each in shown_topology(seen).servers[2].lags}
    behind_s = (datetime.now(UTC) - missing_since).total_seconds()
    lag = lags[1]
    assert lag.at_most is not None
    assert lag.at_least.total_seconds() <= behind_s
    assert ("AGREEMENT_MISSING", "store-of-3") in codes(seen)
    assert ("AGREEMENT_OFF", "store-of-2") in codes(seen)
    newest_there_s = behind_s - LAG_ERROR_S
    assert lag.at_most.total_seconds() >= newest_there_s
    for each in (s1, s2, s4):
        if "s3" in each.agreements:
            each.modify(each.agreements["s3"], nsds5ReplicaEnabled="on")
    wait_until(lambda: "last-missing" in s3.people(), "level again")
    began = time.monotonic()
    wait_until(lambda: not shown_topology(site.look()).servers[2].lags, "no lag told")
    assert time.monotonic() - began < LAG_ERROR_S

    # Stopped; and put back from a backup that is older than what its peers have of it.
    s3.stop()
    s3.back_up(tmp_path / "kept")
    wait_until(lambda: ("SERVER_AWAY", "store-of-3") in codes(site.look()), "away")
    s3.start()
    s3.write("of-three")
    wait_until(lambda: all("of-three" in each.people() for each in site.ring), "everywhere")
    for each in (s1, s2, s4):
        if "s3" in each.agreements:
            each.modify(each.agreements["s3"], nsds5ReplicaEnabled="off")
    s3.stop()
    s3.put_back(tmp_path / "kept")
    s3.start()
    assert ("SERVER_RESTORED", "store-of-3") in codes(site.look())
    for each in (s1, s2, s4):
        if "s3" in each.agreements:
            each.modify(each.agreements["s3"], nsds5ReplicaEnabled="on")
    s1.write("wakes-them")
    wait_until(lambda: "of-three" in s3.people(), "its own came back")
    wait_until(lambda: ("SERVER_RESTORED", "store-of-3") not in codes(site.look()), "well again")

    # A clock that is half an hour ahead.
    assert Path(FAKETIME).exists(), "Debian: faketime"
    s4.stop()
    s4.start(offset_s=1_800)
    s4.write("from-the-future")
    found = codes(site.look())
    assert ("SERVER_CLOCK_WRONG", "store-of-4") in found
    assert ("CSN_AHEAD", "store-of-4") in found
    wait_until(lambda: "from-the-future" in s1.people(), "replicated")
    s1.write("pulled-along")
    assert ("CSN_AHEAD", "store-of-1") in codes(site.look()), "who follows a wrong clock is named as well"

    # Gone for good, and its RID is still everywhere.
    s4.stop()
    site.remove(s4)
    found = codes(site.look())
    assert ("RID_DANGLING", "store-of-1") in found
    assert ("AGREEMENT_UNKNOWN", "store-of-1") in found

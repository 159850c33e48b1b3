"""Services on SQLite and on PostgreSQL metadata, and stores on copies of the reference data."""

from __future__ import annotations

import itertools
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.cli.main import main
from tests.conftest import SharedServer
from tests.http.commands import Command
from tests.http.metadata_rows import MetadataRows
from tests.http.service_process import ServiceProcess
from tests.http.shop import Shop
from tests.http.supplying import SECRETS
from tests.http.targets import copy_reference
from tests.oracles.symmetricds_schema import Version
from tests.spark.events.catalogs import catalogs, slony_templates  # noqa: F401 -- fixtures

SECRET = "correct-horse-battery-staple"
METADATA = ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)]
# What these ask of a target or a peer is the same on either kind of metadata: on PostgreSQL a few of them are
# enough, and all are with make test-long. The tests of app ask every statement of both kinds.
ON_POSTGRESQL_TOO = {
    "test_bad_purges.py": set(),
    "test_bad_targets.py": set(),
    "test_discard_grants.py": set(),
    "test_erasure.py": {"test_protected_file_is_left_until_the_backup_has_ended"},
    "test_extinctions.py": {"test_extinction_of_an_environment_is_counted"},
    "test_extinctions_kept.py": {"test_status_query_takes_the_longest_keys"},
    "test_replication_histories.py": set(),
    "test_replication_put_back.py": set(),
    "test_replication_sessions.py": {
        "test_a_session_brings_what_is_missing_once",
        "test_an_agreement_shows_lag_and_389s_words",
        "test_a_total_initialisation_makes_a_copy_and_changes_follow",
        "test_a_session_that_is_aborted_while_it_waits_has_ended",
        "test_sessions_are_listed_newest_first",
    },
}
_numbers = itertools.count(1)

MakeShop = Callable[..., Shop]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put off to the long run what PostgreSQL as metadata adds nothing to."""
    for item in items:
        chosen = getattr(item, "callspec", None)
        if item.path.parent != Path(__file__).parent or chosen is None:
            continue
        kept = ON_POSTGRESQL_TOO.get(item.path.name)
        if (
            kept is not None
            and chosen.params.get("service") == "postgresql"
            and item.name.split("[")[0] not in kept
        ):
            item.add_marker(pytest.mark.long)


@pytest.fixture(scope="session")
def roots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The one directory below which the session's services may touch files."""
    return tmp_path_factory.mktemp("roots")


@pytest.fixture(scope="session")
def settings(roots: Path) -> dict[str, str]:
    """The environment of the session's services: roots and hosts are narrowed, some secrets are set."""
    secrets_dir = roots / SECRETS
    secrets_dir.mkdir(mode=0o700)
    return {
        "LETHE_ALLOWED_ROOTS": str(roots),
        "LETHE_ALLOWED_HOSTS": "127.0.0.1",
        "LETHE_SECRETS_DIR": str(secrets_dir),
        "LETHE_SECRET_SHOP": SECRET,
        "LETHE_SECRET_WRONG": f"not-{SECRET}",
        # Suppliers of tests are often made by hand; those of the service prove what they say all the same.
        "LETHE_REPLICATION_UNPROVEN_PEERS": "true",
        "SHOP_PASSWORD": SECRET,
    }


@pytest.fixture(scope="session")
def metadata_url(postgresql_server: SharedServer) -> Iterator[str]:
    """A PostgreSQL database for the metadata of the session's services."""
    name = f"lethe_metadata_{uuid.uuid4().hex[:12]}"
    postgresql_server.create_database(name)
    yield postgresql_server.url(name)
    postgresql_server.execute(f"drop database if exists {name} with (force)")


@pytest.fixture(scope="session")
def sqlite_service(roots: Path, settings: dict[str, str]) -> Iterator[ServiceProcess]:
    """One service on SQLite metadata."""
    service = ServiceProcess(roots / "on-sqlite", settings=settings).start()
    yield service
    assert service.stop() == 0
    assert_quiet_log(service)


@pytest.fixture(scope="session")
def postgresql_service(roots: Path, settings: dict[str, str], metadata_url: str) -> Iterator[ServiceProcess]:
    """One service on PostgreSQL metadata."""
    service = ServiceProcess(roots / "on-postgresql", metadata_url=metadata_url, settings=settings).start()
    yield service
    assert service.stop() == 0
    assert_quiet_log(service)


@pytest.fixture(scope="session")
def second_service(
    roots: Path, settings: dict[str, str], metadata_url: str, postgresql_service: ServiceProcess
) -> Iterator[ServiceProcess]:
    """A second service on the PostgreSQL metadata of the first."""
    service = ServiceProcess(roots / "second", metadata_url=metadata_url, settings=settings).start()
    yield service
    assert service.stop() == 0
    assert_quiet_log(service)


def assert_quiet_log(service: ServiceProcess) -> None:
    """Nothing of a whole session was a bug, and no secret reached the log."""
    assert service.traces() == []
    log = service.log()
    assert [line for line in log.splitlines() if not line.startswith("{")] == []
    assert SECRET not in log
    assert service.token not in log


@pytest.fixture(scope="session", params=METADATA)
def service(request: pytest.FixtureRequest) -> ServiceProcess:
    """The service under test, once on each kind of metadata."""
    found: ServiceProcess = request.getfixturevalue(f"{request.param}_service")
    return found


@pytest.fixture
def http(service: ServiceProcess) -> Iterator[httpx.Client]:
    """A client with the admin's token."""
    with service.http() as client:
        yield client


@pytest.fixture
def command(
    service: ServiceProcess, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> Command:
    """Runs the command in this process, as the admin of the service."""
    monkeypatch.setenv("LETHE_URL", service.url)
    monkeypatch.setenv("LETHE_TOKEN", service.token)

    def run(*arguments: str) -> tuple[int, str, str]:
        capsysbinary.readouterr()
        code = main(arguments)
        found = capsysbinary.readouterr()
        return code, found.out.decode(), found.err.decode()

    return run


@pytest.fixture
def anonymous(service: ServiceProcess) -> Iterator[httpx.Client]:
    """A client without a token."""
    with service.http("") as client:
        yield client


@pytest.fixture
def metadata(service: ServiceProcess) -> MetadataRows:
    """The rows of the service's metadata."""
    return MetadataRows(service)


@pytest.fixture
def make_shop(http: httpx.Client, roots: Path) -> MakeShop:
    """Makes a registered store on a fresh copy of the reference database."""

    def make(version: Version = "3.x", **fields: Any) -> Shop:
        name = f"shop-{os.getpid()}-{next(_numbers)}"
        path = copy_reference(roots / f"{name}.sqlite", version)
        body = {"id": name, "kind": "SYMMETRICDS", "url": f"sqlite:///{path}"} | fields
        answer = http.post("/v1/stores", json=body)
        assert answer.status_code == 201, answer.text
        return Shop(http=http, id=name, path=path)

    return make


@pytest.fixture
def shop(make_shop: MakeShop) -> Shop:
    """A store with the 3.x reference rows."""
    return make_shop()


@pytest.fixture
def make_token(http: httpx.Client) -> Callable[..., str]:
    """Makes a token with the given scopes and returns its secret."""

    def make(*scopes: str, **fields: Any) -> str:
        body = {"name": "test", "scopes": list(scopes)} | fields
        answer = http.post("/v1/tokens", json=body)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["token"])

    return make

"""Servers that several journeys share: whoever kills one starts one of his own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.journeys.crashes import CRASHING
from tests.journeys.runners import Runners, two_workers
from tests.journeys.service import Service, serving
from tests.postgresql_server import PostgresqlServer, scratch_directory


@pytest.fixture(scope="session")
def standing_postgresql(postgresql_binaries: Path) -> Iterator[PostgresqlServer]:
    """A private server with fsync on, in which tests may make roles and databases."""
    with scratch_directory() as directory:
        server = PostgresqlServer(postgresql_binaries, directory)
        server.start()
        yield server
        server.stop()


@pytest.fixture(scope="session")
def standing_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service on SQLite metadata, for journeys that leave it alive."""
    directory = tmp_path_factory.mktemp("standing")
    with serving(directory / "service", {**CRASHING, "LETHE_PURGE_WORKERS": "2"}) as service:
        yield service


@pytest.fixture(scope="module")
def standing_runners(
    tmp_path_factory: pytest.TempPathFactory, standing_postgresql: PostgresqlServer
) -> Iterator[Runners]:
    """A service and two workers."""
    with two_workers(tmp_path_factory.mktemp("runners"), standing_postgresql) as made:
        yield made


@pytest.fixture
def runners(standing_runners: Runners) -> Iterator[Runners]:
    """The same, whole again after a test that killed or stopped a worker."""
    yield standing_runners
    standing_runners.revive()

"""Applications over a migrated metadata database, with an admin's token."""

import pytest

from app.db import Database
from app.settings import Settings
from tests.app.auth.requests import Gate, Http, MakeHttp, build, make_token, open_gate
from tests.app.fake_clock import FakeClock


@pytest.fixture
def make_http(database: Database, settings: Settings, clock: FakeClock) -> MakeHttp:
    token = make_token(database, clock)

    def make(gate: Gate | None = None) -> Http:
        return Http(build(settings, database, clock, gate or open_gate()), token)

    return make


@pytest.fixture
def http(make_http: MakeHttp) -> Http:
    return make_http()

"""A service in this process, and a browser that has logged in to its console."""

from __future__ import annotations

import pytest

from app.auth.scopes import Role
from app.db import Database
from app.settings import Settings
from tests.app.console.browser import Browser
from tests.app.fake_clock import FakeClock
from tests.app.fleet.test_overview import Fleet


@pytest.fixture
def fleet(database: Database, clock: FakeClock, settings: Settings) -> Fleet:
    return Fleet(database, clock, settings)


@pytest.fixture
def browser(fleet: Fleet) -> Browser:
    """Of an admin."""
    browser = Browser(fleet.app)
    assert browser.login(fleet.token(Role.ADMIN)).status_code == 303
    return browser

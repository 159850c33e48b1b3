"""Single steps of the way of a metadata database, up and down."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from alembic import command
from alembic.config import Config

from app.db import Database

ROOT = Path(__file__).parents[2]


def step_up(database: Database, revision: str) -> None:
    """Upgrade to a revision."""
    _step(database, revision, command.upgrade)


def step_down(database: Database, revision: str) -> None:
    """Downgrade to a revision."""
    _step(database, revision, command.downgrade)


def _step(database: Database, revision: str, way: Callable[[Config, str], None]) -> None:
    config = Config()
    config.set_main_option("script_location", str(ROOT / "migrations"))
    with database.engine.begin() as connection:
        config.attributes["connection"] = connection
        way(config, revision)

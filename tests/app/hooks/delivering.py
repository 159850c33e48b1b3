"""Deliverers at work, and waiting for what they do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from app.db import Database
from app.hooks.deliverer import Deliverer
from app.outbox.rows import DeliveryState
from app.settings import Settings
from tests.app.hooks.outboxes import (
    deliveries_of,
)


@contextmanager
def delivering(database: Database, settings: Settings, count: int = 1) -> Iterator[list[Deliverer]]:
    """So many deliverers, each of an instance of its own."""
    others = [Database(database.url.render_as_string(hide_password=False), clock=database.clock)]
    others *= count - 1
    running = [
        Deliverer(each, settings, instance_id=f"ins_{number}")
        for number, each in enumerate((database, *others))
    ]
    for each in running:
        each.start()
    try:
        yield running
    finally:
        for each in running:
            each.stop()
        for each in running:
            each.join(10)
        for other in set(others):
            other.close()


def until(true: Callable[[], Any], timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def ended(database: Database) -> bool:
    return all(row.state != DeliveryState.PENDING for row in deliveries_of(database))

"""kill -9 around the commits of the outbox and of its deliveries: at least once, none lost, ids stable."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from pathlib import Path

import pytest
from sqlmodel import select

from app.clock import SystemClock
from app.db import Database
from app.hooks.deliverer import Deliverer
from app.jobs.rows import Job
from app.jobs.states import JobState
from app.outbox.rows import DeliveryState
from app.settings import Settings
from tests.app.forged import forged
from tests.app.hooks.dying import READY, live
from tests.app.hooks.outboxes import deliveries_of, make_hook
from tests.receivers import receiving


@pytest.mark.parametrize("kills", [6, pytest.param(1_000, marks=pytest.mark.long)])
def test_every_event_arrives_however_often_its_writer_and_sender_die(
    database: Database, tmp_path: Path, kills: int
) -> None:
    seed = int(os.environ.get("LETHE_TEST_SEED", time.time()))
    chance = random.Random(seed)
    url = database.url.render_as_string(hide_password=False)
    with receiving() as receiver:
        receiver.key = make_hook(database, receiver.url).own_key
        for _ in range(kills):
            with forged(live, url, str(tmp_path)) as (_, said):
                assert READY in said
                time.sleep(chance.uniform(0, 0.1))
        last = Deliverer(database, Settings(data_dir=tmp_path), instance_id="ins_1")
        database.clock = SystemClock()  # on SQLite leases are judged by it
        last.start()
        deadline = time.monotonic() + 30 + kills / 5
        while any(row.state == DeliveryState.PENDING for row in deliveries_of(database)):
            assert time.monotonic() < deadline, seed
            time.sleep(0.1)
        last.stop()
        last.join(10)
    with database.reading() as db:
        committed = set(db.exec(select(Job.id).where(Job.state == JobState.ABORTED)).all())
    arrived: dict[str, str] = {}
    assert receiver.refused == 0, seed
    for body in receiver.events:
        job_id = arrived.setdefault(body["id"], body["data"]["job_id"])
        assert job_id == body["data"]["job_id"], seed
    assert len(committed) >= kills, seed
    assert set(arrived.values()) == committed, seed  # none is lost, none tells what has not happened
    assert len(arrived) == len(committed), seed  # no event has two ids
    sent = Counter(body["id"] for body in receiver.events)
    assert sum(sent.values()) <= len(committed) + 2 * kills, seed  # only what a kill has left is sent again

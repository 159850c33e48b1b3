"""An instance that writes events and sends them, in a process of its own (tests/app/forged.py)."""

from __future__ import annotations

import threading
from pathlib import Path

from app.db import Database
from app.hooks.deliverer import Deliverer
from app.settings import Settings
from tests.app.hooks.outboxes import end_job, make_job

WRITERS = 2
READY = "ready\n"


def live(url: str, data_dir: str) -> None:
    """End jobs and deliver, until it is killed; says when it does both."""
    database = Database(url)
    Deliverer(database, Settings(data_dir=Path(data_dir)), instance_id="ins_1").start()

    def write() -> None:
        while True:
            end_job(database, make_job(database))

    end_job(database, make_job(database))
    for _ in range(WRITERS):
        threading.Thread(target=write, daemon=True).start()
    print(READY, end="", flush=True)
    threading.Event().wait()

"""The deliverer of one instance: a thread that sleeps until something is due, and senders while it is.

Rules:
- a commit that has left something rings the bell; what others have left is found by a look every POLL_S, or
  every PENDING_POLL_S while something waits;
- whose turn it is goes by app.hooks.turns: who is slow keeps nobody else waiting;
- a webhook that fails rests, so that what waits for it keeps nobody busy; after metadata that could not be
  written its sender rests PENDING_POLL_S, and only what was settled rings;
- a stop waits for nobody: what was being sent is sent again when its lease has run out.
"""

import json
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final

import structlog

from app.db import Database
from app.errors import ServiceError
from app.hooks.leases import Taken, due_hooks, is_anything_pending, settle, take, take_back
from app.hooks.looks import LOOK_EVERY_S, look
from app.hooks.sending import Outcome, send
from app.hooks.service import check_receiver, hosts_of
from app.hooks.signing import headers_of, keys_of
from app.hooks.turns import Burst, Turns
from app.jobs.running.runner import survive
from app.settings import Settings

POLL_S: Final = 30.0
PENDING_POLL_S: Final = 5.0
logger = structlog.get_logger("lethe.webhooks")
Send = Callable[[Taken], Outcome]


class Deliverer:
    """Sends what the outbox holds until it is stopped."""

    def __init__(self, database: Database, settings: Settings, *, instance_id: str) -> None:
        self._database = database
        self._settings = settings
        self._instance_id = instance_id
        self._is_recovered = False
        self._stopped = threading.Event()
        self._turns = Turns()
        self._looked_at_s = -LOOK_EVERY_S
        self._thread = threading.Thread(target=self._run, name="lethe-webhooks", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Take nothing new; returns at once."""
        self._stopped.set()
        self._database.bell.set()

    def join(self, timeout_s: float) -> None:
        """Wait for the end of all threads, for so long at most."""
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        self._turns.wait_for_all(timeout_s)

    def _run(self) -> None:
        bell = self._database.bell
        while not self._stopped.is_set():
            bell.clear()  # before the look: what is committed during it rings again
            is_pending = survive(self._round, "webhooks wait: metadata away")
            bell.wait(PENDING_POLL_S if is_pending else POLL_S)

    def _round(self) -> bool:
        """Look what is due, and let it be sent; whether something waits still."""
        if not self._is_recovered:
            with self._database.transaction() as db:
                take_back(db, self._instance_id, now=self._database.now(db))
            self._is_recovered = True
        if time.monotonic() - self._looked_at_s >= LOOK_EVERY_S:
            self._looked_at_s = time.monotonic()
            survive(partial(look, self._database), "webhooks wait: metadata away")
        busy = self._turns.busy
        with self._database.reading() as db:
            is_pending = is_anything_pending(db)  # alone where nothing is: an idle service asks one question
            due = due_hooks(db, now=self._database.now(db), but=busy) if is_pending else []
        for webhook_id in self._turns.give(due):
            threading.Thread(
                target=self._send_all, args=(webhook_id,), name="lethe-webhook-sender", daemon=True
            ).start()
        return is_pending

    def _send_all(self, webhook_id: str) -> None:
        ended: list[Outcome | None] = []
        burst = Burst()
        is_slow = False
        try:
            is_whole = survive(partial(self._burst, webhook_id, burst, ended), "webhooks wait: metadata away")
            is_slow = burst.is_slow
            if not is_whole:  # metadata that can be read and not written would be asked without an end
                self._stopped.wait(PENDING_POLL_S)
        finally:
            self._turns.end(webhook_id, is_slow=is_slow)
            if any(ended):
                self._database.bell.set()  # the next one has its turn

    def _burst(self, webhook_id: str, burst: Burst, ended: list[Outcome | None]) -> bool:
        """Send one after the other; True: it came to its end. `ended` gets how each was settled."""
        while not self._stopped.is_set() and burst.goes_on():
            ended.append(self._send_one(webhook_id))
            if ended[-1] is None or not ended[-1].is_delivered:
                break
        return True

    def _send_one(self, webhook_id: str) -> Outcome | None:
        """How the one that was due is settled; None: none was."""
        with self._database.transaction() as db:
            source, instance = self._settings.webhook_source, self._instance_id
            taken = take(db, self._database, webhook_id, source=source, instance_id=instance)
        if taken is None:
            return None
        outcome = self._settled(taken)
        with self._database.transaction() as db:
            settle(db, self._database, taken, outcome)
        if not outcome.is_delivered:
            logger.warning(
                "webhook not delivered", webhook=webhook_id, event_id=taken.event["id"], error=outcome.error
            )
        return outcome

    def _settled(self, taken: Taken) -> Outcome:
        """How an attempt ended: a bug in it fails the attempt, and does not leave it under its lease."""
        try:
            return self._outcome(taken)
        except Exception as error:
            logger.exception("an attempt of a webhook failed", webhook=taken.hook.id)
            return Outcome(
                error=f"the attempt failed within Lethe ({type(error).__name__}); its log says more"
            )

    def _outcome(self, taken: Taken) -> Outcome:
        hook = taken.hook
        try:
            check_receiver(hook, settings=self._settings)  # the settings may have changed since
            with self._database.reading() as db:
                now = self._database.now(db)
                keys = keys_of(db, hook, self._settings, now=now)
        except ServiceError as error:
            return Outcome(error=error.detail)
        body = json.dumps(taken.event, ensure_ascii=False, separators=(",", ":"))
        return send(
            hook.url,
            body.encode(),
            headers_of(keys, taken.event["id"], body, now=now),
            hosts=hosts_of(hook.url, self._settings, [key.hosts for key in keys]),
            ca_file=hook.ca_file,
            timeout_s=self._settings.webhook_timeout_s,
            now=now,
        )

"""Writers at the origin of a cluster: small transactions, some open for a while, a few rolled back."""

from __future__ import annotations

import threading
import time
from random import Random
from typing import Any

import psycopg

TRANSACTIONS_PER_S = 40.0
WRITERS = 2
ACCOUNTS = 200
LINGER_S = 0.3
STOP_TIMEOUT_S = 15.0


class Load:
    """Writers in threads.

    Args:
        conninfo: libpq's address of the origin.
        per_s: transactions a second, of all writers together.
        linger: which part of them stays open for LINGER_S after its last statement.
    """

    def __init__(
        self,
        conninfo: str,
        *,
        per_s: float = TRANSACTIONS_PER_S,
        writers: int = WRITERS,
        linger: float = 0.03,
        seed: int = 1,
    ) -> None:
        self._conninfo = conninfo
        self._pause_s = writers / per_s
        self._linger = linger
        self._over = threading.Event()
        self._failures: list[psycopg.Error] = []
        self._guard = threading.Lock()
        self._threads = [
            threading.Thread(target=self._write, args=(Random(seed * 1_000 + number),), daemon=True)
            for number in range(writers)
        ]
        self.committed = 0

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End every writer after its transaction; a statement that failed is raised here."""
        self._over.set()
        for thread in self._threads:
            thread.join(STOP_TIMEOUT_S)
            assert not thread.is_alive(), "a writer hangs"
        if self._failures:
            raise self._failures[0]

    def await_committed(self, more: int, *, timeout_s: float = 30.0) -> None:
        """Wait until so many more transactions were committed."""
        wanted, deadline = self.committed + more, time.monotonic() + timeout_s
        while self.committed < wanted:
            if self._failures:
                raise self._failures[0]
            assert time.monotonic() < deadline, f"{self.committed} of {wanted} transactions"
            time.sleep(0.02)

    def _write(self, source: Random) -> None:
        try:
            with psycopg.connect(self._conninfo, application_name="load") as session:
                while not self._over.is_set():
                    began = time.monotonic()
                    self._transaction(session, source)
                    self._over.wait(max(0.0, self._pause_s - (time.monotonic() - began)))
        except psycopg.Error as exc:  # told by stop()
            self._failures.append(exc)

    def _transaction(self, session: psycopg.Connection[Any], source: Random) -> None:
        # One account in a transaction: two writers wait for one another, but never in a circle.
        account = source.randrange(ACCOUNTS)
        amount = source.randrange(-500, 500)
        session.execute(
            "insert into account values (%s, %s, %s) on conflict (id) do update"
            " set balance = account.balance + excluded.balance",
            (account, f"owner {account}", amount),
        )
        session.execute(
            "insert into movement values (%s, nextval('ticket'), %s, %s)",
            (account, amount, source.choice(("rent", "salary", "caf\u00e9", "it's \\ quoted", None))),
        )
        if source.random() < 0.2:
            session.execute(
                "delete from movement where account = %s and number <"
                " (select max(number) - 50 from movement where account = %s)",
                (account, account),
            )
        if source.random() < self._linger:
            self._over.wait(LINGER_S)
        if source.random() < 0.05:
            session.rollback()
            return
        session.commit()
        with self._guard:
            self.committed += 1

"""Targets and purges."""

from typing import Final

from app.runbook.settings.entry import Setting

ENTRIES: Final = (
    Setting(
        "LETHE_TARGET_CONNECT_TIMEOUT_S",
        "5",
        "Seconds for a connection to a target.",
        ("Too small: TARGET_UNREACHABLE over slow lines. Too large: jobs notice late that a target is away."),
    ),
    Setting(
        "LETHE_TARGET_LOCK_TIMEOUT_MS",
        "500",
        "Milliseconds that a statement of ours waits for a lock at a target.",
        (
            "Too large: our statements queue in front of the application's. Too small: units are "
            "tried again and again."
        ),
    ),
    Setting(
        "LETHE_TARGET_STATEMENT_TIMEOUT_MS",
        "30000",
        "Milliseconds that one of our statements may take at a target.",
        (
            "Too small: TARGET_STATEMENT_TIMEOUT on large tables. Too large: a slow statement loads "
            "the target."
        ),
    ),
    Setting(
        "LETHE_TARGET_IDLE_IN_TRANSACTION_TIMEOUT_MS",
        "30000",
        "Milliseconds after which the target itself ends a transaction of ours that is silent.",
        (
            "Too small: units are lost while the service pauses. Too large: a dead service holds "
            "locks for longer."
        ),
    ),
    Setting(
        "LETHE_STORE_CHECK_S",
        "300.0",
        (
            "How often each store is checked by itself, in seconds. 0: never. `store.check.period` of "
            "a store wins."
        ),
        "0 or too large: `lethe status` shows old health. Too small: load on targets.",
    ),
    Setting(
        "LETHE_PURGE_WORKERS",
        "2",
        "Connections of one purge on PostgreSQL, MariaDB and MySQL, and of one audit of a large replica, "
        "beside the job's own.",
        "Too large: load on the target. Too small: purges and audits take longer.",
    ),
    Setting(
        "LETHE_PURGE_UNIT_ROWS",
        "20000",
        "Rows of the first unit (one transaction) of a purge.",
        "Too large: long transactions. Too small: many of them.",
    ),
    Setting(
        "LETHE_PURGE_UNIT_TARGET_MS",
        "300",
        "Milliseconds that a unit should take; its size follows.",
        "Too large: locks are held for longer. Too small: many small transactions.",
    ),
    Setting(
        "LETHE_PURGE_WINDOW_UNITS",
        "32",
        "Units that are planned ahead of the work.",
        "Too small: workers wait for plans. Too large: more is planned anew after a stop.",
    ),
    Setting(
        "LETHE_PURGE_UNIT_RETRIES_MAX",
        "8",
        "How often a unit is tried again after a conflict at the target.",
        (
            "Too small: the job goes to WAITING in a short conflict. Too large: it tries on while the "
            "target is busy."
        ),
    ),
)

"""Metadata and instances."""

from typing import Final

from app.runbook.settings.entry import Setting

ENTRIES: Final = (
    Setting(
        "LETHE_METADATA_POOL_SIZE",
        "10",
        "Connections of this process to the metadata.",
        (
            "Too small: requests wait (METADATA_BUSY). More than the server grants to all processes "
            "together: connections are refused."
        ),
    ),
    Setting(
        "LETHE_METADATA_POOL_TIMEOUT_S",
        "20.0",
        "Seconds that a request waits for one of them.",
        "Too small: METADATA_BUSY at a peak. Too large: clients wait instead.",
    ),
    Setting(
        "LETHE_METADATA_LOCK_TIMEOUT_MS",
        "5000",
        "Milliseconds that a statement waits for a lock in the metadata.",
        "Too small: METADATA_BUSY under load. Too large: requests hang behind a lock.",
    ),
    Setting(
        "LETHE_METADATA_STATEMENT_TIMEOUT_MS",
        "30000",
        (
            "Milliseconds that one statement on the metadata may take. A server that says nothing for 5 s "
            "more is given up."
        ),
        "Too small: large lists fail. Too large: a slow statement holds its connection.",
    ),
    Setting(
        "LETHE_LEASE_TTL_S",
        "90.0",
        "Seconds after which a job of a silent instance is taken by another one.",
        (
            "Too small: jobs are taken from instances that only pause. Too large: jobs of a dead "
            "instance stand still for longer."
        ),
    ),
    Setting(
        "LETHE_LEASE_RENEW_INTERVAL_S",
        "20.0",
        "Seconds between two renewals of a lease.",
        "Not below LETHE_LEASE_SELF_STOP_S ends the start with exit 78.",
    ),
    Setting(
        "LETHE_LEASE_SELF_STOP_S",
        "60.0",
        "Seconds without a renewal after which an instance stops its own jobs.",
        "Not below LETHE_LEASE_TTL_S ends the start with exit 78.",
    ),
)

"""Replication."""

from typing import Final

from app.runbook.settings.entry import Setting

ENTRIES: Final = (
    Setting(
        "LETHE_REPLICATION_BULK_MAX_BYTES",
        "33554432",
        "Bytes of one request with local changes.",
        "Too small: BODY_TOO_LARGE for imports. Too large: memory.",
    ),
    Setting(
        "LETHE_REPLICATION_BATCH_ROWS",
        "10000",
        "Rows of one batch of a session, at the consumer.",
        "Too small: many requests. Too large: long transactions at the target.",
    ),
    Setting(
        "LETHE_REPLICATION_BATCH_MAX_BYTES",
        "8388608",
        "Bytes of one batch; the largest record must fit.",
        "Too small: many requests. Too large: memory, by LETHE_REPLICATION_BATCHES_MAX.",
    ),
    Setting(
        "LETHE_REPLICATION_IN_FLIGHT",
        "4",
        "Batches of one session that are at the consumer at a time.",
        "Too small: slow over long lines. Too large: memory.",
    ),
    Setting(
        "LETHE_REPLICATION_BATCHES_MAX",
        "32",
        "Batches of all sessions at the consumer.",
        "Too small: 429 for suppliers, which try again. Too large: memory.",
    ),
    Setting(
        "LETHE_REPLICATION_BATCHES_PER_TOKEN_MAX",
        "8",
        "Batches of one peer's token.",
        "Too small: 429 for that peer. Too large: one peer stops others.",
    ),
    Setting(
        "LETHE_REPLICATION_PARKING_S",
        "5.0",
        "Seconds that a batch waits for those before it; then BATCH_GAP.",
        "Too small: batches are sent again. Too large: they hold memory.",
    ),
    Setting(
        "LETHE_REPLICATION_UNPROVEN_PEERS",
        "false",
        "Whether peers that prove nothing of their history are let in.",
        (
            "True: what such a peer says of others' changes cannot be checked. False: an old version "
            "is refused (SUPPLIER_UNPROVEN)."
        ),
    ),
    Setting(
        "LETHE_REPLICATION_TRUSTED_SUPPLIERS",
        "none",
        "Replica ids, by commas, that may bring changes of others without the signature of those.",
        "One too many: that replica can make up changes of others. One missing: CHANGES_UNPROVEN.",
    ),
    Setting(
        "LETHE_REPLICATION_TICK_S",
        "1.0",
        "How often agreements with an interval are looked at.",
        "Too large: sessions begin late. Too small: load on the metadata.",
    ),
    Setting(
        "LETHE_REPLICATION_LEASE_S",
        "60.0",
        "Seconds that a consumer keeps its lease for a silent supplier.",
        (
            "Too small: a slow supplier loses its session. Too large: the next session waits so long "
            "after a crash."
        ),
    ),
    Setting(
        "LETHE_REPLICATION_GROUP_CHANGES_MAX",
        "1000",
        "Changes of several requests that share one transaction.",
        "Too large: one slow request holds others. Too small: fewer changes a second.",
    ),
    Setting(
        "LETHE_REPLICATION_GROUP_WAIT_MS",
        "5",
        "Milliseconds that a group waits for requests that are being read.",
        "Too large: answers are slower. 0: more transactions.",
    ),
    Setting(
        "LETHE_REPLICATION_WAITING_REQUESTS_MAX",
        "2000",
        "Requests with changes that may wait; then REPLICA_BUSY.",
        "Too small: writers are sent away at a peak. Too large: they wait for long.",
    ),
    Setting(
        "LETHE_REPLICATION_WAITING_MAX_BYTES",
        "134217728",
        "Bytes that these may hold in memory together; then REPLICA_BUSY.",
        "Too small: writers are sent away. Too large: memory.",
    ),
)

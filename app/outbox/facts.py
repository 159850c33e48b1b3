"""The events that leave by webhooks: their types, and what each tells.

Rules:
- a type and the meaning of its fields stay as they are once they have left; new fields may come;
- an event names things (job, store, file, replica id) and codes. No secret, no row, no text that a target,
  a peer or a client has written is in it.
"""

from enum import StrEnum


class Fact(StrEnum):
    """What has happened, as CloudEvents names it."""

    JOB_ENDED = "lethe.job.ended"
    BACKLOG_GROWS = "lethe.backlog.grows"
    JOB_WAITS_LONG = "lethe.job.waits_long"
    SUCCESS_OVERDUE = "lethe.success.overdue"
    ERASURE_UNPROVEN = "lethe.erasure.unproven"
    CERTIFICATE_ISSUED = "lethe.certificate.issued"
    BACKUP_INVALID = "lethe.backup.invalid"
    EPOCH_AHEAD = "lethe.store.epoch_ahead"
    REPLICA_RESTORED = "lethe.replica.restored"
    SESSION_UNPROVEN = "lethe.replication.unproven"
    SESSION_NEEDS_TOTAL = "lethe.replication.needs_total"
    SESSION_HALTED = "lethe.replication.halted"
    DEAD_LETTER = "lethe.replication.dead_letter"
    PING = "lethe.webhook.ping"


ASKED_FOR = frozenset(Fact) - {Fact.PING}
"""What a hook may want; a ping comes to whoever asks for one."""

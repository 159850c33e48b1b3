"""Replicas, batches and peers: what each code means, and what to do next."""

from typing import Final

from app.runbook.entry import Entry, Passes, Seen

ENTRIES: Final = (
    Entry(
        "REPLICA_BUSY",
        (
            Seen.HTTP,
            Seen.TARGET,
        ),
        "Another supplier has the consumer's lease, or too many changes wait for the replica.",
        (
            "Nothing to do: it passes when that session ends, or with the lease (60 s). A writer sends "
            "again after `Retry-After`."
        ),
        Passes.YES,
    ),
    Entry(
        "REPLICA_SUPPLIES",
        (Seen.TARGET,),
        "The consumer of a total initialisation is just being copied to another replica itself.",
        "Nothing to do: it passes within seconds, after a crash within two minutes.",
        Passes.YES,
    ),
    Entry(
        "REPLICA_INITIALIZING",
        (Seen.HTTP, Seen.JOB, Seen.TARGET, Seen.WAIT, Seen.FINDING),
        ("A total initialisation of the replica is under way; what is there is not complete."),
        (
            "`lethe replication session list STORE` at the supplier shows the session: wait for its "
            "end; entries are shown then. If none runs: `lethe replication session start STORE "
            "AGREEMENT --total`."
        ),
        Passes.MAYBE,
    ),
    Entry(
        "REPLICA_MISSING",
        (Seen.HTTP, Seen.TARGET, Seen.FINDING),
        "The target has no tables of a replica yet.",
        (
            "Write the first change, or begin a session with `--total` into it; check the store's URL and "
            "`table_prefix` if there should be some."
        ),
        Passes.NO,
    ),
    Entry(
        "REPLICA_PARTIAL",
        (Seen.HTTP, Seen.JOB, Seen.TARGET, Seen.FINDING),
        "The replica holds some keys only: it takes no writes of its own and supplies nobody.",
        (
            "Write at the replica that supplies it, and make agreements there: "
            "`lethe replication topology` shows which one that is."
        ),
        Passes.NO,
    ),
    Entry(
        "REPLICA_RESTORED",
        (Seen.HTTP, Seen.JOB, Seen.ATTENTION, Seen.FINDING),
        ("The target was restored from a backup: it is read-only until its own changes are back."),
        (
            "At a replica that has its changes: `lethe replication session start STORE AGREEMENT`, with"
            " the agreement that leads here. Only if no replica has them: `lethe recover STORE`, which "
            "loses them for good."
        ),
        Passes.MAYBE,
    ),
    Entry(
        "REPLICA_WAS_RESTORED",
        (Seen.TARGET,),
        "The target lacks changes that it had; it is read-only until they are back.",
        (
            "At a replica that has its changes: `lethe replication session start STORE AGREEMENT`, with"
            " the agreement that leads here. Only if no replica has them: `lethe recover STORE`, which "
            "loses them for good."
        ),
        Passes.MAYBE,
    ),
    Entry(
        "REPLICA_NOT_ONLINE",
        (Seen.JOB, Seen.TARGET),
        "The replica is being initialised, or was restored from a backup; `detail` says which.",
        ("Wait for the end of the initialisation; or see REPLICA_RESTORED if it was restored."),
        Passes.MAYBE,
    ),
    Entry(
        "REPLICA_PUT_BACK",
        (Seen.JOB,),
        "The replica was restored or made anew while it was copied; the consumer stays INITIALIZING.",
        (
            "Find out who restored it. Where it is RESTORED now, see REPLICA_RESTORED first. Then begin the "
            "session again: `lethe replication session start STORE AGREEMENT --total`."
        ),
        Passes.NO,
    ),
    Entry(
        "REPLICA_NOT_BLANK",
        (Seen.TARGET,),
        "An import or a first feed found changes in the replica. Nothing was written.",
        (
            "Register a new store for the import. Or bring this replica level by a session:"
            " `lethe replication session start STORE AGREEMENT` at a replica that supplies it."
        ),
        Passes.NO,
    ),
    Entry(
        "SNAPSHOT_DAMAGED",
        (Seen.TARGET,),
        "The file is no export of a replica, was cut short, or is not what its replica has signed.",
        "Compare its SHA-256 with that of the export's job. Copy the file again, or export again.",
        Passes.NO,
    ),
    Entry(
        "SNAPSHOT_FILE_EXISTS",
        (Seen.JOB,),
        "A file of this name is there; an export never writes over one.",
        "Name another file, or remove that one.",
        Passes.NO,
    ),
    Entry(
        "SNAPSHOT_FILE_REFUSED",
        (Seen.JOB,),
        "The file of an export or import cannot be read or written; `detail` says why.",
        (
            "Look at its folder on the worker's machine: whether it is there, has room, and lets the"
            " service's account in. Then `lethe job retry JOB`."
        ),
        Passes.NO,
    ),
    Entry(
        "REPLICA_EMPTY",
        (
            Seen.HTTP,
            Seen.JOB,
        ),
        "The replica has no changes and no generation yet.",
        "Write to it or initialise it first.",
        Passes.NO,
    ),
    Entry(
        "RID_DIFFERS",
        (Seen.TARGET, Seen.FINDING),
        "The target holds a replica of another replica id.",
        (
            "Check the store's URL and `table_prefix` by `lethe store show STORE`. If the URL is right,"
            " the replica id is wrong: register the store again with the one that `detail` names."
        ),
        Passes.NO,
    ),
    Entry(
        "GENERATION_DIFFERS",
        (Seen.TARGET, Seen.FINDING),
        ("The target holds another generation than the store says: it was made anew, or is another replica."),
        (
            "Check that the store's URL is right (`lethe store show STORE`). If it is, register the "
            "store again (`lethe store remove STORE`, which leaves the target alone, then `lethe store "
            "add STORE TARGET_URL`) "
            "with the target's generation; else name another target."
        ),
        Passes.NO,
    ),
    Entry(
        "GENERATION_MISMATCH",
        (Seen.TARGET, Seen.FINDING),
        "Supplier and consumer were initialised apart from each other.",
        (
            "Choose the side whose data stays, and read what only the other one has. Then, at the side "
            "that stays: `lethe replication session start STORE AGREEMENT --total`. It replaces all "
            "that the other one holds; if that is anything, see DISCARD_NOT_GRANTED."
        ),
        Passes.NO,
    ),
    Entry(
        "LAYOUT_UNKNOWN",
        (Seen.TARGET,),
        "The target has tables of the replica's names that are not Lethe's, or only some of them.",
        "Name another place or `table_prefix`.",
        Passes.NO,
    ),
    Entry(
        "REPLICATION_REFUSED",
        (Seen.TARGET,),
        "The replica does not allow what was asked; `detail` says why.",
        "Follow `detail`; `lethe store check STORE` tells more.",
        Passes.NO,
    ),
    Entry(
        "SESSION_REFUSED",
        (Seen.TARGET,),
        "The consumer does not allow the session; `detail` says why.",
        "Follow `detail`, then begin another session.",
        Passes.NO,
    ),
    Entry(
        "SESSION_NOT_FOUND",
        (Seen.HTTP, Seen.TARGET),
        "There is no such session here, or not any more.",
        "Nothing to do for a session between replicas: the supplier acquires the consumer again."
        " In a path: check the id.",
        Passes.MAYBE,
    ),
    Entry(
        "SESSION_ENDED",
        (Seen.TARGET,),
        "The session has ended at the consumer, or its lease ran out.",
        "Nothing to do: the supplier acquires the consumer again.",
        Passes.YES,
    ),
    Entry(
        "STALE_EPOCH",
        (Seen.TARGET,),
        "A newer session has the consumer by now.",
        "Nothing to do: the newer one goes on.",
        Passes.YES,
    ),
    Entry(
        "BATCH_GAP",
        (Seen.TARGET,),
        "A batch before this one has not come.",
        "Nothing to do: the supplier sends it again.",
        Passes.YES,
    ),
    Entry(
        "PREV_GAP",
        (Seen.TARGET,),
        "The record before this one is missing at the consumer.",
        "Nothing to do where the supplier has it: it sends again. Else the session ends with NEEDS_TOTAL.",
        Passes.MAYBE,
    ),
    Entry(
        "BODY_DAMAGED",
        (Seen.HTTP,),
        "The request is not the one that was sent; nothing was done with it.",
        (
            "Nothing to do: the supplier sends it again. If it comes often, look at proxies and the network"
            " between."
        ),
        Passes.YES,
    ),
    Entry(
        "BATCH_UNREADABLE",
        (Seen.TARGET,),
        "A batch is cut off, or not of the form that was agreed.",
        ("Compare the versions of both sides; look at proxies between them. Report it if they are the same."),
        Passes.NO,
    ),
    Entry(
        "BATCH_TOO_LARGE",
        (
            Seen.HTTP,
            Seen.TARGET,
        ),
        "A batch is larger than the consumer takes.",
        (
            "Lower `--batch-rows` or `--batch-bytes` of the agreement, or raise "
            "LETHE_REPLICATION_BATCH_MAX_BYTES at the consumer."
        ),
        Passes.NO,
    ),
    Entry(
        "TOO_MANY_BATCHES",
        (Seen.HTTP,),
        "More batches are at the consumer at a time than it takes.",
        "Nothing to do: the supplier sends again. If it lasts, raise LETHE_REPLICATION_BATCHES_MAX.",
        Passes.YES,
    ),
    Entry(
        "TOTAL_INCOMPLETE",
        (Seen.TARGET,),
        "A copy has not ended, or its changes have not: one side was restored from a backup in between.",
        "Let the session go on: it acquires again by itself. Else begin it at the supplier with `--total`.",
        Passes.MAYBE,
    ),
    Entry(
        "TOTAL_NOT_UNDER_WAY",
        (Seen.TARGET,),
        "Entries of a copy came to a replica that is not being initialised.",
        "Begin a session with `--total` at the supplier.",
        Passes.NO,
    ),
    Entry(
        "TOTAL_RUV_DIFFERS",
        (Seen.TARGET,),
        "A copy that was cut off was begun at another state of the supplier.",
        (
            "Begin the session again: `lethe replication session start STORE AGREEMENT --total`; the "
            "copy starts anew."
        ),
        Passes.MAYBE,
    ),
    Entry(
        "CHANGELOG_DAMAGED",
        (Seen.TARGET,),
        "The changelog holds values that no replica writes.",
        (
            "Keep a copy of the target: own changes that no other replica has are in it alone. Then "
            "restore it from a backup, or initialise it by a session with `--total` from another "
            "replica, which replaces all that it holds."
        ),
        Passes.NO,
    ),
    Entry(
        "CHANGELOG_INCOMPLETE",
        (Seen.TARGET,),
        "The changelog lacks a change that the replica says it has.",
        (
            "Find out who removed rows from the changelog. A session from another replica may still "
            "have the change. Else `lethe replication session start STORE AGREEMENT --total`, which "
            "replaces all that the consumer holds."
        ),
        Passes.NO,
    ),
    Entry(
        "SPOOL_FAILED",
        (Seen.TARGET,),
        "A temporary file of the session could not be written.",
        "Make room in, and check the rights of, the data directory; then `lethe job retry JOB`.",
        Passes.NO,
    ),
    Entry(
        "DIGEST_TOO_LONG",
        (Seen.HTTP,),
        "A request for digests covers more than one request can read.",
        "Ask for smaller ranges.",
        Passes.NO,
    ),
    Entry(
        "CLOCK_SKEW",
        (
            Seen.HTTP,
            Seen.JOB,
            Seen.TARGET,
        ),
        "The clocks of two replicas are further apart than is allowed.",
        (
            "Set the clocks (NTP), then begin the session again. A replica whose own time ran ahead: "
            "`lethe replication clock show STORE`, then `lethe replication clock repair STORE --reason "
            "...`."
        ),
        Passes.NO,
    ),
    Entry(
        "TIMESTAMP_OUT_OF_RANGE",
        (Seen.HTTP,),
        "The clock is outside of what a change number can hold.",
        "Set the clock of the service's machine.",
        Passes.NO,
    ),
    Entry(
        "PEER_UNANSWERED",
        (Seen.TARGET,),
        "The peer gave no answer; whether it did what was asked is found out by the next try.",
        "Check the peer's service and the network if it lasts.",
        Passes.YES,
    ),
    Entry(
        "PEER_TOO_SLOW",
        (Seen.TARGET,),
        "The peer's answer was not complete in time.",
        "Look at the load of the peer and its target if it lasts.",
        Passes.YES,
    ),
    Entry(
        "PEER_CERTIFICATE_INVALID",
        (Seen.TARGET,),
        (
            "The peer's certificate is not trusted here. Of a store's database: "
            "TARGET_CERTIFICATE_INVALID; of the service, at your command: SERVICE_UNREACHABLE."
        ),
        (
            "Give the agreement the file of the authority that signed it: `lethe replication agreement "
            "update STORE AGREEMENT --ca-file FILE`. If it has expired, renew the peer's certificate. The "
            "next session tries again."
        ),
        Passes.NO,
    ),
    Entry(
        "PEER_ANSWER_DAMAGED",
        (Seen.TARGET,),
        "The peer's answer is not the one that was sent.",
        "Nothing to do: it is asked again. If it comes often, look at proxies and the network between.",
        Passes.YES,
    ),
    Entry(
        "PEER_ANSWER_INVALID",
        (Seen.TARGET,),
        "What answers is no peer of this protocol.",
        "Check the agreement's URL, and the versions of both sides.",
        Passes.NO,
    ),
    Entry(
        "PEER_ERROR",
        (Seen.TARGET,),
        "The peer did not do what it was asked for, or nobody knows.",
        "`detail` has its words; look at the peer.",
        Passes.MAYBE,
    ),
)

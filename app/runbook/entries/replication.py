"""Agreements and sessions of replicas: what each code means, and what to do next."""

from typing import Final

from app.runbook.entry import Entry, Passes, Seen

ENTRIES: Final = (
    Entry(
        "AGREEMENT_NOT_FOUND",
        (Seen.HTTP,),
        "The store has no such agreement.",
        "`lethe replication agreement list STORE` shows those that exist.",
        Passes.NO,
    ),
    Entry(
        "AGREEMENT_EXISTS",
        (Seen.HTTP,),
        "The store has an agreement with this consumer; `detail` names it.",
        "Change that one.",
        Passes.NO,
    ),
    Entry(
        "AGREEMENT_IN_USE",
        (Seen.HTTP,),
        "A session of the agreement has not ended.",
        "Wait for its end, or abort its job.",
        Passes.MAYBE,
    ),
    Entry(
        "AGREEMENT_CHANGED",
        (Seen.JOB,),
        "The agreement names another consumer than when the session was submitted.",
        "Check the agreement, then begin a new session.",
        Passes.NO,
    ),
    Entry(
        "CONSUMER_UNREACHABLE",
        (Seen.HTTP,),
        "The consumer does not answer.",
        "Check its service and the way there; then try again.",
        Passes.YES,
    ),
    Entry(
        "CONSUMER_ANSWERED_WRONG",
        (Seen.HTTP,),
        "The consumer refused, or what answers at its URL is no consumer.",
        "`detail` has its words; check the agreement's URL, token and replica.",
        Passes.NO,
    ),
    Entry(
        "REPLICATION_SESSION_NOT_FOUND",
        (Seen.HTTP,),
        "There is no such session of the store, or it was forgotten with its job.",
        "`lethe replication session list STORE` shows those that are kept.",
        Passes.NO,
    ),
    Entry(
        "DISCARD_GRANT_NOT_FOUND",
        (Seen.HTTP,),
        "There is no such grant of the store.",
        "`lethe replication discard-grant list STORE` shows those that exist.",
        Passes.NO,
    ),
    Entry(
        "DISCARD_GRANT_OVER",
        (Seen.HTTP,),
        "The grant was spent, revoked, or has run out.",
        "Have an admin create another if it is still wanted.",
        Passes.NO,
    ),
    Entry(
        "DISCARD_NOT_GRANTED",
        (Seen.TARGET,),
        ("The session would replace what the consumer holds, and no admin has allowed it there."),
        (
            "Make sure that it may be lost. Then, at the consumer: `lethe replication discard-grant "
            "create STORE --supplier-rid RID --reason ...`; a waiting session goes on by itself."
        ),
        Passes.NO,
    ),
    Entry(
        "CONSUMER_AHEAD",
        (Seen.TARGET,),
        "The consumer holds changes that the supplier lacks.",
        (
            "Bring them first by a session the other way. Only if they may be lost for good: `lethe "
            "replication session start STORE AGREEMENT --total --discard-consumer-changes`, with an "
            "admin's grant at the consumer (DISCARD_NOT_GRANTED)."
        ),
        Passes.NO,
    ),
    Entry(
        "NEEDS_TOTAL",
        (Seen.JOB, Seen.STATE, Seen.TARGET),
        (
            "Changes alone cannot bring the consumer up to date: it lacks some that are no longer in the "
            "supplier's changelog (PURGED), is empty (NO_RUV), or was made apart (GENERATION_MISMATCH). "
            "`reason` of the session says which. Of a Slony-I feed: copy anew (`--first-copy`)."
        ),
        (
            "If another replica still has the changes, begin a session there: `lethe replication "
            "session start STORE AGREEMENT`. Else the same here with `--total`: it replaces all that "
            "the consumer holds. If that is anything, add `--discard-consumer-changes`, and see "
            "DISCARD_NOT_GRANTED."
        ),
        Passes.NO,
    ),
    Entry(
        "KIND_UNKNOWN",
        (Seen.TARGET,),
        "A record has a kind of change that this version does not know.",
        "Upgrade the consumer; the next session tries the record again.",
        Passes.NO,
    ),
    Entry(
        "RECORD_TOO_LONG",
        (Seen.TARGET,),
        "A record is longer than the consumer takes.",
        "Look at the entry at the supplier; make it smaller, or ask who writes so long ones.",
        Passes.NO,
    ),
    Entry(
        "CSN_FROM_THE_FUTURE",
        (Seen.TARGET,),
        "A record's change number is further ahead of the consumer's clock than is allowed.",
        "Set the clocks (NTP); the next session tries the record again.",
        Passes.MAYBE,
    ),
    Entry(
        "TOMBSTONE_PURGED",
        (Seen.TARGET,),
        "A change came from before tombstones that the consumer has purged: its key may be deleted since.",
        (
            "Decide first which side is whole. Note what the late one alone has (`lethe changes list STORE`)."
            " Initialise it from the whole one (`--total`, its admin's grant), and write that again. So with"
            " each replica that has the change, and a new one that refuses."
        ),
        Passes.NO,
    ),
    Entry(
        "BOUND_BEYOND_COPY",
        (Seen.TARGET,),
        "A copy came with a bound of purged tombstones beyond all changes that it holds; it was not taken.",
        (
            "Upgrade the supplier, then begin the session again: `lethe replication session start STORE "
            "AGREEMENT --total`. If it stays, somebody has changed the supplier's tables or the file."
        ),
        Passes.MAYBE,
    ),
    Entry(
        "TOMBSTONES_NOT_SUPPORTED",
        (Seen.JOB,),
        "The supplier has purged tombstones, and the consumer's version keeps no bound for older changes.",
        "Upgrade the consumer's service, then begin the session again. A consumer whose copy was under way at"
        " the first purge stays INITIALIZING until then.",
        Passes.NO,
    ),
    Entry(
        "HALTED",
        (Seen.JOB, Seen.STATE),
        ("The consumer refused a record; nothing behind it of the same replica ids was sent."),
        (
            "`lethe replication dead-letters STORE --open` shows the record and why; mend that, and "
            "remove nothing. Each later session tries it again: `lethe replication session start STORE "
            "AGREEMENT`."
        ),
        Passes.NO,
    ),
    Entry(
        "UNPROVEN_HISTORY",
        (Seen.JOB,),
        (
            "All that is known to be missing was sent, but whether both have one history cannot be "
            "compared any more."
        ),
        (
            "Begin a session from a replica that is not behind; it settles the question. `lethe "
            "replication compare STORE AGREEMENT` shows how far both are."
        ),
        Passes.NO,
    ),
    Entry(
        "DEAD_LETTER",
        (Seen.JOB, Seen.FINDING),
        "The consumer refused a record of this replica id; a check names those that are still open.",
        (
            "`lethe replication dead-letters STORE --open` shows it and why; mend that. Each later "
            "session tries it again."
        ),
        Passes.NO,
    ),
    Entry(
        "CAPABILITY_MISSING",
        (Seen.JOB,),
        "The consumer's version does not take what a session needs.",
        "Upgrade the consumer, then begin another session.",
        Passes.NO,
    ),
    Entry(
        "PROTOCOL_UNKNOWN",
        (Seen.HTTP,),
        "Supplier and consumer speak different versions of the protocol.",
        "Upgrade the older one.",
        Passes.NO,
    ),
    Entry(
        "SUPPLIER_UNPROVEN",
        (Seen.TARGET,),
        "A peer shows the key of a replica that it cannot sign for.",
        (
            "Find out which service this is; `lethe replication key list STORE` at the consumer shows "
            "the keys that it knows."
        ),
        Passes.NO,
    ),
    Entry(
        "DUPLICATE_RID",
        (Seen.TARGET,),
        "Two replicas with different keys have one replica id.",
        (
            "Two live replicas: register the later one anew, with another id and an empty target; keep its "
            "old target until its changes are written again. A key learned wrongly: see KEY_KNOWN. A lost "
            "replica made anew: `lethe replication key forget STORE RID --reason WHY` at each peer."
        ),
        Passes.NO,
    ),
    Entry(
        "DIVERGED",
        (Seen.TARGET, Seen.STATE),
        (
            "The two replicas hold different histories: one was restored together with its metadata, or"
            " served twice. Nothing was sent."
        ),
        (
            "Choose the side whose changes stay. Read what only the other has, and write it again at "
            "the chosen side. Only then, there: `lethe replication session start STORE AGREEMENT "
            "--total --discard-consumer-changes`: the rest is lost for good (DISCARD_NOT_GRANTED)."
        ),
        Passes.NO,
    ),
    Entry(
        "HISTORY_UNPROVEN",
        (Seen.TARGET,),
        "A peer claims changes of this replica that this one never signed.",
        (
            "Find out where they come from; it may be a forged claim. Only for changes from before an "
            "upgrade: name the peer's replica id in LETHE_REPLICATION_TRUSTED_SUPPLIERS, and take it "
            "out when it has brought them."
        ),
        Passes.NO,
    ),
    Entry(
        "CHANGES_UNPROVEN",
        (Seen.TARGET,),
        "Changes of another replica came without its signature.",
        (
            "Begin a session from the replica that made them. Or name the supplier's replica id in "
            "LETHE_REPLICATION_TRUSTED_SUPPLIERS: it can then make up changes of others."
        ),
        Passes.NO,
    ),
    Entry(
        "PART_DIFFERS",
        (Seen.JOB, Seen.TARGET),
        "The consumer holds, or was to hold, other keys than the agreement sends.",
        (
            "Give the agreement the `keys` of its consumer, which `lethe replication topology` shows, or a "
            "new consumer whose target has no replica yet."
        ),
        Passes.NO,
    ),
    Entry(
        "PART_NOT_SUPPORTED",
        (Seen.JOB,),
        "The consumer's version takes no part of the keys.",
        "Upgrade the consumer's service, then begin the session again.",
        Passes.NO,
    ),
    Entry(
        "SUPPLIER_PARTIAL",
        (Seen.TARGET,),
        "The supplier holds some keys only: no replica takes anything from it.",
        "Make the agreement at a replica that holds all keys.",
        Passes.NO,
    ),
    Entry(
        "PROOFS_MISSING",
        (
            Seen.JOB,
            Seen.TARGET,
        ),
        "The peer's version signs nothing.",
        "Upgrade the peer, then begin another session.",
        Passes.NO,
    ),
    Entry(
        "KEY_NOT_FOUND",
        (Seen.HTTP,),
        "No key of this replica id is known here.",
        (
            "Check the replica id by `lethe replication key list STORE`; a key is learned in the first "
            "session with it."
        ),
        Passes.NO,
    ),
    Entry(
        "KEY_KNOWN",
        (Seen.TARGET,),
        "Another key of this replica id is known, or it is this replica itself.",
        (
            "Read the right key at that replica itself (`lethe replication key list STORE`). If the "
            "known one is wrong: `lethe replication key pin STORE RID KEY --instead-of WRONG --reason "
            "...`."
        ),
        Passes.NO,
    ),
)

"""Sessions, agreements, changes and comparisons: what each word means, and what to do next."""

from typing import Final

from app.runbook.entry import Entry, Passes, Seen

ENTRIES: Final = (
    Entry(
        "ONLINE",
        (Seen.ANSWER,),
        "The replica takes changes and gives them away.",
        "Nothing to do.",
        Passes.YES,
    ),
    Entry(
        "EMPTY",
        (Seen.ANSWER,),
        "The replica is new or was emptied; it has no data and takes no changes of its own.",
        (
            "Fill it from a replica that has the data: `lethe replication session start STORE AGREEMENT "
            "--total` there."
        ),
        Passes.NO,
    ),
    Entry(
        "INITIALIZING",
        (Seen.ANSWER,),
        "A total session is filling the replica; until its end it answers nothing else.",
        (
            "Wait. If the session has ended otherwise, start it again: `lethe replication session start "
            "STORE AGREEMENT --total`."
        ),
        Passes.MAYBE,
    ),
    Entry(
        "REGISTERING",
        (Seen.ANSWER,),
        (
            "The agreement is noted here, and its target does not know it yet, so nothing is kept for its"
            " consumer."
        ),
        (
            "It goes on when the target answers: `lethe store check STORE`. `lethe replication agreement "
            "show STORE AGREEMENT`."
        ),
        Passes.MAYBE,
    ),
    Entry(
        "REGISTERED",
        (Seen.ANSWER,),
        "The agreement is in force, here and at its target.",
        "Nothing to do.",
        Passes.FINE,
    ),
    Entry(
        "ACQUIRING",
        (Seen.ANSWER,),
        "The session asks the consumer to take it; another supplier may be there.",
        "Wait some minutes. `lethe replication session show STORE SESSION` has the error, if there is one.",
        Passes.YES,
    ),
    Entry(
        "SENDING",
        (Seen.ANSWER,),
        "The session sends changes.",
        "Follow its job: `lethe job watch JOB`.",
        Passes.YES,
    ),
    Entry(
        "SEND",
        (Seen.ANSWER,),
        "The consumer lacks changes that are here, and a session would send them.",
        "`lethe replication session start STORE AGREEMENT`.",
        Passes.YES,
    ),
    Entry(
        "OPEN",
        (Seen.ANSWER,),
        "The grant to discard may still be used, once.",
        (
            "Use it by a total session with `--discard-consumer-changes`, or take it away: `lethe "
            "replication discard-grant revoke STORE GRANT`."
        ),
        Passes.YES,
    ),
    Entry(
        "CONSUMED",
        (Seen.ANSWER,),
        "The grant to discard was used, and does not hold a second time.",
        (
            "For another session: `lethe replication discard-grant create STORE --supplier-rid RID "
            "--reason WHY`."
        ),
        Passes.NO,
    ),
    Entry(
        "REVOKED",
        (Seen.ANSWER,),
        "Somebody took the grant to discard away before it was used.",
        "`lethe replication discard-grant list STORE`. Ask who did it: `lethe audit list`.",
        Passes.NO,
    ),
    Entry(
        "HERE",
        (Seen.ANSWER,),
        "The change is in the replica's changelog.",
        "Nothing to do.",
        Passes.FINE,
    ),
    Entry(
        "TRIMMED",
        (Seen.ANSWER,),
        "The change was in the replica's changelog and left it by a purge.",
        "Nothing to do, unless a consumer still lacks it: then see NEEDS_TOTAL.",
        Passes.FINE,
    ),
    Entry(
        "FOREIGN",
        (Seen.ANSWER,),
        (
            "The change was never part of this replica's history, though it should have been: both sides "
            "have gone apart."
        ),
        (
            "Do not start a session. Compare first: `lethe replication audit STORE AGREEMENT`. Then see "
            "UNPROVEN_HISTORY."
        ),
        Passes.NO,
    ),
    Entry(
        "AHEAD",
        (Seen.ANSWER,),
        "The change is newer than all that this replica has of its origin.",
        "`lethe replication session start STORE AGREEMENT` at the side that has it.",
        Passes.MAYBE,
    ),
    Entry(
        "ONLY_SUPPLIER",
        (Seen.ANSWER,),
        "Not compared: only the supplier has changes of this replica id.",
        "Run a session of the agreement, then the audit again: `lethe replication audit STORE AGREEMENT`.",
        Passes.NO,
    ),
    Entry(
        "ONLY_CONSUMER",
        (Seen.ANSWER,),
        "Not compared: only the consumer has changes of this replica id.",
        "If they should come here, run a session the other way; then the audit again.",
        Passes.NO,
    ),
    Entry(
        "NOTHING_IN_COMMON",
        (Seen.ANSWER,),
        "Not compared: of this replica id there is no range of changes that both sides still have.",
        (
            "Purges removed it on one side. Compare the entries instead: `lethe replication audit STORE "
            "AGREEMENT --entries`."
        ),
        Passes.NO,
    ),
    Entry(
        "TRIMMED_MEANWHILE",
        (Seen.ANSWER,),
        "Not compared: a purge of the changelog removed the range while it was compared.",
        "Run the audit again: `lethe replication audit STORE AGREEMENT`.",
        Passes.YES,
    ),
    Entry(
        "NOT_ASKED_FOR",
        (Seen.ANSWER,),
        "Not compared: the request did not ask for it.",
        "Ask for it if you need it: `lethe replication audit STORE AGREEMENT --entries`.",
        Passes.NO,
    ),
    Entry(
        "RUVS_DIFFER",
        (Seen.ANSWER,),
        "Not compared: one side has changes that the other one lacks, so their entries differ rightly.",
        "Run sessions until both are UP_TO_DATE, then `lethe replication audit STORE AGREEMENT --entries`.",
        Passes.MAYBE,
    ),
    Entry(
        "CHANGED_MEANWHILE",
        (Seen.ANSWER,),
        "Not compared: somebody wrote while the entries were compared.",
        "Run the audit again at a quiet hour: `lethe replication audit STORE AGREEMENT --entries`.",
        Passes.MAYBE,
    ),
    Entry(
        "TOMBSTONES_PURGED",
        (Seen.ANSWER,),
        "Not compared: one side has purged tombstones, and the other's version cannot leave them out.",
        "Upgrade the service of the consumer, then run the audit again.",
        Passes.NO,
    ),
    Entry(
        "MISSING_AT_CONSUMER",
        (Seen.ANSWER,),
        "The supplier has it, the consumer has not.",
        (
            "A session of the agreement brings changes that are on their way. If it stays: `lethe "
            "replication dead-letters STORE` shows what the consumer refused; else see NEEDS_TOTAL."
        ),
        Passes.NO,
    ),
    Entry(
        "MISSING_AT_SUPPLIER",
        (Seen.ANSWER,),
        "The consumer has it, the supplier has not.",
        (
            "Run a session the other way. If there is none: the consumer was written to by itself; decide"
            " which side is right."
        ),
        Passes.NO,
    ),
)

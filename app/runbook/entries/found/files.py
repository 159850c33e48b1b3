"""Findings on files, keys, replicas and deliveries: what each code means, and what to do next."""

from typing import Final

from app.runbook.entry import Entry, Passes, Seen

ENTRIES: Final = (
    Entry(
        "RECOVERY_INTERVAL",
        (Seen.FINDING,),
        "The file is needed if JE must recover: it is younger than the last checkpoint.",
        (
            "It goes in a later cycle. Have the application make a checkpoint, or close it; where it "
            "is closed for good, `lethe je helper --write LetheJe.java` and `java -cp JARS "
            "LetheJe.java DIR checkpoint`."
        ),
        Passes.MAYBE,
    ),
    Entry(
        "VLSN_INDEX",
        (Seen.FINDING,),
        "Replication of the environment may still read the file.",
        (
            "It goes in a later cycle, when JE has truncated its VLSN index. With the application closed: "
            "`lethe je helper --write LetheJe.java`, then `java -cp JARS LetheJe.java DIR truncate`. See "
            "`docs/how-to/je-helper.md`."
        ),
        Passes.MAYBE,
    ),
    Entry(
        "TOO_YOUNG",
        (Seen.FINDING,),
        "The file is younger than the cycle's least age.",
        "Nothing to do: a later cycle takes it. `--min-file-age` sets the age.",
        Passes.YES,
    ),
    Entry(
        "COMPARATOR",
        (Seen.FINDING,),
        "A database has a comparator of its own, so its keys cannot be compared here.",
        "Nothing can be done from outside: what is there stays.",
        Passes.NO,
    ),
    Entry(
        "DEFERRED_WRITE",
        (Seen.FINDING,),
        "A database writes to its log late (deferred write), so the log does not tell what is current.",
        "Close the application after a sync, then begin a cycle.",
        Passes.NO,
    ),
    Entry(
        "VETOED",
        (Seen.FINDING,),
        "The entry was spared because somebody still refers to it.",
        "Nothing to do: a later cycle looks again.",
        Passes.MAYBE,
    ),
    Entry(
        "NEEDED_FOR_ABORT",
        (Seen.FINDING,),
        "An open transaction may need the entry for its abort.",
        "It goes when the transaction has ended. Look for one that stays open in the application.",
        Passes.MAYBE,
    ),
    Entry(
        "OUTCOME_UNKNOWN",
        (Seen.FINDING,),
        "Whether the transaction of the entry was committed is not known.",
        "It goes when JE has recovered: close and open the application.",
        Passes.MAYBE,
    ),
    Entry(
        "KEYS_DIFFER",
        (Seen.FINDING,),
        "Entry and slot have different keys, so the entry is not touched.",
        "Run JE's DbVerify; the log may be damaged.",
        Passes.NO,
    ),
    Entry(
        "EXPIRED_NOT_ENABLED",
        (Seen.FINDING,),
        "Records are past their time to live, but the environment does not let expired records go.",
        "Set `je.env.expirationEnabled` to true in the application if they should go.",
        Passes.NO,
    ),
    Entry(
        "SWITCHED_OFF",
        (Seen.FINDING,),
        "A parameter `je.erase.*` leaves out this kind of entry.",
        "`lethe parameter list` shows them; `lethe parameter set NAME VALUE` switches the kind on.",
        Passes.NO,
    ),
    Entry(
        "MAYBE_EXTINCT",
        (Seen.FINDING,),
        "Whether the record is extinct is not known, so it stays.",
        "See why: `lethe extinction list STORE`.",
        Passes.MAYBE,
    ),
    Entry(
        "NODES_WAIT",
        (Seen.FINDING,),
        "Nodes of the tree wait for a later checkpoint, because a process has the environment open.",
        "Nothing to do: a later cycle takes them. Closing the application helps.",
        Passes.YES,
    ),
    Entry(
        "INTERNAL_DATABASE",
        (Seen.FINDING,),
        "The entry belongs to a database of JE's own.",
        "Nothing to do: it holds no records of the application.",
        Passes.NO,
    ),
    Entry(
        "UNSETTLED",
        (Seen.FINDING,),
        "The entry is so new that the state of the running process may not be in the log yet.",
        "Nothing to do: a later cycle takes it.",
        Passes.YES,
    ),
    Entry(
        "NOT_REVIEWED",
        (Seen.FINDING,),
        "The file or entry was not in the plan that was reviewed.",
        "Plan again and review it: `lethe erasure plan STORE`.",
        Passes.NO,
    ),
    Entry(
        "RESERVED",
        (Seen.FINDING,),
        (
            "Of a file: JE has set it aside for deletion, and deletes it itself. Of an extinction: it "
            "was noted, and is not known to be committed."
        ),
        ("File: nothing to do. Extinction: `lethe extinction list STORE` shows it; commit or abandon it."),
        Passes.MAYBE,
    ),
    Entry(
        "VANISHED",
        (Seen.FINDING,),
        "A file that a backup reads was deleted.",
        "Take another backup; look for what deletes files there.",
        Passes.NO,
    ),
    Entry(
        "REPLACED",
        (Seen.FINDING,),
        "A file that a backup reads was replaced by another one of its name.",
        "Take another backup; look for what writes there.",
        Passes.NO,
    ),
    Entry(
        "RESIZED",
        (Seen.FINDING,),
        "A file that a backup reads changed its size.",
        "Take another backup; look for what writes there.",
        Passes.NO,
    ),
    Entry(
        "TOUCHED",
        (Seen.FINDING,),
        "A file that a backup reads was changed.",
        "Take another backup; look for what writes there.",
        Passes.NO,
    ),
    Entry(
        "ERASED_ENTRY_IN_USE",
        (Seen.FINDING,),
        "The tree leads to an entry that was erased: the log is damaged.",
        "Keep the files as they are, run JE's DbVerify, and bring back a backup from before the cycle.",
        Passes.NO,
    ),
    Entry(
        "NOT_ERASED",
        (Seen.FINDING,),
        "An entry that was proved as erased can be read.",
        (
            "Look whether older files were copied into the directory; then begin another cycle: "
            "`lethe erasure start STORE`."
        ),
        Passes.NO,
    ),
    Entry(
        "BYTES_DIFFER",
        (Seen.FINDING,),
        "A file is not what the certificate says.",
        "Look what has written to it since; do not rely on the certificate for this file.",
        Passes.NO,
    ),
    Entry(
        "EXTINCT_IN_USE",
        (Seen.FINDING,),
        "The tree leads to erased entries of extinct records, as was planned.",
        "Nothing to do: JE takes these slots out later.",
        Passes.YES,
    ),
    Entry(
        "RECORDS_MISSING",
        (Seen.FINDING,),
        "Slots lead to entries of a file that is not in the log: expired records, or records that are lost.",
        (
            "Nothing to do where records expire (TTL): JE's cleaner leaves the expired ones behind. Where "
            "none do, the file was lost: restore it from a backup, and let JE's DbVerify tell what is left."
        ),
        Passes.NO,
    ),
    Entry(
        "GONE",
        (Seen.FINDING,),
        "A file of the certificate has been deleted since.",
        "Nothing to do: JE's cleaner deletes files.",
        Passes.NO,
    ),
    Entry(
        "GROWN",
        (Seen.FINDING,),
        "A file has become longer since; what was proved of it still holds.",
        "Nothing to do.",
        Passes.FINE,
    ),
    Entry(
        "ERASED_AGAIN",
        (Seen.FINDING,),
        "A later cycle has erased in the file too.",
        "Nothing to do; its own certificate has the newer bytes.",
        Passes.NO,
    ),
    Entry(
        "STARTING",
        (Seen.FINDING,),
        "The service has just started and has not read everything yet, or the pool starts its Spark.",
        "Ask again in some seconds.",
        Passes.YES,
    ),
    Entry(
        "ALWAYS_MAYBE",
        (Seen.FINDING,),
        "The store is declared so that no key of it is ever judged.",
        "Change it if it is wrong: `lethe store update STORE --extinction-filter NONE`.",
        Passes.NO,
    ),
    Entry(
        "TARGET",
        (Seen.FINDING,),
        "The target cannot be read, or its replica is not online, so its keys cannot be judged.",
        "`lethe store check STORE` says why.",
        Passes.MAYBE,
    ),
    Entry(
        "ANNOUNCED",
        (Seen.FINDING,),
        "Peers have announced extinctions that have not come here yet.",
        "Wait for the next session: `lethe replication session list STORE`.",
        Passes.MAYBE,
    ),
    Entry(
        "JAVA_FILTER",
        (Seen.FINDING,),
        "Only JE itself can evaluate the filter of an extinction.",
        "Ask the application about these keys.",
        Passes.NO,
    ),
    Entry(
        "SECONDARY_RANGE",
        (Seen.FINDING,),
        "JE has discarded ranges of secondary keys, which say nothing of primary keys.",
        "Ask the application about these keys.",
        Passes.NO,
    ),
    Entry(
        "LOG_GAP",
        (Seen.FINDING,),
        "Part of the log was not read in time: files are gone, so extinctions in them are not known.",
        "See EXTINCTION_LOG_GAP in the page on extinctions, `docs/concepts/extinction.md`.",
        Passes.NO,
    ),
    Entry(
        "LOG_NOT_READ",
        (Seen.FINDING,),
        "The newest part of the log has not been read yet.",
        "Ask again in a minute. If it stays, `lethe store check STORE`.",
        Passes.MAYBE,
    ),
    Entry(
        "PURGED",
        (Seen.FINDING,),
        "Why NEEDS_TOTAL: what the consumer lacks was already removed from the supplier's changelog.",
        ("Let another replica that still has it supply, or start a session with `--total`; see NEEDS_TOTAL."),
        Passes.NO,
    ),
    Entry(
        "NO_RUV",
        (Seen.FINDING,),
        "Why NEEDS_TOTAL: the consumer has no RUV: it is new or was emptied.",
        "Usual for a new replica: `lethe replication session start STORE AGREEMENT --total`.",
        Passes.NO,
    ),
    Entry(
        "PENDING",
        (Seen.STATE,),
        (
            "It has not come to its end yet: a delivery is tried again at its time, a file of a cycle waits "
            "for its turn, a session has not begun."
        ),
        (
            "Delivery: `lethe webhook deliveries WEBHOOK` shows the next try. A test of the receiver: `lethe "
            "webhook test WEBHOOK`."
        ),
        Passes.YES,
    ),
    Entry(
        "DELIVERED",
        (Seen.STATE,),
        "The receiver has answered with a status of success.",
        "Nothing to do.",
        Passes.FINE,
    ),
    Entry(
        "GIVEN_UP",
        (Seen.STATE,),
        "The receiver did not take the event in all attempts, so it is not sent any more.",
        ("Mend the receiver (`lethe webhook test WEBHOOK`), then `lethe webhook replay WEBHOOK DELIVERY`."),
        Passes.NO,
    ),
)

"""Where a file of a cycle, an extinction or an archive stands: what each word means, and what to do next."""

from typing import Final

from app.runbook.entry import Entry, Passes, Seen

ENTRIES: Final = (
    Entry(
        "NOT_SELECTED",
        (Seen.ANSWER,),
        "The file was too young when the cycle began, or is the newest one, which the application writes.",
        "Nothing to do: a later cycle takes it. `--min-file-age` sets the age.",
        Passes.YES,
    ),
    Entry(
        "IN_WORK",
        (Seen.ANSWER,),
        (
            "Of a cycle: it has announced its first write to this file, and may be writing now. As a "
            "cause of a file that is left: the cycle ended in the middle of it."
        ),
        (
            "Of a cycle: wait, and do not copy or restore the file now; `lethe erasure show STORE` says "
            "how far it is. As a cause: the next cycle finishes the file; see NOT_REACHED."
        ),
        Passes.YES,
    ),
    Entry(
        "ERASED",
        (Seen.ANSWER,),
        "Every entry of the file that was to go is overwritten, and its bytes were read again as proof.",
        "Nothing to do. `lethe certificate get STORE` has the proof.",
        Passes.FINE,
    ),
    Entry(
        "CLEAN",
        (Seen.ANSWER,),
        "There was nothing to erase in the file.",
        "Nothing to do.",
        Passes.FINE,
    ),
    Entry(
        "DELETED",
        (Seen.ANSWER,),
        "Lethe deleted the file: JE had set it aside for deletion, and the store lets Lethe do it.",
        "Nothing to do. Whether its bytes were erased before, the certificate says.",
        Passes.FINE,
    ),
    Entry(
        "KEPT",
        (Seen.ANSWER,),
        (
            "Of a cycle: nothing of this file may be erased, so it stays as it is; its `causes` say why. "
            "Of a certificate: entries that have a reason to go and were kept, counted by cause."
        ),
        (
            "Of a cycle: `lethe erasure files STORE` names the causes. Of a certificate: they stand "
            "beside the counts. `lethe explain` each; a later cycle looks again."
        ),
        Passes.MAYBE,
    ),
    Entry(
        "UNREADABLE",
        (Seen.ANSWER,),
        "A file that the certificate names cannot be read here.",
        "Look at its rights and at the disk (`ls -l FILE`), then run the same command again.",
        Passes.NO,
    ),
    Entry(
        "DIFFERENT",
        (Seen.ANSWER,),
        (
            "The same place has other content: a file is not as the certificate proved it, or an entry "
            "differs between two replicas."
        ),
        (
            "File: a later cycle has erased in it again, or it was changed or damaged: `lethe certificate"
            " recheck STORE` knows. Entry: see `lethe replication dead-letters STORE`, then run a session"
            " of the agreement; `lethe replication audit STORE AGREEMENT` looks again."
        ),
        Passes.MAYBE,
    ),
    Entry(
        "LOGGED",
        (Seen.ANSWER,),
        "Of an extinction: it is committed. Its keys are extinct from now on, and their records go.",
        "Nothing to do. `lethe extinction show STORE EXTINCTION` says how far it is.",
        Passes.YES,
    ),
    Entry(
        "SCANNING",
        (Seen.ANSWER,),
        "Of an extinction: the records that it covers are being counted or removed.",
        "Nothing to do. `lethe extinction show STORE EXTINCTION` says how far it is.",
        Passes.YES,
    ),
    Entry(
        "DONE",
        (Seen.ANSWER,),
        "It is over: of an extinction, its records are counted or removed; of a step, it was done.",
        (
            "Nothing to do. At JE the records leave the files by the next cycle: `lethe erasure plan "
            "STORE` shows what it would take."
        ),
        Passes.FINE,
    ),
    Entry(
        "EXTINCT",
        (Seen.ANSWER,),
        (
            "Of a key: an extinction covers it; its record is gone or will go. Of a plan of an erasure: "
            "entries that go because an extinction covers them."
        ),
        "Nothing to do. Never use the key again.",
        Passes.FINE,
    ),
    Entry(
        "NOT_EXTINCT",
        (Seen.ANSWER,),
        "No extinction covers the key.",
        "Nothing to do.",
        Passes.FINE,
    ),
    Entry(
        "EXACT",
        (Seen.ANSWER,),
        "The counts are exact: every transaction noted them at the target.",
        "Nothing to do.",
        Passes.FINE,
    ),
    Entry(
        "AT_LEAST",
        (Seen.ANSWER,),
        "At least so many: an attempt was cut off, and the target could not note what was done.",
        (
            "If you need exact counts, let Lethe keep its ledger there: `lethe store grants KIND --role "
            "ROLE` prints the SQL."
        ),
        Passes.NO,
    ),
    Entry(
        "LEDGER",
        (Seen.ANSWER,),
        "Which files of an archive are valid was read from the ledger at the target.",
        "Nothing to do.",
        Passes.FINE,
    ),
    Entry(
        "MANIFEST",
        (Seen.ANSWER,),
        "Which files of an archive are valid was read from its manifest.",
        "Nothing to do.",
        Passes.FINE,
    ),
    Entry(
        "FILES",
        (Seen.ANSWER,),
        "The archive has no manifest and its target no ledger: every whole file was taken as valid.",
        "Compare `rows` with the result of the job that archived: `lethe job show JOB`.",
        Passes.NO,
    ),
    Entry(
        "VALID",
        (Seen.ANSWER,),
        "Of a file of an archive: the transaction that removed its rows was committed.",
        "Nothing to do.",
        Passes.FINE,
    ),
    Entry(
        "UNDECIDED",
        (Seen.ANSWER,),
        "Of a file of an archive: its job has not ended, so whether its rows were removed is not known.",
        "Ask again when the job has ended: `lethe job watch JOB`.",
        Passes.YES,
    ),
    Entry(
        "MISSING",
        (Seen.ANSWER,),
        "A file of the archive is not there.",
        (
            "Look in the backups of the archive's folder; its rows cannot be restored without it. `lethe "
            "archive verify JOB` names it."
        ),
        Passes.NO,
    ),
    Entry(
        "CORRUPT",
        (Seen.ANSWER,),
        "A file of the archive is not as it was written: its hash or its form is wrong.",
        (
            "Bring it back from a backup of the archive's folder, then `lethe archive verify JOB`. Look "
            "at the disk."
        ),
        Passes.NO,
    ),
    Entry(
        "CONFLICT",
        (Seen.ANSWER,),
        (
            "Of a unit of a restore: none of it was written. A row has other values, a row that it needs "
            "is missing or needs it too, a table is gone, or columns have changed or refuse a value."
        ),
        (
            "`detail` in `lethe job show JOB` says which: change no live row before you have read it. "
            "`lethe archive restore JOB --into NAME` is always safe: it writes beside the live tables."
        ),
        Passes.NO,
    ),
    Entry(
        "ALREADY",
        (Seen.ANSWER,),
        "Of a unit of a restore: all of its rows were there already.",
        "Nothing to do.",
        Passes.FINE,
    ),
    Entry(
        "RESTORED",
        (Seen.ANSWER,),
        (
            "Of a unit: its rows were written back. Of a replica: its target came from a backup, and it "
            "is read-only until it has its own changes again."
        ),
        "Unit: nothing to do. Replica: see REPLICA_RESTORED.",
        Passes.MAYBE,
    ),
)

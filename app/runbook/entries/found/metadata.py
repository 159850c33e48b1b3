"""Findings on the metadata and the audit: what each code means, and what to do next."""

from typing import Final

from app.runbook.entry import Entry, Passes, Seen

ENTRIES: Final = (
    Entry(
        "DATABASE_DAMAGED",
        (Seen.FINDING,),
        "SQLite's own check finds the metadata damaged.",
        (
            "Stop the service and restore the newest good backup: `lethe metadata restore FOLDER`. "
            "Look at the disk."
        ),
        Passes.NO,
    ),
    Entry(
        "REFERENCE_BROKEN",
        (Seen.FINDING,),
        "A row of the metadata refers to another that is not there.",
        "Stop the service and restore the newest good backup: `lethe metadata restore FOLDER`.",
        Passes.NO,
    ),
    Entry(
        "REFERENCE_UNCHECKED",
        (Seen.FINDING,),
        "A foreign key of the metadata is not valid in PostgreSQL.",
        "Restore a good backup, or let a database administrator validate the constraint.",
        Passes.NO,
    ),
    Entry(
        "SCHEMA_DIFFERS",
        (Seen.FINDING,),
        "The tables of the metadata are not those of its revision.",
        "Somebody changed them by hand. Restore a good backup: `lethe metadata restore FOLDER`.",
        Passes.NO,
    ),
    Entry(
        "INSTANCE_ID_DIFFERS",
        (Seen.FINDING,),
        "The instance id in the backup is not the one of its manifest.",
        "Do not use this backup; take another: `lethe metadata backup FOLDER`.",
        Passes.NO,
    ),
    Entry(
        "REVISION_DIFFERS",
        (Seen.FINDING,),
        "The revision in the backup is not the one of its manifest.",
        "Do not use this backup; take another: `lethe metadata backup FOLDER`.",
        Passes.NO,
    ),
    Entry(
        "METADATA_EMPTY",
        (Seen.FINDING,),
        "The database holds no metadata of Lethe.",
        "Name the right one by `--data-dir` or `--metadata-url`; a new one is made by `lethe migrate`.",
        Passes.NO,
    ),
    Entry(
        "METADATA_NOT_FOUND",
        (Seen.FINDING,),
        "There is no metadata at this place.",
        "Name the data directory of the service by `--data-dir`, or its database by `--metadata-url`.",
        Passes.NO,
    ),
    Entry(
        "METADATA_AWAY",
        (Seen.FINDING,),
        "The metadata database does not answer now.",
        "Look at that database, then run the command again.",
        Passes.MAYBE,
    ),
    Entry(
        "METADATA_REFUSED",
        (Seen.FINDING,),
        "The metadata database refuses; the message has its words.",
        "Correct the address, the user or the rights.",
        Passes.NO,
    ),
    Entry(
        "SQLITE_REFUSED",
        (Seen.FINDING,),
        "SQLite cannot read or write the file; the message has its words.",
        "Make room or correct the rights, remove what the command has left, and run it again.",
        Passes.NO,
    ),
    Entry(
        "CANNOT_START",
        (Seen.FINDING,),
        "The command cannot use the settings or the metadata; the message says why.",
        "Correct what it names, then run it again.",
        Passes.NO,
    ),
    Entry(
        "FILE_TOO_LARGE",
        (Seen.FINDING,),
        "A file beside the metadata is larger than any that Lethe writes.",
        "Look what it is; move it away if it is not Lethe's.",
        Passes.NO,
    ),
    Entry(
        "BACKUP_FOLDER_NOT_EMPTY",
        (Seen.FINDING,),
        "The folder for the backup is there and holds something.",
        "Name a new folder. A killed backup leaves a folder without manifest.json: remove it.",
        Passes.NO,
    ),
    Entry(
        "BACKUP_IN_DATA_DIRECTORY",
        (Seen.FINDING,),
        "The folder for the backup lies in the data directory.",
        "Name a folder elsewhere, best on another disk.",
        Passes.NO,
    ),
    Entry(
        "BACKUP_NEWER",
        (Seen.FINDING,),
        "A newer Lethe made the backup.",
        "Restore it by that version or a newer one.",
        Passes.NO,
    ),
    Entry(
        "BACKUP_NOT_FOUND",
        (Seen.FINDING,),
        "There is no such folder.",
        "Name the folder of a backup.",
        Passes.NO,
    ),
    Entry(
        "BACKUP_OF_ANOTHER_ENGINE",
        (Seen.FINDING,),
        "The backup is of SQLite and the address names PostgreSQL, or the other way round.",
        "Name an empty PostgreSQL database for a backup of one; else leave `--metadata-url` out.",
        Passes.NO,
    ),
    Entry(
        "BACKUP_UNFINISHED",
        (Seen.FINDING,),
        "The folder has no manifest.json: it is no backup, or one that was killed.",
        "Take another backup. Once that one is whole, this folder is of no use.",
        Passes.NO,
    ),
    Entry(
        "DATABASE_NOT_EMPTY",
        (Seen.FINDING,),
        "The database to restore into holds something.",
        "Make a new one (`createdb`), and name it by `--metadata-url`.",
        Passes.NO,
    ),
    Entry(
        "DATA_DIRECTORY_NOT_EMPTY",
        (Seen.FINDING,),
        "The folder to restore into holds something.",
        "Name a new folder by `--data-dir`, or move away what is there.",
        Passes.NO,
    ),
    Entry(
        "DATA_DIRECTORY_IN_USE",
        (Seen.FINDING,),
        "A service or another restore uses the folder.",
        "Stop it, and name a new folder by `--data-dir`.",
        Passes.MAYBE,
    ),
    Entry(
        "INSTANCE_ID_MISSING",
        (Seen.FINDING,),
        "The data directory has no instance id: no service has run on it.",
        "Name the data directory of the service by `--data-dir`.",
        Passes.NO,
    ),
    Entry(
        "HEAD_MISSING",
        (Seen.FINDING,),
        "The row that is the head of the audit chain was removed.",
        (
            "Somebody wrote to the metadata by hand. Keep the newest export, restore a backup, and "
            "find out who it was."
        ),
        Passes.NO,
    ),
    Entry(
        "ROW_INSERTED",
        (Seen.FINDING,),
        "An audit row stands where none belongs.",
        "It was written by hand, or by a version from before the chain; a restart takes in the latter.",
        Passes.NO,
    ),
    Entry(
        "ROW_UNCHAINED",
        (Seen.FINDING,),
        "An audit row has no place in the chain.",
        "A restart of the service takes in rows of a former version; else somebody wrote it by hand.",
        Passes.MAYBE,
    ),
    Entry(
        "ROW_UNREADABLE",
        (Seen.FINDING,),
        "An audit row has no number, so it cannot be checked.",
        "The file or the metadata was changed by hand: compare with an older export.",
        Passes.NO,
    ),
    Entry(
        "ROW_CHANGED",
        (Seen.FINDING,),
        "An audit row is not as it was written.",
        (
            "Somebody changed it. Compare with an export from before, and find out who can write to "
            "the metadata."
        ),
        Passes.NO,
    ),
    Entry(
        "ROWS_REMOVED",
        (Seen.FINDING,),
        "Audit rows are missing from the middle of the chain.",
        (
            "Somebody removed them. Compare with an export from before, and find out who can write to "
            "the metadata."
        ),
        Passes.NO,
    ),
    Entry(
        "CHAIN_BROKEN",
        (Seen.FINDING,),
        "An audit row does not follow the row before it.",
        "Somebody changed the chain. Compare with an export from before.",
        Passes.NO,
    ),
    Entry(
        "CHAIN_PUT_BACK",
        (Seen.FINDING,),
        (
            "This instance has seen a newer audit row than the chain holds: the metadata were "
            "restored to an earlier state, or rewritten."
        ),
        (
            "If somebody restored a backup, nothing is wrong: the next start notes it. Else compare "
            "with the newest export, and find out who can write to the metadata."
        ),
        Passes.NO,
    ),
    Entry(
        "EXPORT_DIFFERS",
        (Seen.FINDING,),
        "The chain does not hold the last row of the export that you named.",
        "The metadata were restored or rewritten since that export; ask who did it.",
        Passes.NO,
    ),
    Entry(
        "FILE_CUT",
        (Seen.FINDING,),
        "The export ends before its last line: it was cut off.",
        "Export again: `lethe audit export FILE`.",
        Passes.NO,
    ),
    Entry(
        "HEAD_DIFFERS",
        (Seen.FINDING,),
        "The last row of the export is not the head that its signature names.",
        "The file was changed or cut: compare with another export.",
        Passes.NO,
    ),
    Entry(
        "KEY_NOT_TRUSTED",
        (Seen.FINDING,),
        "The export is signed by a key that you did not name.",
        "Compare its fingerprint with `lethe certificate keys`, and name your key by `--key`.",
        Passes.NO,
    ),
    Entry(
        "SIGNATURE_INVALID",
        (Seen.FINDING,),
        "The signature of the export does not verify: the file was changed.",
        "Do not rely on it. Export again: `lethe audit export FILE`.",
        Passes.NO,
    ),
)

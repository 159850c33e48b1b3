"""Logs of Berkeley DB JE: what each code means, and what to do next."""

from typing import Final

from app.runbook.entry import Entry, Passes, Seen

ENTRIES: Final = (
    Entry(
        "NO_CHECKPOINT",
        (Seen.TARGET,),
        "No checkpoint has ended in the log, so it is not known what is obsolete.",
        "Have the application open the environment and make a checkpoint, or close it cleanly.",
        Passes.NO,
    ),
    Entry(
        "RESTORE_REQUIRED",
        (Seen.TARGET,),
        "A marker of JE says that the environment must be restored before it is used.",
        "Restore the environment as JE's documentation of network restore says; nothing is erased before.",
        Passes.NO,
    ),
    Entry(
        "ROLLBACK_UNFINISHED",
        (Seen.TARGET,),
        "A rollback of replication has not ended in the log.",
        "Have the application open the environment, which ends it; then try again.",
        Passes.NO,
    ),
    Entry(
        "TREE_BROKEN",
        (Seen.TARGET,),
        "The tree in the log refers to what is missing or wrong; nothing was written.",
        (
            "Run JE's DbVerify and DbVerifyLog on a copy of the directory. If they agree, restore the "
            "environment from a backup; what was written since that backup is lost."
        ),
        Passes.NO,
    ),
    Entry(
        "LOG_REFUSED",
        (Seen.TARGET,),
        "The log cannot be worked on as it is; `detail` begins with the cause.",
        "Look up that cause by `lethe explain`.",
        Passes.NO,
    ),
    Entry(
        "LOG_CORRUPT",
        (Seen.TARGET,),
        "The log is not sound at the file and offset named; nothing was written.",
        (
            "Copy the directory first. Then `java -cp je.jar com.sleepycat.je.util.DbVerifyLog -h DIR`."
            " If it agrees, restore the environment from a backup; what was written since that backup "
            "is lost."
        ),
        Passes.NO,
    ),
    Entry(
        "LOG_CHECKSUM_WRONG",
        (Seen.TARGET,),
        "An entry's checksum does not fit its bytes; nothing was written.",
        (
            "Look at the disk and the kernel's log. Copy the directory first. Then `java -cp je.jar "
            "com.sleepycat.je.util.DbVerifyLog -h DIR`. If it agrees, restore the environment from a "
            "backup; what was written since that backup is lost."
        ),
        Passes.NO,
    ),
    Entry(
        "LOG_CHAIN_BROKEN",
        (Seen.TARGET,),
        "Two files of the log do not follow each other: one is missing, or from elsewhere.",
        "Restore the missing or right file from a backup; JE's DbVerifyLog shows the place.",
        Passes.NO,
    ),
    Entry(
        "LOG_ENTRY_TORN",
        (Seen.TARGET,),
        "An entry ends behind the end of its file.",
        (
            "Have the application open the environment once, which recovers a torn end; else run JE's "
            "DbVerifyLog."
        ),
        Passes.NO,
    ),
    Entry(
        "LOG_ENTRY_UNKNOWN",
        (Seen.TARGET,),
        "The log has an entry of a type that this version does not know.",
        "Check the version of JE that wrote it; such an environment is left alone.",
        Passes.NO,
    ),
    Entry(
        "LOG_ITEM_MALFORMED",
        (Seen.TARGET,),
        "An entry of the log does not have the form of its type.",
        "Run JE's DbVerifyLog; check which version of JE wrote it.",
        Passes.NO,
    ),
    Entry(
        "LOG_HEADER_INVALID",
        (Seen.TARGET,),
        "A file with the name of a log file is none.",
        "Move foreign files out of the environment; if it is a log file, restore it from a backup.",
        Passes.NO,
    ),
    Entry(
        "LOG_VERSION_UNSUPPORTED",
        (Seen.TARGET,),
        "The log is of a version of JE that is not worked on.",
        (
            "`detail` names the version that is. Let that version of JE open and upgrade the environment, "
            "or leave erasing to JE."
        ),
        Passes.NO,
    ),
    Entry(
        "LOG_FILE_NOT_REGULAR",
        (
            Seen.HTTP,
            Seen.TARGET,
        ),
        "A log file is a link or no regular file; links are not followed.",
        "Put the file itself into the environment's directory.",
        Passes.NO,
    ),
    Entry(
        "LOG_FILE_CHANGED",
        (Seen.TARGET,),
        "A log file was written while it was read.",
        (
            "Nothing to do where the application is open: the job reads again. In a closed environment find"
            " out who writes."
        ),
        Passes.YES,
    ),
    Entry(
        "LOG_FILE_VANISHED",
        (Seen.TARGET,),
        "A log file was deleted while it was read, by JE's cleaner.",
        "Nothing to do: the job reads again.",
        Passes.YES,
    ),
    Entry(
        "LOG_FILE_MISSING",
        (
            Seen.HTTP,
            Seen.TARGET,
        ),
        "A log file that was named, or that the tree refers to, is not there.",
        (
            "Check the name; for the tree, restore the file from a backup, or have JE's DbVerify say what "
            "is left."
        ),
        Passes.NO,
    ),
    Entry(
        "LOG_FILES_VANISHED",
        (Seen.HTTP,),
        (
            "Files went away before they could be promised to the backup: files that were named, or files of "
            "a log that went on in another one meanwhile."
        ),
        "Where files are named, list them again. Ask again, with a new Idempotency-Key.",
        Passes.MAYBE,
    ),
    Entry(
        "LOG_IN_DATA_DIRECTORIES",
        (Seen.TARGET,),
        (
            "The log lies in data directories (`data001/` and so on), and not as JE would look for it: "
            "one is missing or a link, a file lies in another one than its number says, or there are "
            "log files beside them too."
        ),
        (
            "Move each file to where it was; the detail names one. Mount a disk at `data00N` instead "
            "of linking there."
        ),
        Passes.NO,
    ),
    Entry(
        "LOG_ENTRY_NOT_FOUND",
        (Seen.HTTP,),
        "No entry of the log begins at this place.",
        "Take file and offset from a plan, a certificate or a message of a job.",
        Passes.NO,
    ),
    Entry(
        "CONTROL_ERROR",
        (Seen.TARGET,),
        "The files that say who may write to the environment cannot be used; `detail` says why.",
        "Look at the rights, the disk and the file system of the environment's directory.",
        Passes.NO,
    ),
    Entry(
        "CONTROL_FILE_BUSY",
        (Seen.HTTP,),
        "Somebody holds the environment's control file for longer than a change of it takes.",
        "Send the request again; if it lasts, see by `lsof` who holds the file.",
        Passes.YES,
    ),
    Entry(
        "CONTROL_FILE_MISSING",
        (Seen.TARGET, Seen.FINDING),
        "The environment's control file is not there, or somebody removes it.",
        "The next attempt makes it anew. If it goes again, find out what removes it.",
        Passes.MAYBE,
    ),
    Entry(
        "CONTROL_FILE_INVALID",
        (Seen.TARGET,),
        "The environment's control file is damaged.",
        "The next attempt makes it anew from the metadata. If that fails, look at the disk.",
        Passes.MAYBE,
    ),
    Entry(
        "CONTROL_FILE_FULL",
        (Seen.TARGET,),
        "More ranges of files are protected than the control file holds.",
        (
            "`lethe protection list STORE` shows them. End those that nobody needs by `lethe protection"
            " end STORE PROTECTION`: what they cover may be erased from then on."
        ),
        Passes.NO,
    ),
    Entry(
        "CONTROL_FILE_FAILED",
        (Seen.TARGET,),
        "The environment's control file could not be written.",
        "Look at the rights, the room and the disk of the environment's directory.",
        Passes.NO,
    ),
    Entry(
        "NOT_REGULAR",
        (Seen.TARGET,),
        "The control file's name leads to a link or to no regular file.",
        ("Look where it leads (`ls -l`), and move it out of the directory; the control file is made anew."),
        Passes.NO,
    ),
    Entry(
        "LOCK_FAILED",
        (Seen.TARGET,),
        "The operating system refused a lock on the control file.",
        "Check that the environment lies on a local file system, and the kernel's log.",
        Passes.NO,
    ),
)

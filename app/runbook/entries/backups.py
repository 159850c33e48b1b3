"""Backups and protections: what each code means, and what to do next."""

from typing import Final

from app.runbook.entry import Entry, Passes, Seen

ENTRIES: Final = (
    Entry(
        "ERASE_ABORT_TIMEOUT",
        (Seen.HTTP,),
        "The eraser could not be stopped in time for the backup; no backup has begun.",
        (
            "Try again. If it lasts, look at the cycle's job (`lethe job list`) and at the disk, which may "
            "hang."
        ),
        Passes.MAYBE,
    ),
    Entry(
        "BACKUP_SESSION_NOT_FOUND",
        (Seen.HTTP,),
        "There is no such backup session of this store.",
        "`lethe backup list STORE` shows those that are kept.",
        Passes.NO,
    ),
    Entry(
        "BACKUP_SESSION_PREPARING",
        (Seen.HTTP,),
        "The backup session still waits for the eraser to stop.",
        "Ask again in a moment.",
        Passes.YES,
    ),
    Entry(
        "BACKUP_SESSION_FAILED",
        (Seen.HTTP,),
        "The backup session never became active: nothing was promised, and no copy of it is a backup.",
        "`detail` says why; mend that, and begin the backup again.",
        Passes.NO,
    ),
    Entry(
        "BACKUP_SESSION_ENDED",
        (Seen.HTTP,),
        "The backup session was ended; its files may have been erased since.",
        "Begin another session, and copy again.",
        Passes.NO,
    ),
    Entry(
        "BACKUP_SESSION_EXPIRED",
        (Seen.HTTP,),
        "The lease of the backup session ran out: its copy is no backup.",
        (
            "Begin another session and copy again; renew the lease in time (`lethe backup run --store "
            "STORE -- COMMAND` does)."
        ),
        Passes.NO,
    ),
    Entry(
        "NOT_PART_OF_SESSION",
        (Seen.HTTP,),
        "The session does not have these files; its set may only get smaller.",
        "Name files of the session, or begin another.",
        Passes.NO,
    ),
    Entry(
        "TOO_MANY_FILES",
        (Seen.HTTP,),
        "The environment has more files than one backup session takes.",
        "Name fewer files for each session.",
        Passes.NO,
    ),
    Entry(
        "SERVICE_STOPPING",
        (Seen.HTTP,),
        "The service is being stopped.",
        "Send the request again when it runs, or to another process.",
        Passes.YES,
    ),
    Entry(
        "PROTECTION_NOT_FOUND",
        (Seen.HTTP,),
        "There is no such protection of this store.",
        "`lethe protection list STORE` shows those that are kept.",
        Passes.NO,
    ),
    Entry(
        "PROTECTION_ENDED",
        (Seen.HTTP,),
        "The protection was ended; what it covered may have been erased since.",
        "Make another, and look at the files again.",
        Passes.NO,
    ),
    Entry(
        "PROTECTION_EXPIRED",
        (Seen.HTTP,),
        "The lease of the protection ran out; what it covered may have been erased since.",
        "Make another, and renew it in time.",
        Passes.NO,
    ),
    Entry(
        "PROTECTION_OF_SESSION",
        (Seen.HTTP,),
        "A backup session holds the protection.",
        (
            "Renew or end the session instead (`lethe backup renew --session-file FILE`, `lethe backup "
            "end --session-file FILE`)."
        ),
        Passes.NO,
    ),
    Entry(
        "NOT_PART_OF_PROTECTION",
        (Seen.HTTP,),
        "The protection does not cover these files; its set may only get smaller.",
        "Name files that it covers, or make another.",
        Passes.NO,
    ),
    Entry(
        "NOT_PROTECTED",
        (Seen.HTTP,),
        "The protection has ended, or does not cover what is asked for.",
        "Make a protection that covers the files first.",
        Passes.NO,
    ),
    Entry(
        "TOO_MANY_PROTECTIONS",
        (Seen.HTTP,),
        "The environment has as many active protections as its control file has room for.",
        "End some that nobody needs (`lethe protection list STORE`).",
        Passes.MAYBE,
    ),
)

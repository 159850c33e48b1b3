"""Erasure and certificates: what each code means, and what to do next."""

from typing import Final

from app.runbook.entry import Entry, Passes, Seen

ENTRIES: Final = (
    Entry(
        "CYCLE_RUNNING",
        (Seen.HTTP,),
        "The store has an active erasure cycle; it takes one at a time.",
        ("Wait for its end (`lethe erasure list STORE`), or end it by `lethe erasure abort STORE`."),
        Passes.MAYBE,
    ),
    Entry(
        "CYCLE_NOT_FOUND",
        (Seen.HTTP,),
        "There is no such cycle of the store, or it was forgotten with its job.",
        "`lethe erasure list STORE` shows those that are kept.",
        Passes.NO,
    ),
    Entry(
        "CYCLE_NOT_ENDED",
        (Seen.HTTP,),
        "The cycle still works; its certificate is made when it has ended.",
        "Ask again after its end.",
        Passes.YES,
    ),
    Entry(
        "PERIOD_MISSING",
        (Seen.HTTP,),
        "Neither the request nor the store's `je.erase.period` says how long the cycle is.",
        "Name `period`, or `min_file_age` and `duration`.",
        Passes.NO,
    ),
    Entry(
        "ENVIRONMENT_REFUSED",
        (Seen.HTTP,),
        "The environment cannot be worked on as it is; `detail`, file and offset say why.",
        "Look up the code that the problem names beside it (`lethe explain`), and mend that.",
        Passes.NO,
    ),
    Entry(
        "ENVIRONMENT_NOT_HERE",
        (Seen.HTTP,),
        "This process cannot see the directory of the store.",
        "Mount it here, or send the request to a process with the labels in the store's `runs_on`.",
        Passes.NO,
    ),
    Entry(
        "ENVIRONMENT_UNREADABLE",
        (Seen.HTTP, Seen.JOB, Seen.TARGET, Seen.FINDING),
        "The environment's directory or files cannot be read.",
        (
            "Give the service's account the right to read them, and check that the file system is mounted "
            "and sound."
        ),
        Passes.NO,
    ),
    Entry(
        "NOT_AN_ENVIRONMENT",
        (
            Seen.JOB,
            Seen.TARGET,
        ),
        "The directory is not there, or holds no log files of JE.",
        "Check the store's path, and that its file system is mounted on this machine.",
        Passes.NO,
    ),
    Entry(
        "EPOCH_AHEAD",
        (
            Seen.HTTP,
            Seen.JOB,
            Seen.FINDING,
        ),
        (
            "The target has seen a newer Lethe than this one: this metadata is an older copy, or "
            "another Lethe works there."
        ),
        (
            "Stop the other Lethe if there is one. Then `lethe recover STORE`; with `--offline "
            "--data-dir DIR` where `lethe serve` ends with 78. At a replica that is REPLICA_RESTORED "
            "`recover` gives up the changes that it lacks: bring them back first by a session. Then "
            "`lethe job retry JOB`."
        ),
        Passes.NO,
    ),
    Entry(
        "EPOCH_PASSED",
        (Seen.TARGET,),
        (
            "The environment's control file has another epoch than this job: somebody else has taken the "
            "environment over."
        ),
        (
            "If that was no `lethe recover STORE` of yours, look for a second Lethe on the same "
            "environment. The "
            "next attempt goes on with the present epoch."
        ),
        Passes.MAYBE,
    ),
    Entry(
        "STOPPED",
        (Seen.TARGET,),
        (
            "Somebody stopped erasure at the environment, or its control file was replaced while a file was"
            " erased. Of the pool of Spark: no job has needed it yet."
        ),
        "Nothing to do: the job tries again, and the pool starts when a job needs it.",
        Passes.YES,
    ),
    Entry(
        "PROTECTED",
        (Seen.TARGET, Seen.FINDING),
        "A protection covers the file.",
        "Nothing to do: the file is erased when the backup or protection has ended.",
        Passes.YES,
    ),
    Entry(
        "FILE_LOCKED",
        (
            Seen.TARGET,
            Seen.WAIT,
        ),
        "Another process holds a lock on a log file of JE.",
        "Nothing to do for a while; if it lasts, see by `lsof` who has the file open.",
        Passes.YES,
    ),
    Entry(
        "ENVIRONMENT_IN_USE",
        (Seen.TARGET, Seen.WAIT, Seen.FINDING),
        (
            "A process holds JE's lock: an application has the environment open, even if only to read, "
            "or another tool works on it."
        ),
        (
            "See by `lsof DIR/je.lck` who it is, and close it; the job goes on by itself then. Where "
            "the conditions of LIVE hold, an admin may change the mode instead: `lethe store update "
            "STORE --mode LIVE`."
        ),
        Passes.MAYBE,
    ),
    Entry(
        "READER_PRESENT",
        (Seen.TARGET,),
        "A read-only process has the environment open, and could read a file while it is erased.",
        (
            "Nothing to do: the job goes on when that process has closed it. If it lasts, find it by `lsof`"
            " on `je.lck`."
        ),
        Passes.YES,
    ),
    Entry(
        "LOG_MOVED",
        (
            Seen.JOB,
            Seen.TARGET,
            Seen.WAIT,
        ),
        "The log changed while it was read; it is read again.",
        (
            "Nothing to do. If it lasts, the application writes or cleans faster than the log can be read: "
            "choose a quieter time."
        ),
        Passes.YES,
    ),
    Entry(
        "ALREADY_DELETED",
        (Seen.TARGET,),
        "JE deleted the file before it was erased under its name.",
        "Nothing to do for this file; the certificate says what that means for its bytes.",
        Passes.YES,
    ),
    Entry(
        "FILE_REPLACED",
        (Seen.TARGET,),
        (
            "The name leads to another file than was planned; of a certificate: than was proved, so what was "
            "erased may be readable there."
        ),
        "Find out who replaced it (a restore, a copy), then begin another cycle.",
        Passes.NO,
    ),
    Entry(
        "FILE_RESIZED",
        (Seen.TARGET,),
        "The file has another size than was planned.",
        "Find out who wrote to it; JE does not write to closed files. Then begin another cycle.",
        Passes.NO,
    ),
    Entry(
        "FILE_TOUCHED",
        (Seen.TARGET,),
        "The file was written since the plan.",
        "Find out who wrote to it, then begin another cycle.",
        Passes.NO,
    ),
    Entry(
        "HARD_LINKED",
        (Seen.TARGET, Seen.FINDING),
        ("The file has more than one name: to erase it would change the other one, such as a backup, too."),
        (
            "Find the other name: `find / -xdev -samefile FILE`. If it is a backup, do not delete it: "
            "make it a copy of its own (`cp` to a new name, then `mv` over the old one). Then `lethe "
            "erasure start STORE`."
        ),
        Passes.NO,
    ),
    Entry(
        "HEADER_CHANGED",
        (Seen.TARGET,),
        "The beginning of the file is not what was planned.",
        "Find out who wrote to it, then begin another cycle.",
        Passes.NO,
    ),
    Entry(
        "DISK_ERROR",
        (Seen.TARGET,),
        "The disk returned an error.",
        (
            "Look at the kernel's log and at the disk before anything else. Only when the disk is "
            "sound: `lethe erasure start STORE`."
        ),
        Passes.NO,
    ),
    Entry(
        "UNPROVEN",
        (Seen.TARGET, Seen.STATE),
        (
            "Nobody can say what the file holds now: an fsync failed, or its bytes are not what was "
            "written. Of a session between replicas it means UNPROVEN_HISTORY."
        ),
        (
            "`lethe erasure files STORE` names the file. Look at the kernel's log and at the disk "
            "first, and have JE's DbVerifyLog read the log. Only when the disk is sound: `lethe erasure"
            " start STORE`."
        ),
        Passes.NO,
    ),
    Entry(
        "PERMISSION",
        (Seen.HTTP, Seen.TARGET, Seen.FINDING),
        "The service's account may not do what the environment needs; `detail` names the file.",
        "Give the account the rights on the directory and its files.",
        Passes.NO,
    ),
    Entry(
        "VERIFICATION_FAILED",
        (Seen.JOB,),
        (
            "The log is not as the cycle's certificate says; `detail` has the first fault, the job's result"
            " all."
        ),
        "Look at the file and offset named. If a restore brought old bytes back, begin another cycle.",
        Passes.NO,
    ),
    Entry(
        "SIGNING_KEY_NOT_FOUND",
        (Seen.HTTP,),
        "No key of this fingerprint has signed here.",
        "Check the fingerprint on the certificate, and that it is of this service.",
        Passes.NO,
    ),
    Entry(
        "SIGNING_KEY_UNUSABLE",
        (Seen.HTTP, Seen.FINDING),
        "The key that signs certificates cannot be read or made.",
        (
            "Look at the rights and the disk of the data directory. Move a damaged key away only if a "
            "backup of it cannot be had: the next one has another fingerprint."
        ),
        Passes.NO,
    ),
    Entry(
        "MEDIUM_KEEPS_COPIES",
        (Seen.JOB, Seen.FINDING),
        (
            "The file system or device keeps old bytes when a file is overwritten, so erasing would prove "
            "nothing."
        ),
        (
            "Put the environment on a file system that overwrites in place; `lethe store check STORE` says "
            "what was found."
        ),
        Passes.NO,
    ),
    Entry(
        "MEDIUM_REFUSED",
        (Seen.TARGET, Seen.FINDING),
        "The file system's locks, links or writes cannot be relied on.",
        "Put the environment on a local file system such as ext4 or XFS.",
        Passes.NO,
    ),
    Entry(
        "OWN_ERASER_ON",
        (Seen.TARGET,),
        "`je.properties` switches on JE's own eraser; two erasers must not work on one environment.",
        "Set `je.env.runEraser=false` and restart the application, or leave erasing to JE.",
        Passes.NO,
    ),
    Entry(
        "LIVE_FORBIDDEN",
        (Seen.TARGET,),
        "The environment may not be erased while it is open.",
        (
            "Close the application, `lethe store update STORE --mode CLOSED`, then `lethe erasure start"
            " STORE`."
        ),
        Passes.NO,
    ),
    Entry(
        "LIVE_REPLICATED",
        (Seen.TARGET,),
        ("The environment is, or was, replicated; such a one is not erased while it is open."),
        (
            "Close the application, `lethe store update STORE --mode CLOSED`, then `lethe erasure start"
            " STORE`."
        ),
        Passes.NO,
    ),
    Entry(
        "LIVE_BACKUP_UNKNOWN",
        (Seen.TARGET,),
        "A backup that Lethe did not begin is under way in the open environment.",
        "Wait for its end; from then on run it through `lethe backup run --store STORE -- COMMAND`.",
        Passes.MAYBE,
    ),
)

"""Messages of the command, and notes of /readyz: what each means, and what to do next."""

from typing import Final

from app.runbook.entry import Entry, Passes, Seen

ENTRIES: Final = (
    Entry(
        "USAGE",
        (Seen.COMMAND,),
        (
            "The command line is wrong: an argument is missing, or an option is not known or has no "
            "such value."
        ),
        "Run the same command with `--help`: it ends with an example.",
        Passes.NO,
    ),
    Entry(
        "BUG",
        (Seen.COMMAND,),
        "The command itself failed in a way that it should not.",
        ("Report it with the file that the message names. Try the same request by curl if it is urgent."),
        Passes.NO,
    ),
    Entry(
        "SERVICE_UNREACHABLE",
        (Seen.COMMAND,),
        "Nothing answers at the address of the service, or its TLS certificate does not verify.",
        (
            "Look whether `lethe serve` runs and at the address: `--url`, LETHE_URL, `lethe profile "
            "list`. For a private authority set SSL_CERT_FILE to its PEM file. If the message says "
            "that the request may have been carried out, look before you repeat it."
        ),
        Passes.MAYBE,
    ),
    Entry(
        "CALIBRATION_FAILED",
        (Seen.COMMAND,),
        "`lethe spark-pool calibrate` could not measure; AUTO goes by what it went by before.",
        (
            "The message has the cause. Spark that does not come up: `lethe explain SPARK_FAILED`. Workers "
            "on other machines: name the threshold yourself, LETHE_SPARK__MIN_ROWS."
        ),
        Passes.NO,
    ),
    Entry(
        "WAIT_TIMED_OUT",
        (Seen.COMMAND,),
        "The command stopped waiting; the job goes on.",
        "Follow it by `lethe job watch JOB`.",
        Passes.YES,
    ),
    Entry(
        "PLAN_FAILED",
        (Seen.COMMAND,),
        "The job that counts for a plan did not succeed.",
        "`lethe job show JOB` has the error: `lethe explain` its code.",
        Passes.MAYBE,
    ),
    Entry(
        "CONFIGURATION_INVALID",
        (Seen.COMMAND,),
        "The address, the token, a token file or the profiles cannot be used; nothing was sent.",
        "Correct what the message names, or log in again: `lethe login URL`.",
        Passes.NO,
    ),
    Entry(
        "UNEXPECTED_ANSWER",
        (Seen.COMMAND,),
        (
            "What answers is not Lethe, is a proxy's own page, or is a version that this command "
            "does not know."
        ),
        ("Look at the address (`--url`, LETHE_URL, `lethe profile list`) and at `lethe --version`."),
        Passes.NO,
    ),
    Entry(
        "SETTINGS_INVALID",
        (Seen.COMMAND,),
        "A setting of the service has a value that cannot be used.",
        ("Correct the variable that the message names; `lethe explain LETHE_...` says what it takes."),
        Passes.NO,
    ),
    Entry(
        "SERVICE_DID_NOT_START",
        (Seen.COMMAND,),
        "The service that `lethe demo` starts was not ready in time.",
        "Read the log that the message names; free the port or make room, then try again.",
        Passes.NO,
    ),
    Entry(
        "CODE_UNKNOWN",
        (Seen.COMMAND,),
        "There is no entry of this name.",
        (
            "Choose one of those that the message shows, or look at docs/reference/runbook.md and "
            "docs/reference/settings.md."
        ),
        Passes.NO,
    ),
    Entry(
        "CERTIFICATE_INVALID",
        (Seen.COMMAND,),
        (
            "The certificate does not verify: it was changed or damaged, another key signed it than "
            "the one you named, or its format is not known."
        ),
        (
            "Fetch it again: `lethe certificate get STORE CYCLE -o FILE`. Compare the fingerprint "
            "by `lethe certificate keys`. If the service's own copy verifies, the file was changed "
            "on its way: do not rely on it."
        ),
        Passes.NO,
    ),
    Entry(
        "NO_WAY_DOWN",
        (Seen.COMMAND,),
        "Migrations of the metadata go forward alone.",
        ("To go back to a former version, restore a backup that it wrote: `lethe metadata restore FOLDER`."),
        Passes.NO,
    ),
    Entry(
        "FILE_EXISTS",
        (Seen.COMMAND,),
        "A file of this name exists; none is overwritten.",
        "Name another file.",
        Passes.NO,
    ),
    Entry(
        "FILE_INVALID",
        (Seen.COMMAND,),
        "The file is not an export of the audit, or it was cut off.",
        "Export again: `lethe audit export FILE`.",
        Passes.NO,
    ),
    Entry(
        "FILE_REFUSED",
        (Seen.COMMAND, Seen.FINDING),
        "The file cannot be read or written; the message says why.",
        "Correct the path or its rights, or make room.",
        Passes.NO,
    ),
    Entry(
        "FILE_UNREADABLE",
        (Seen.COMMAND, Seen.FINDING),
        "The file cannot be read; the message says why.",
        "Correct the path or its rights.",
        Passes.NO,
    ),
    Entry(
        "FILE_UNWRITABLE",
        (Seen.COMMAND,),
        "The file, or standard output, cannot be written; the message says why.",
        (
            "Correct the path or its rights, or make room. Where a new secret was lost by it, the message "
            "says how to have another."
        ),
        Passes.NO,
    ),
    Entry(
        "SPARK_FAILED",
        (Seen.READY,),
        "Spark cannot start in this instance, so jobs with AUTO run inline.",
        (
            "`lethe spark-pool status` says why: no Java, no memory, or a master that is away. Mend "
            "that, then `lethe spark-pool recycle`."
        ),
        Passes.NO,
    ),
    Entry(
        "DATA_DIRECTORY_FULL",
        (Seen.READY,),
        (
            "Nothing can be written to the data directory: the disk or the quota is full, or the "
            "medium is read-only."
        ),
        (
            "`df -h` and `df -i` of LETHE_DATA_DIR say which. An archive is the only copy of purged rows:"
            " move archives to another disk, mounted at their place; `lethe archive list` says what "
            "expires. Then `lethe job list --state FAILED`, and `lethe job retry JOB` for each. A "
            "database's disk: TARGET_FULL."
        ),
        Passes.NO,
    ),
    Entry(
        "SCHEMA_NEWER",
        (Seen.READY, Seen.FINDING),
        "The metadata was migrated by a newer Lethe while this process runs.",
        "Replace this process by the newer version soon.",
        Passes.NO,
    ),
    Entry(
        "SCHEMA_OLDER",
        (Seen.READY, Seen.FINDING),
        "The schema of the metadata is older than this process.",
        "Stop the process and run `lethe migrate`, or bring the right metadata back.",
        Passes.NO,
    ),
)

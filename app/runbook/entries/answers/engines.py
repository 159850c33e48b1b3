"""Why inline or on Spark, and the state of the pool: what each word means, and what to do next."""

from typing import Final

from app.runbook.entry import Entry, Passes, Seen

ENTRIES: Final = (
    Entry(
        "REQUESTED",
        (Seen.ANSWER,),
        "Why this engine: the request, or LETHE_ENGINE, names it.",
        "Nothing to do. Without `--engine` Lethe chooses by the size of the work.",
        Passes.FINE,
    ),
    Entry(
        "ROWS",
        (Seen.ANSWER,),
        (
            "Why this engine: the estimated rows are fewer (INLINE) or not fewer (SPARK) than the threshold, "
            "which `lethe spark-pool status` shows. As a kind of purge: rows of any table."
        ),
        "Nothing to do. `--engine SPARK` asks for Spark all the same.",
        Passes.FINE,
    ),
    Entry(
        "LOG_SIZE",
        (Seen.ANSWER,),
        (
            "Why this engine: the log is smaller (INLINE) or not smaller (SPARK) than the threshold, which "
            "`lethe spark-pool status` shows."
        ),
        "Nothing to do. `--engine SPARK` asks for Spark all the same.",
        Passes.FINE,
    ),
    Entry(
        "ARCHIVE_SIZE",
        (Seen.ANSWER,),
        (
            "Why this engine: the archive is smaller (INLINE) or not smaller (SPARK) than the threshold, "
            "which `lethe spark-pool status` shows."
        ),
        "Nothing to do. `--engine SPARK` asks for Spark all the same.",
        Passes.FINE,
    ),
    Entry(
        "VERIFICATION",
        (Seen.ANSWER,),
        "A kind of work that Spark may do: the files of an archive are read again.",
        "`lethe spark-pool status` shows from how many bytes on AUTO takes Spark for it.",
        Passes.FINE,
    ),
    Entry(
        "NO_ESTIMATE",
        (Seen.ANSWER,),
        "Why inline: the target could not say how many rows there are.",
        (
            "Nothing to do; the job only takes longer. Have the database collect statistics (ANALYZE), or"
            " ask for it: `--engine SPARK`."
        ),
        Passes.FINE,
    ),
    Entry(
        "NO_GAIN",
        (Seen.ANSWER,),
        (
            "Why inline: by measurement Spark does this kind of work no faster here, whatever its size. On "
            "one machine threads use the same cores, and one process plans an erasure faster."
        ),
        (
            "Nothing to do. `--engine SPARK` asks for Spark all the same; `lethe spark-pool calibrate` "
            "measures purges anew. LETHE_SPARK__MIN_ROWS names a threshold of purges and extinctions, "
            "LETHE_SPARK__ERASE_MIN_BYTES one of erasures, LETHE_SPARK__VERIFY_MIN_BYTES one of archives "
            "that are verified."
        ),
        Passes.FINE,
    ),
    Entry(
        "POOL_COLD",
        (Seen.ANSWER,),
        "Why inline: Spark is not up, and its start would take longer than it saves.",
        (
            "Nothing to do. `LETHE_SPARK__START=EAGER` has it up from the start of the service; `--engine "
            "SPARK` asks for it all the same."
        ),
        Passes.FINE,
    ),
    Entry(
        "POOL_BUSY",
        (Seen.ANSWER,),
        "Why inline: others have waited for Spark for seconds, or its cluster gives no executor.",
        (
            "Nothing to do. If it is so for long: more LETHE_SPARK__SLOTS, or more machines; `lethe "
            "spark-pool status` shows who waits."
        ),
        Passes.YES,
    ),
    Entry(
        "POOL_FAILED",
        (Seen.ANSWER,),
        "Why inline: Spark failed to start three times in a row. The job works, more slowly.",
        (
            "`lethe spark-pool status` has the last error. Remove the cause, then `lethe spark-pool "
            "recycle`; jobs that start afterwards use Spark."
        ),
        Passes.NO,
    ),
    Entry(
        "POOL_DRAINING",
        (Seen.ANSWER,),
        "Why inline: somebody drains the pool. The job works, more slowly.",
        "Let it take jobs again: `lethe spark-pool resume`.",
        Passes.NO,
    ),
    Entry(
        "ARCHIVE_NOT_SHARED",
        (Seen.ANSWER,),
        (
            "Why inline: the job writes an archive or reads one, and it lies in no folder that the other "
            "machines of Spark are known to share."
        ),
        (
            "Nothing to do; the job only takes longer. If it should use Spark: let LETHE_ARCHIVE_ROOT name a "
            "folder that all machines mount at the same path."
        ),
        Passes.NO,
    ),
    Entry(
        "TARGET_ON_THIS_MACHINE",
        (Seen.ANSWER,),
        (
            "Why inline: the target is a file or a loopback address, which is something else on the other"
            " machines of Spark."
        ),
        (
            "Nothing to do; the job only takes longer. Register the target by an address that all "
            "machines reach if it should use Spark."
        ),
        Passes.FINE,
    ),
    Entry(
        "DIRECTORY_ON_THIS_MACHINE",
        (Seen.ANSWER,),
        (
            "Why inline: the locks of an environment hold on one machine only, and Spark's workers are on"
            " others."
        ),
        (
            "Nothing to do; the job only takes longer. A worker of Lethe on that machine may use a Spark "
            "of its own."
        ),
        Passes.FINE,
    ),
    Entry(
        "READY",
        (Seen.ANSWER,),
        "Of the pool: Spark is up and takes jobs.",
        "Nothing to do.",
        Passes.YES,
    ),
    Entry(
        "REBUILDING",
        (Seen.ANSWER,),
        (
            "Of the pool: another JVM is being started, because one was lost or replaced. Jobs wait or "
            "work inline meanwhile."
        ),
        (
            "Wait a minute. `lethe spark-pool status` has the last error; after three failures in a row "
            "the pool is FAILED."
        ),
        Passes.YES,
    ),
    Entry(
        "DRAINING",
        (Seen.ANSWER,),
        "Of the pool: somebody drains it. It lends nothing more until it is resumed.",
        "`lethe spark-pool resume`.",
        Passes.NO,
    ),
    Entry(
        "LEASED",
        (Seen.ANSWER,),
        "Of a slot of the pool: a job works there.",
        "Nothing to do; `lethe spark-pool status` says since when.",
        Passes.YES,
    ),
)

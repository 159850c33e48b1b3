"""Spark."""

from typing import Final

from app.runbook.settings.entry import Setting

ENTRIES: Final = (
    Setting(
        "LETHE_ENGINE",
        "AUTO",
        "What runs the units of a job where the request does not say: AUTO, INLINE or SPARK.",
        (
            "SPARK with Spark disabled: such requests are refused (SPARK_DISABLED). INLINE: large "
            "purges take longer."
        ),
    ),
    Setting(
        "LETHE_SPARK__ENABLED",
        "true",
        "Whether there is a Spark session at all.",
        (
            "False: all runs inline, and SPARK by name is SPARK_DISABLED. True without Java: AUTO "
            "runs inline, and `/readyz` notes SPARK_FAILED."
        ),
    ),
    Setting(
        "LETHE_SPARK__START",
        "LAZY",
        "LAZY: with the first job that needs it; EAGER: with the service.",
        "EAGER without need: memory. LAZY: the first job waits for SPARK_POOL for some seconds.",
    ),
    Setting(
        "LETHE_SPARK__MASTER",
        "none",
        "`spark://host:port` of a cluster. None: this machine.",
        (
            "Text that is no master ends the start with exit 78. One that is away: the pool is "
            "FAILED, and AUTO runs inline."
        ),
    ),
    Setting(
        "LETHE_SPARK__PYTHON",
        "none",
        "Interpreter of the workers, the same path on all machines. None: this process's own.",
        ("A path that a worker does not have, or another minor version: tasks fail, and the pool is FAILED."),
    ),
    Setting(
        "LETHE_SPARK__CORES",
        "none",
        "Cores of a local master. None: all of this machine.",
        "Too many: the service itself is slow. Too few: jobs on Spark are.",
    ),
    Setting(
        "LETHE_SPARK__SLOTS",
        "4",
        "Jobs on Spark at a time.",
        "Too large: they share cores and memory. Too small: they wait in the queue.",
    ),
    Setting(
        "LETHE_SPARK__QUEUE_MAX",
        "32",
        "Jobs that may wait for a slot; then POOL_QUEUE_FULL.",
        "Too small: jobs are sent away at a peak. Too large: they wait for long.",
    ),
    Setting(
        "LETHE_SPARK__DRIVER_MEMORY",
        "2g",
        "Heap of the driver's JVM, such as 2g.",
        (
            "Too small: it dies of large jobs and is started again. More than the machine has: it "
            "does not start."
        ),
    ),
    Setting(
        "LETHE_SPARK__DRIVER_HOST",
        "none",
        ("Address that executors reach the driver at. None: this machine's on the way to the master."),
        "A wrong one: executors do not connect, and the pool is FAILED.",
    ),
    Setting(
        "LETHE_SPARK__EXECUTOR_MEMORY",
        "1g",
        "Heap of an executor, such as 1g.",
        "More than a worker has free: it gives no executor. Too small: tasks fail.",
    ),
    Setting(
        "LETHE_SPARK__EXECUTOR_CORES",
        "none",
        "Cores of an executor of a cluster. None: the cluster's own default.",
        "More than a worker has: it gives no executor.",
    ),
    Setting(
        "LETHE_SPARK__CORES_MAX",
        "none",
        "Cores that Lethe takes of a cluster. None: all that are free.",
        "Not set on a shared cluster: other applications wait.",
    ),
    Setting(
        "LETHE_SPARK__EXECUTORS",
        "none",
        "So many executors of a cluster, always. None: what the cluster gives.",
        "More than the cluster has: it gives what it has. With LETHE_SPARK__EXECUTORS_MAX: exit 78.",
    ),
    Setting(
        "LETHE_SPARK__EXECUTORS_MIN",
        "1",
        "Executors that stay while there is no work; only with LETHE_SPARK__EXECUTORS_MAX.",
        "Too large: others wait for them. Too small: a job waits until more have come.",
    ),
    Setting(
        "LETHE_SPARK__EXECUTORS_MAX",
        "none",
        "Named: executors come with the work up to so many, and go after a minute without it.",
        "Not set on a shared cluster: Lethe keeps what it has got.",
    ),
    Setting(
        "LETHE_SPARK__IMAGE",
        "none",
        "Image of executors on Kubernetes.",
        "None: the pool is FAILED with NO_IMAGE. One that cannot be fetched: jobs show NO_EXECUTORS and why.",
    ),
    Setting(
        "LETHE_SPARK__NAMESPACE",
        "none",
        "Namespace of executors on Kubernetes. None: Spark's own default.",
        "One where this service may make no pods: jobs show NO_EXECUTORS and what the API server says.",
    ),
    Setting(
        "LETHE_SPARK__SERVICE_ACCOUNT",
        "none",
        "Service account of executors on Kubernetes; it needs no rights. None: the namespace's own.",
        "One that is not there: the API server refuses the pods, and jobs show NO_EXECUTORS and why.",
    ),
    Setting(
        "LETHE_SPARK__ARCHIVES",
        "none",
        (
            'Archives that are unpacked on each executor, as a JSON list: `["env.tar.gz#environment"]`. '
            "`LETHE_SPARK__PYTHON=environment/bin/python` names an interpreter in one."
        ),
        "No JSON ends the start with exit 78. A file that is not there: the pool is FAILED.",
    ),
    Setting(
        "LETHE_SPARK__ENCRYPTION",
        "none",
        (
            "Whether driver and executors prove a common secret and encrypt. None: where the master is not "
            "on this machine."
        ),
        "False: who reads the network has the passwords of the stores, which tasks carry.",
    ),
    Setting(
        "LETHE_SPARK__SECRET_FILE",
        "none",
        (
            "File with the secret of a standalone cluster: `spark.authenticate.secret` of its master and "
            "workers; or of executors on Kubernetes. YARN needs none."
        ),
        "None, or another one than the cluster's: the pool is FAILED, with NO_SECRET or without an answer.",
    ),
    Setting(
        "LETHE_SPARK__SECRET_NAME",
        "none",
        (
            "Secret of Kubernetes with that file: executors have all of it mounted in the file's folder, at "
            "the same path as here. Keep nothing else in it."
        ),
        "None on Kubernetes: NO_SECRET. One that is not there: pods wait, and jobs show NO_EXECUTORS.",
    ),
    Setting(
        "LETHE_SPARK__UI",
        "false",
        "Whether Spark shows its own pages, without buttons that end jobs.",
        "They ask for no token: with a cluster they are at all addresses of this machine.",
    ),
    Setting(
        "LETHE_SPARK__UI_PORT",
        "4040",
        "Port of Spark's own pages.",
        "One that is taken: Spark takes the next free one, up to sixteen.",
    ),
    Setting(
        "LETHE_SPARK__EVENT_LOG_DIR",
        "none",
        "Folder of Spark's event logs, for its history server. None: none are written.",
        "Nobody clears it but the history server: it grows.",
    ),
    Setting(
        "LETHE_SPARK__CDS_ARCHIVE",
        "none",
        "Class data archive of the JVM. None: the one of `make setup`, where there is one.",
        "A file that does not fit is ignored by Java: the start takes twice as long.",
    ),
    Setting(
        "LETHE_SPARK__LOCAL_DIR",
        "none",
        "Folder for shuffles. None: `spark` in the data directory.",
        "A small or slow disk: jobs on Spark fail or are slow. Starts remove what is left in it.",
    ),
    Setting(
        "LETHE_SPARK__JAVA_HOME",
        "none",
        "Home of Java 17 or newer. None: `JAVA_HOME`, else `java` on the PATH.",
        "A wrong one: the pool is FAILED with NO_JAVA, and AUTO runs inline.",
    ),
    Setting(
        "LETHE_SPARK__JAVA_OPTIONS",
        "none",
        "More options of the JVM, as a JSON list.",
        (
            "No JSON ends the start with exit 78. A wrong option: the JVM does not start. Never a "
            "secret: `ps` shows it."
        ),
    ),
    Setting(
        "LETHE_SPARK__START_TIMEOUT_S",
        "120.0",
        "Seconds that a start of Spark may take.",
        "Too small: starts on a slow machine fail. Too large: jobs wait for one that hangs.",
    ),
    Setting(
        "LETHE_SPARK__STOP_TIMEOUT_S",
        "3.0",
        "Seconds that the JVM gets to end before it is killed.",
        "Too large: the service's own stop takes longer.",
    ),
    Setting(
        "LETHE_SPARK__MAX_AGE_S",
        "86400.0",
        "Seconds after which the JVM is replaced while it is idle.",
        "Too small: many starts. Too large: its memory grows.",
    ),
    Setting(
        "LETHE_SPARK__MAX_JOBS",
        "5000",
        "Jobs after which it is replaced.",
        "As for LETHE_SPARK__MAX_AGE_S.",
    ),
    Setting(
        "LETHE_SPARK__CONF",
        "none",
        "More configuration of Spark, as a JSON object.",
        (
            "No JSON, or what Lethe itself must set, ends the start with exit 78; the message says why. "
            "Never a secret: `ps` shows it."
        ),
    ),
    Setting(
        "LETHE_SPARK__MIN_ROWS",
        "100000",
        (
            "AUTO takes Spark from so many estimated rows on. Only where it is set; else by measurement, "
            "which `lethe spark-pool status` shows."
        ),
        ("Too small: small jobs pay for its start. Too large: large jobs run on one machine's threads."),
    ),
    Setting(
        "LETHE_SPARK__ERASE_MIN_BYTES",
        "4294967296",
        (
            "AUTO takes Spark for an erasure from a log of so many bytes on, on a cold pool too. Only where "
            "it is set; else erasures stay inline."
        ),
        "As for LETHE_SPARK__MIN_ROWS.",
    ),
    Setting(
        "LETHE_SPARK__WINDOW_MIN_CHANGES",
        "200000",
        (
            "AUTO reads the window of a replication session by Spark from so many changes on. Only where it "
            "is set; else by measurement, which `lethe spark-pool status` shows."
        ),
        "As for LETHE_SPARK__MIN_ROWS.",
    ),
    Setting(
        "LETHE_SPARK__VERIFY_MIN_BYTES",
        "1000000000",
        (
            "AUTO has Spark verify an archive of so many bytes on. Only where it is set; else by "
            "measurement, which `lethe spark-pool status` shows."
        ),
        "As for LETHE_SPARK__MIN_ROWS.",
    ),
    Setting(
        "LETHE_SPARK__TASK_MS",
        "1500",
        "Milliseconds of work that one task should have.",
        "Too small: overhead. Too large: a pause or abort takes longer.",
    ),
    Setting(
        "LETHE_SPARK__UNITS_AHEAD_MAX",
        "128",
        "Units that are planned ahead for Spark.",
        "Too small: executors wait for plans. Too large: more is planned anew after a stop.",
    ),
)

"""How Spark is started: one frozen, picklable value, and the configuration that follows from it.

Nothing in it is a secret: configuration travels as command-line arguments of the JVM, where `ps` shows it.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from spark.pool.master import KUBERNETES, own_address_towards

LOOPBACK: Final = "127.0.0.1"
EXECUTOR_IDLE: Final = "60s"
EVENT_LOG_FILE: Final = "128m"
FAILURES_COUNT_FOR: Final = "1h"
FAILURES_MAX: Final = 10_000
ASKS_EVERY: Final = "5s"
TASKS_IN_NO_FILE: Final = "1t"


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """How a session is started.

    Args:
        master: `local[N,4]` (four attempts a task), `spark://host:port`, ...; None: local with `cores`.
        cores: how many tasks run at a time on a local master.
        driver_memory: heap of the driver's JVM, in Java's notation.
        driver_host: the name under which executors reach this machine; only for a master that is not local.
            None: this machine's address on the way to the master.
        executor_memory: heap of an executor; only for a master that is not local.
        executor_cores: cores of an executor; only for a master that is not local. None: the cluster decides.
        cores_max: cores to take of a cluster in all. None: all that it gives.
        executors: so many of a cluster, always; None: what it gives, or between the limits.
        executors_min, executors_max: executors come and go with the work, where the highest is named.
        image, namespace, service_account: of executors on Kubernetes.
        archives: sent to the executors and unpacked there, as `env.tar.gz#environment`.
        encrypted: whether driver and executors prove a common secret and encrypt what they say and spill.
        secret_file: the secret of a standalone cluster, or of pods of Kubernetes; YARN brings one by itself.
        secret_name: of the secret of Kubernetes that holds this file; executors have it at the same path.
        ui_port: of Spark's own pages; None: there are none.
        event_log_dir: where event logs go; None: none are written.
        python: interpreter of the workers; it must have what `spark` imports.
        packages: more zips for the executors; our own goes by itself when the master is not local.
        cds_archive: class data archive that halves the start; one that is missing or stale does no harm.
        local_dir: where shuffles, our zip and the log go. None: a new folder where the system keeps such.
        log_file: where the JVM and its workers write. None: `spark.log` in `local_dir`.
        start_timeout_s: how long a start may take, from the process to the session.
        java_home: Java to use. None: that of the environment.
        java_options: more options of the driver's JVM.
        conf: more Spark configuration; it wins over what is set here.
    """

    master: str | None = None
    cores: int = 2
    driver_memory: str = "2g"
    driver_host: str | None = None
    executor_memory: str = "1g"
    executor_cores: int | None = None
    cores_max: int | None = None
    executors: int | None = None
    executors_min: int = 1
    executors_max: int | None = None
    image: str | None = None
    namespace: str | None = None
    service_account: str | None = None
    archives: tuple[str, ...] = ()
    encrypted: bool = False
    secret_file: Path | None = None
    secret_name: str | None = None
    ui_port: int | None = None
    event_log_dir: Path | None = None
    python: str = sys.executable
    packages: tuple[Path, ...] = ()
    cds_archive: Path | None = None
    local_dir: Path | None = None
    log_file: Path | None = None
    start_timeout_s: float = 120.0
    java_home: Path | None = None
    java_options: tuple[str, ...] = ()
    conf: Mapping[str, str] = field(default_factory=dict)

    @property
    def master_url(self) -> str:
        """The master as Spark wants it."""
        return self.master or f"local[{self.cores},4]"

    @property
    def is_local(self) -> bool:
        """Whether tasks run in workers of this machine's driver."""
        return self.master_url.startswith("local")

    @property
    def is_kubernetes(self) -> bool:
        """Whether executors are pods."""
        return self.master_url.startswith(KUBERNETES)


def default_cds_archive() -> Path:
    """Where `make setup` puts the class data archive: it goes with the environment that it was made from."""
    return Path(sys.prefix) / "share" / "lethe" / "spark-classes.jsa"


def spark_conf(
    options: SparkOptions, *, directory: Path, packages: tuple[Path, ...], sockets: Path | None = None
) -> dict[str, str]:
    """The configuration of a session.

    Args:
        directory: a folder of this JVM alone, for whatever it wants to keep for a while.
        sockets: a folder of this JVM alone whose path is short enough for Unix sockets; None: there is none.
        packages: zips that executors put on their path.
    """
    conf = {
        "spark.master": options.master_url,
        "spark.app.name": "lethe",
        "spark.api.mode": "classic",
        "spark.driver.memory": options.driver_memory,
        "spark.driver.extraJavaOptions": " ".join(_java_options(options, directory)),
        "spark.local.dir": str(directory),
        "spark.ui.showConsoleProgress": "false",
        # Kept even without a UI; what a service of months does not look at.
        "spark.ui.retainedJobs": "200",
        "spark.ui.retainedStages": "200",
        "spark.ui.retainedTasks": "2000",
        "spark.sql.ui.retainedExecutions": "100",
        "spark.log.level": "WARN",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.sql.shuffle.partitions": str(3 * options.cores),
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
        # On, 4.3.0 keeps the filter of one query of a frame for all later ones.
        "spark.sql.python.filterPushdown.enabled": "false",
        "spark.scheduler.mode": "FAIR",
        "spark.scheduler.allocation.file": f"file:{directory / 'fair-pools.xml'}",
        "spark.speculation": "false",
        # Of tasks above it pyspark makes a file, in the clear, which stays as long as the JVM.
        "spark.broadcast.UDFCompressionThreshold": TASKS_IN_NO_FILE,
        "spark.python.task.killTimeout": "100ms",
        "spark.task.reaper.enabled": "true",
        "spark.task.reaper.killTimeout": "60s",
        "spark.task.reaper.pollingInterval": "5s",
    }
    conf |= _shown_conf(options) | _encryption_conf(options)
    if not options.is_local:
        conf |= _cluster_conf(options, packages)
    else:
        conf |= {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
        conf |= _sockets_conf(sockets)
    return conf | dict(options.conf)


def _sockets_conf(sockets: Path | None) -> dict[str, str]:
    """Between JVM and Python workers; by TCP each task waits 40 ms for a delayed acknowledgement."""
    if sockets is None:
        return {}
    return {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": str(sockets),
    }


def _java_options(options: SparkOptions, directory: Path) -> list[str]:
    flags = [
        "-XX:+ExitOnOutOfMemoryError",
        f'"-Djava.io.tmpdir={directory}"',  # paths may hold spaces
        *options.java_options,
    ]
    if options.cds_archive is not None and options.cds_archive.is_file():
        flags.append(f'"-XX:SharedArchiveFile={options.cds_archive}"')
    return flags


def _cluster_conf(options: SparkOptions, packages: tuple[Path, ...]) -> dict[str, str]:
    conf = {
        "spark.submit.pyFiles": ",".join(str(package) for package in packages),
        "spark.executor.memory": options.executor_memory,
        "spark.executor.extraJavaOptions": "-XX:+ExitOnOutOfMemoryError",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    }
    driver_host = options.driver_host or own_address_towards(options.master_url)
    if driver_host is not None:
        conf |= {"spark.driver.host": driver_host, "spark.driver.bindAddress": driver_host}
    if options.executor_cores is not None:
        conf["spark.executor.cores"] = str(options.executor_cores)
    if options.cores_max is not None:
        conf["spark.cores.max"] = str(options.cores_max)
    if options.archives:
        conf["spark.archives"] = ",".join(options.archives)
    return conf | _kubernetes_conf(options) | _executors_conf(options)


def _kubernetes_conf(options: SparkOptions) -> dict[str, str]:
    """Of pods; the secret by a file, or Spark writes it into each pod's specification."""
    named = {
        "spark.kubernetes.container.image": options.image,
        "spark.kubernetes.namespace": options.namespace,
        "spark.kubernetes.authenticate.executor.serviceAccountName": options.service_account,
    }
    conf = {name: value for name, value in named.items() if value is not None}
    if options.is_kubernetes:
        # Else pods that are refused or lost, over months, add up until Spark gives the context up.
        conf |= {
            "spark.executor.failuresValidityInterval": FAILURES_COUNT_FOR,
            "spark.executor.maxNumFailures": str(FAILURES_MAX),
            # Each refusal fills a page of the log.
            "spark.kubernetes.allocation.batch.delay": ASKS_EVERY,
        }
    if options.is_kubernetes and options.encrypted and options.secret_file and options.secret_name:
        conf["spark.authenticate.secret.file"] = str(options.secret_file)
        conf[f"spark.kubernetes.executor.secrets.{options.secret_name}"] = str(options.secret_file.parent)
        # 4.3.0 reads the file only where it knows its master, which an executor is not told until it has it.
        conf["spark.executorEnv.SPARK_JAVA_OPT_MASTER"] = f"-Dspark.master={options.master_url}"
    return conf


def _executors_conf(options: SparkOptions) -> dict[str, str]:
    """How many: a fixed number, a number that goes with the work, or what the cluster gives."""
    if options.executors is not None:
        return {"spark.executor.instances": str(options.executors)}
    if options.executors_max is None:
        return {}
    return {
        "spark.dynamicAllocation.enabled": "true",
        # There is no service of the cluster that would keep shuffles of executors that have gone.
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.minExecutors": str(options.executors_min),
        "spark.dynamicAllocation.initialExecutors": str(options.executors_min),
        "spark.dynamicAllocation.maxExecutors": str(options.executors_max),
        "spark.dynamicAllocation.executorIdleTimeout": EXECUTOR_IDLE,
    }


def _shown_conf(options: SparkOptions) -> dict[str, str]:
    """Spark's own pages and logs; nobody ends a job on a page that asks for no token."""
    conf = {"spark.ui.enabled": "false"}
    if options.ui_port is not None:
        conf = {
            "spark.ui.enabled": "true",
            "spark.ui.port": str(options.ui_port),
            "spark.ui.killEnabled": "false",
        }
    if options.event_log_dir is not None:
        # A service of months writes files of months: each is put aside when it is long.
        conf |= {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": options.event_log_dir.as_uri(),
            "spark.eventLog.rolling.enabled": "true",
            "spark.eventLog.rolling.maxFileSize": EVENT_LOG_FILE,
        }
    return conf


def _encryption_conf(options: SparkOptions) -> dict[str, str]:
    if not options.encrypted:
        return {}
    return {
        "spark.authenticate": "true",
        "spark.network.crypto.enabled": "true",
        "spark.io.encryption.enabled": "true",
    }

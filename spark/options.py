"""How Spark is started: one frozen, picklable value, and the configuration that follows from it.

Nothing in it is a secret: configuration travels as command-line arguments of the JVM, where `ps` shows it.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """How a session is started.

    Args:
        master: `local[N,4]` (four attempts a task), `spark://host:port`, ...; None: local with `cores`.
        cores: how many tasks run at a time on a local master.
        driver_memory: heap of the driver's JVM, in Java's notation.
        driver_host: the name under which executors reach this machine; only for a master that is not local.
        executor_memory: heap of an executor; only for a master that is not local.
        executor_cores: cores of an executor; only for a master that is not local. None: the cluster decides.
        cores_max: cores to take of a cluster in all. None: all that it gives.
        python: interpreter of the workers; it must have what `spark` imports.
        packages: more zips for the executors; our own goes by itself when the master is not local.
        cds_archive: class data archive that halves the start; one that is missing or stale does no harm.
        local_dir: where shuffles, our zip and the log of the JVM go. None: a folder below the system's own.
        log_file: where the JVM and its workers write. None: `spark.log` in `local_dir`.
        start_timeout_s: how long a start may take, from the process to the session.
        java_home: Java to use. None: that of the environment.
        conf: more Spark configuration; it wins over what is set here.
    """

    master: str | None = None
    cores: int = 2
    driver_memory: str = "2g"
    driver_host: str | None = None
    executor_memory: str = "2g"
    executor_cores: int | None = None
    cores_max: int | None = None
    python: str = sys.executable
    packages: tuple[Path, ...] = ()
    cds_archive: Path | None = None
    local_dir: Path | None = None
    log_file: Path | None = None
    start_timeout_s: float = 120.0
    java_home: Path | None = None
    conf: Mapping[str, str] = field(default_factory=dict)

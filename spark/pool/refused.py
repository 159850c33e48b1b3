"""Configuration of Spark that nobody may set beside Lethe, and why."""

from collections.abc import Mapping
from typing import Final

SECRETS: Final = ("secret", "password", "token")
REFUSED: Final[Mapping[str, str]] = {
    "spark.master": "LETHE_SPARK__MASTER names it, and decides what may run there",
    "spark.remote": "jobs are cancelled and watched in a driver of our own, which Spark Connect has not",
    "spark.api.mode": "jobs are cancelled and watched in a driver of our own, which Spark Connect has not",
    "spark.submit.deployMode": "the driver is a child of the service, and ends with it",
    "spark.submit.pyFiles": "Lethe's own code goes there by itself",
    "spark.speculation": "a unit would be done twice at the same time",
    "spark.task.reaper.enabled": "a task that was cancelled would go on, and write",
    "spark.scheduler.mode": "short jobs would wait behind long ones",
    "spark.scheduler.allocation.file": "short jobs would wait behind long ones",
    "spark.sql.python.filterPushdown.enabled": "4.3 keeps the filter of one query for the next: wrong rows",
    "spark.driver.extraJavaOptions": "LETHE_SPARK__JAVA_OPTIONS adds to it",
    "spark.driver.host": "LETHE_SPARK__DRIVER_HOST names it",
    "spark.local.dir": "LETHE_SPARK__LOCAL_DIR names it, and starts clear it",
    "spark.pyspark.python": "LETHE_SPARK__PYTHON names it",
    "spark.authenticate": "LETHE_SPARK__ENCRYPTION switches it",
    "spark.network.crypto.enabled": "LETHE_SPARK__ENCRYPTION switches it",
    "spark.io.encryption.enabled": "LETHE_SPARK__ENCRYPTION switches it",
    "spark.authenticate.secret": "`ps` would show it: LETHE_SPARK__SECRET_FILE names a file",
}
"""Each name with the reason."""


def check_conf(conf: Mapping[str, str]) -> None:
    """Look for what may not be set.

    Raises: ValueError: names each, and why.
    """
    faults = [f"{name}: {why}" for name in sorted(conf) if (why := _why(name)) is not None]
    if faults:
        raise ValueError("; ".join(faults))


def _why(name: str) -> str | None:
    if name in REFUSED:
        return REFUSED[name]
    last = name.rpartition(".")[2].lower()
    # `spark.x.passwordFile` names a file, and may be said.
    if any(last.endswith(word) for word in SECRETS):
        return "`ps` would show it"
    return None

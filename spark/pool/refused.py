"""Configuration of Spark that nobody may set beside Lethe, and why."""

import re
from collections.abc import Mapping
from typing import Final

SECRETS: Final = (
    *("secret", "password", "passwd", "passphrase", "token"),
    *("secretkey", "accesskey", "accountkey", "apikey", "privatekey"),
)
"""Ends of names, in small letters and without what parts their words."""
OF_AZURE: Final = re.compile(
    r"fs\.azure\.(account\.key|sas|account\.oauth2\.(client\.secret|refresh\.token|user\.password))\."
)
"""Secrets of a store of Azure, whose own name follows."""
NAMES_A_SECRET: Final = re.compile(r"spark\.kubernetes\.(driver|executor)\.(secrets|secretKeyRef)\..*")
OF_SPARK: Final = "spark."
NOT_IN_A_NAME: Final = re.compile(r"[\s=]")
REFUSED: Final[Mapping[str, str]] = {
    "spark.master": "LETHE_SPARK__MASTER names it, and decides what may run there",
    "spark.remote": "jobs are cancelled and watched in a driver of our own, which Spark Connect has not",
    "spark.api.mode": "jobs are cancelled and watched in a driver of our own, which Spark Connect has not",
    "spark.submit.deployMode": "the driver is a child of the service, and ends with it",
    "spark.submit.pyFiles": "Lethe's own code goes there by itself",
    "spark.broadcast.UDFCompressionThreshold": "tasks above it would lie in a file, with their passwords",
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
    "spark.authenticate.secret.file": "LETHE_SPARK__SECRET_FILE names it",
    "spark.authenticate.secret.driver.file": "LETHE_SPARK__SECRET_FILE names it",
    "spark.authenticate.secret.executor.file": "LETHE_SPARK__SECRET_FILE names it",
    "spark.authenticate.secret": "`ps` would show it: LETHE_SPARK__SECRET_FILE names a file",
}
"""Each name with the reason."""


def check_conf(conf: Mapping[str, str]) -> None:
    """Look for what may not be set.

    Raises: ValueError: names each, and why.
    """
    faults = [f"{_shown(name)}: {why}" for name in sorted(conf) if (why := _why(name)) is not None]
    if faults:
        raise ValueError("; ".join(faults))


def _shown(name: str) -> str:
    """What stands behind a sign of equality may be a secret already."""
    return name.partition("=")[0].strip()


def _why(name: str) -> str | None:
    if NOT_IN_A_NAME.search(name):
        return "no name of Spark holds a blank or a sign of equality: write name and value apart"
    if name in REFUSED:
        return REFUSED[name]
    if not name.startswith(OF_SPARK):
        return "Spark leaves out what does not begin with `spark.`; Hadoop's names begin with `spark.hadoop.`"
    if NAMES_A_SECRET.fullmatch(name):
        return None
    # `spark.x.passwordFile` names a file, and may be said.
    words = re.sub(r"[^a-z0-9]", "", name.lower())
    if words.endswith(SECRETS) or OF_AZURE.search(name.lower()):
        return "`ps` would show it"
    return None

"""Make the class data archive that halves the start of the JVM: `python -m spark.class_archive`.

Java writes it at the end of a run that has loaded what a job loads. It belongs to this Java and these jars;
Java ignores one that does not fit, so nothing is checked when it is used.
"""

import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Final

from spark.pool.errors import SparkStartFailed
from spark.pool.options import SparkOptions, default_cds_archive
from spark.pool.session import discard, start_session
from spark.pool.warming import warm_up

STOP_TIMEOUT_S: Final = 120.0


def make_class_archive(target: Path, options: SparkOptions | None = None) -> bool:
    """Make the archive and put it in place in one step; False if Java wrote none.

    Raises: SparkStartFailed: there is no Java, or Spark does not start.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="classes-", dir=target.parent) as directory:
        fresh = Path(directory) / target.name
        flag = f'"-XX:ArchiveClassesAtExit={fresh}"'
        started = start_session(
            replace(
                options or SparkOptions(), cds_archive=None, java_options=(flag,), local_dir=Path(directory)
            )
        )
        try:
            warm_up(started)
        finally:
            discard(started, stop_timeout_s=STOP_TIMEOUT_S)
        if not fresh.is_file():
            return False
        fresh.replace(target)
    return True


def main() -> int:
    """Make the archive where the service looks for it; 1 if that did not work."""
    target = default_cds_archive()
    try:
        made = make_class_archive(target)
    except SparkStartFailed as failed:
        print(f"no class data archive: {failed.detail}", file=sys.stderr)
        return 1
    return 0 if made else 1


if __name__ == "__main__":
    sys.exit(main())

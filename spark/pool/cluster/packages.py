"""Our own packages as a zip that travels to executors: the lower floor and nothing of the service."""

import zipfile
from pathlib import Path
from typing import Final

# The same sources give the same bytes, so a cluster's caches know the file again.
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
_MODE: Final = 0o644 << 16


def write_package(directory: Path) -> Path:
    """Write `lethe_spark.zip`, holding the package `spark` as it is installed here."""
    source = Path(__file__).parents[2]
    target = directory / "lethe_spark.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(source.rglob("*.py")):
            name = (Path(source.name) / file.relative_to(source)).as_posix()
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.external_attr = _MODE
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, file.read_bytes())
    return target

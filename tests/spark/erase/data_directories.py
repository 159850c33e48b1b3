"""Put the files of a log where a JE with je.log.nDataDirectories has them, and back."""

from pathlib import Path


def spread_over(directory: Path, count: int) -> Path:
    """Move the files by the rule of JE: file N into data directory (N mod count) + 1."""
    for number in range(count):
        (directory / f"data{number + 1:03d}").mkdir()
    for path in sorted(directory.glob("*.jdb")):
        path.rename(directory / f"data{int(path.stem, 16) % count + 1:03d}" / path.name)
    return directory


def gathered(directory: Path) -> dict[str, bytes]:
    """All files of the log, wherever they lie."""
    return {path.name: path.read_bytes() for path in sorted(directory.rglob("*.jdb"))}

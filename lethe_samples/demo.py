"""The environment that `lethe demo` erases, as the archive that lies beside the demo.

    python -m lethe_samples.demo

The archive has the files of the environment and `live.json`: the numbers whose markers must stay readable.
"""

import io
import json
import lzma
import tarfile
import tempfile
from pathlib import Path
from typing import Final

from lethe_samples.je_writer.sample import write_sample

ARCHIVE: Final = Path(__file__).parents[1] / "app" / "cli" / "demo" / "je_sample.tar.xz"
LIVE: Final = "live.json"
BYTES: Final = 8_000_000
FILE_BYTES: Final = 1_000_000
VALUE_BYTES: Final = 1_000
OBSOLETE_FRACTION: Final = 0.6


def sample_members() -> dict[str, bytes]:
    """Write the environment anew: its files by name, and the list of what lives. Always the same bytes."""
    with tempfile.TemporaryDirectory() as folder:
        sample = write_sample(
            Path(folder),
            total_bytes=BYTES,
            file_bytes=FILE_BYTES,
            value_bytes_median=VALUE_BYTES,
            obsolete_fraction=OBSOLETE_FRACTION,
        )
        members = {path.name: path.read_bytes() for path in sorted(Path(folder).glob("*.jdb"))}
    return members | {LIVE: json.dumps(sorted(int(number) for number in sample.live)).encode()}


def archive_members(path: Path) -> dict[str, bytes]:
    """Read the members of an archive, by name."""
    members = {}
    with tarfile.open(path, "r:xz") as archive:
        for info in archive:
            opened = archive.extractfile(info)
            assert opened is not None, f"{info.name} is not a file"
            members[info.name] = opened.read()
    return members


def pack(members: dict[str, bytes]) -> bytes:
    """Pack the members without a trace of who did it, and when."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return lzma.compress(plain.getvalue(), preset=9)


if __name__ == "__main__":
    ARCHIVE.write_bytes(pack(sample_members()))
    print(f"{ARCHIVE}: {ARCHIVE.stat().st_size:,} bytes")

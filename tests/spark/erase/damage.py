"""What no eraser may do: entries that are in use, and their erasure."""

from pathlib import Path

from spark.erase.plan.plan import gather_facts
from spark.erase.reading.log import newest_checkpoint, read_log
from spark.formats.je.log import EntryType, file_name, lsn_file, lsn_offset


def in_use(directory: Path, kinds: frozenset[EntryType]) -> list[int]:
    """Entries before the tail of the log that a live slot leads to."""
    with read_log(directory, verify=False) as log:
        checkpoint = newest_checkpoint(log)
        facts = gather_facts(log, checkpoint)
        known = dict(zip(facts.entries.lsn.tolist(), facts.entries.type.tolist(), strict=True))
    found = [lsn for lsn in facts.reached.lsns.tolist() if known.get(lsn) in kinds]
    return [lsn for lsn in found if lsn < checkpoint.first_active]


def zero_out(directory: Path, lsn: int) -> None:
    """Erase an entry that nobody has planned."""
    with (directory / file_name(lsn_file(lsn))).open("r+b") as file:
        file.seek(lsn_offset(lsn))
        header = file.read(14)
        file.seek(lsn_offset(lsn) + 4)
        file.write(b"\x2b")
        file.seek(lsn_offset(lsn) + (22 if header[5] & 0x28 else 14))
        file.write(bytes(int.from_bytes(header[10:14], "little")))

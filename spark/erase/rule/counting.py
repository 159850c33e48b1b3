"""How many records of an environment an extinction covers, and which databases there are.

The log is read as it stands, beside whoever writes it: nothing is locked, and what is counted is a beginning
of the log. A record is counted by its newest committed LN; one whose LN was cleaned away, because its value
lives in its node, is not seen.
"""

from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Final

import numpy as np

from spark.erase.calls.calls import Refusal, RefusalCode
from spark.erase.calls.count_calls import CountAnswer, CountCall
from spark.erase.calls.request import LogExtinction
from spark.erase.errors import LogFileChanged, LogFileVanished, LogRefused
from spark.erase.reading.databases import Databases, find_databases
from spark.erase.reading.live_reading import read_moving_log
from spark.erase.reading.log import Log, Mask, all_ends, all_entries, all_lns, newest_checkpoint
from spark.erase.reading.log_tail import position_at
from spark.erase.reading.naming import Ended, ended_in, name_databases
from spark.erase.reading.transactions import find_outcomes
from spark.erase.rule.deciding import USER_LN
from spark.erase.rule.extinct import judged_key
from spark.erase.rule.extinct_scans import find_log_extinctions, has_undecided
from spark.erase.rule.versions import compare_versions
from spark.formats.extinction import Extinction
from spark.formats.je.log import FILE_NUMBER_MAX, lsn_of
from spark.targets.files.log_place import log_path

HASH_BYTES: Final = 8
LSN_MAX: Final = lsn_of(FILE_NUMBER_MAX, 0xFFFFFFFF)


def count_records(call: CountCall) -> CountAnswer:
    """Read the whole log once."""
    try:
        with read_moving_log(Path(call.directory)) as log:
            ended = ended_in(log)
            names = name_databases(log, ended)
            noted: tuple[LogExtinction, ...] = ()
            found = _Covered()
            if call.discards:
                return _discards(log, names, ended)
            if call.extinction is not None:
                checkpoint = newest_checkpoint(log)
                databases = find_databases(log, checkpoint)
                noted = find_log_extinctions(
                    log, names, ended, first_active=checkpoint.first_active, secondary=databases.dups
                )
                found = _count(log, databases, names, Extinction.parse(call.extinction), keys=call.keys)
            known = tuple(sorted(names.values()))
            return CountAnswer(known, found.records, found.size, noted, keys=found.packed())
    except (LogFileVanished, LogFileChanged) as moved:
        return CountAnswer(refusal=_refusal(RefusalCode.LOG_MOVED, moved))
    except LogRefused as refused:
        return CountAnswer(refusal=_refusal(RefusalCode.LOG_REFUSED, refused))


def _discards(log: Log, names: dict[int, str], ended: Ended) -> CountAnswer:
    """What JE has discarded up to the end of what was read, and where that is."""
    checkpoint = newest_checkpoint(log)
    secondary = find_databases(log, checkpoint).dups
    noted = find_log_extinctions(log, names, ended, first_active=LSN_MAX, secondary=secondary)
    read_to = None
    if not has_undecided(log, ended, first_active=checkpoint.first_active):
        last = [file for file in log.files if file.entries.num_rows][-1]
        offset = int(last.entries["offset"][last.entries.num_rows - 1].as_py())
        read_to = position_at(log_path(log.directory, last.number), offset)
    return CountAnswer(tuple(sorted(names.values())), log_extinctions=noted, read_to=read_to)


def _refusal(code: RefusalCode, refused: LogRefused) -> Refusal:
    return Refusal(code, f"{refused.code}: {refused.detail}", refused.code, refused.file, refused.offset)


@dataclass(slots=True)
class _Covered:
    """The live records that an extinction covers, and the octets of their keys and values."""

    records: int = 0
    size: int = 0
    hashes: list[int] = field(default_factory=list)

    def packed(self) -> bytes:
        return np.sort(np.array(self.hashes, np.uint64)).tobytes()


def _hash(database: bytes, key: bytes) -> int:
    named = len(database).to_bytes(4, "big") + database + key
    return int.from_bytes(blake2b(named, digest_size=HASH_BYTES).digest(), "big")


def _count(
    log: Log, databases: Databases, names: dict[int, str], extinction: Extinction, *, keys: bool
) -> _Covered:
    entries, lns = all_entries(log), all_lns(log)
    outcomes = find_outcomes(entries, lns, all_ends(log))
    candidates = np.flatnonzero(USER_LN[entries.type[lns.entry]] & outcomes.committed)
    older, _ = compare_versions(lns, candidates, np.ones(len(candidates), dtype=bool))
    live: Mask = np.zeros(len(lns.entry), dtype=bool)
    live[candidates] = True
    live[older] = False
    live &= lns.value_bytes >= 0
    covered = _Covered()
    for db, name in names.items():
        database = name.encode()
        if database not in extinction.databases:
            continue
        has_dups = db in databases.known and databases.known[db].dups
        for row in np.flatnonzero(live & (lns.db == db)).tolist():
            key = lns.key(row)
            judged = judged_key(key, has_dups=has_dups)
            if judged is not None and extinction.covers(database, judged):
                covered.records += 1
                covered.size += len(key) + int(lns.value_bytes[row])
                if keys:
                    covered.hashes.append(_hash(database, key))
    return covered

"""Whether an environment that was erased while it was written is still what its writer made.

The writer keeps a copy that nobody erases or cleans. The naive model reads both: the copy tells what is
needed and what may go, the environment must recover to the records that the copy's history comes to.
"""

from dataclasses import dataclass
from pathlib import Path

from spark.formats.je.log import file_name
from tests.oracles.je_liveness import ERASED, NODES, USER_LNS, Needs, Rule
from tests.oracles.je_liveness_reader import Log, read_environment
from tests.oracles.je_liveness_recovery import as_the_user_sees, recover, replay

TYPE_AT, HEADER_BYTES = 4, 14


@dataclass(frozen=True)
class Judged:
    """What was erased: leaves, nodes; how many of all are half erased; entries in files that are left."""

    leaves: int
    nodes: int
    half_erased: int
    entries: int


def judge(directory: Path, copy: Path, scratch: Path) -> Judged:
    """Judge a state in which nobody writes. `scratch` is an empty folder."""
    paths = sorted(directory.glob("*.jdb"))
    for path in sorted(copy.glob("*.jdb")):
        if path.name <= paths[-1].name:
            (scratch / path.name).write_bytes(path.read_bytes())
    with (scratch / paths[-1].name).open("r+b") as last:
        last.truncate(paths[-1].stat().st_size)
    told, found = read_environment(scratch), read_environment(directory)
    judged = _compare_bytes(directory, scratch, told, found)
    erased = {entry.lsn for entry in found.entries if entry.type == ERASED}
    rule = Rule(told)
    needed = Needs(rule).all()
    wrong = {hex(lsn): needed[lsn] for lsn in erased & needed.keys()}
    assert not wrong, f"needed, and erased: {wrong}"
    beyond = {hex(lsn) for lsn in erased - rule.obsolete().keys()}
    assert not beyond, f"not obsolete, and erased: {beyond}"
    recovered = recover(found)
    assert not recovered.fatal, recovered.fatal
    assert not recovered.missing, recovered.missing
    differing = as_the_user_sees(found, recovered.records) ^ as_the_user_sees(told, replay(told))
    assert not differing, f"records differ: {differing}"
    return judged


def _compare_bytes(directory: Path, copy: Path, told: Log, found: Log) -> Judged:
    """See that nothing differs but types and items of entries that may be touched at all."""
    leaves = nodes = half_erased = entries = 0
    for number in found.files:
        ours = (directory / file_name(number)).read_bytes()
        theirs = (copy / file_name(number)).read_bytes()
        assert len(ours) == len(theirs), file_name(number)
        end = 0
        for entry in (each for each in told.entries if each.file == number):
            end = entry.offset + entry.header + entry.size
            now, then = ours[entry.offset : end], theirs[entry.offset : end]
            entries += 1
            if now == then:
                continue
            where = f"{file_name(number)}, offset {entry.offset}"
            assert entry.type in USER_LNS | NODES, f"{where}: type {entry.type}"
            assert now[TYPE_AT] == ERASED, f"{where}: type {now[TYPE_AT]}"
            assert now[:TYPE_AT] + now[TYPE_AT + 1 : HEADER_BYTES] == then[:TYPE_AT] + then[5:HEADER_BYTES], (
                where
            )
            item, before = now[HEADER_BYTES:], then[HEADER_BYTES:]
            assert all(byte in (0, old) for byte, old in zip(item, before, strict=True)), where
            half_erased += any(item)
            leaves += entry.type in USER_LNS
            nodes += entry.type in NODES
        assert ours[end:] == theirs[end:], f"behind offset {end} of {file_name(number)}"
    return Judged(leaves, nodes, half_erased, entries)

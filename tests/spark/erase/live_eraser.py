"""Passes of an erasure beside whoever writes: plan, hash, rounds, proof, by the calls that a cycle makes.

    python -m tests.spark.erase.live_eraser DIRECTORY NODE_GRACE_MS

makes passes until somebody kills it. It says READY when it is about to begin, and has its machine code.
"""

import os
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from spark.erase.calls.calls import (
    LiveTerms,
    Mode,
    PlanAnswer,
    PlanCall,
    PlannedFile,
    PrepareCall,
    ProveCall,
    Refusal,
    RefusalCode,
    RoundCall,
)
from spark.erase.calls.request import PlanRequest
from spark.erase.overwrite.rounds import slice_entries, split_rounds
from spark.erase.reading.directory import Witness
from spark.erase.unit import do
from spark.targets.files.control_file import ControlFile

EPOCH = 7
NOW_MS = 1_800_000_000_000
# What passes by itself, or ends one file: the writer goes on, and its cleaner deletes.
EXPECTED = {RefusalCode.LOG_MOVED, RefusalCode.ALREADY_DELETED, RefusalCode.ENVIRONMENT_IN_USE}


@dataclass
class Eraser:
    """Passes over one environment, and what became of them."""

    directory: Path
    node_grace_ms: int
    rows_per_round: int = 40
    passes: Counter[Mode] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    entries: int = 0
    files_proved: int = 0
    witness: Witness | None = None

    def __post_init__(self) -> None:
        with ControlFile.open(self.directory, create=True) as control:
            assert control.change(lambda record: record.claimed(EPOCH)) is not None

    def make_pass(self) -> None:
        """Plan once, and erase all files of the plan."""
        plan = self.plan()
        if self.is_refused(plan.refusal):
            return
        self.passes[plan.mode] += 1
        self.witness = plan.witness
        for file in plan.files:
            if file.entry_count:
                self.erase(file, plan.mode)

    def plan(self) -> PlanAnswer:
        terms = LiveTerms(now_ms=NOW_MS, backup_grace_ms=0, node_grace_ms=self.node_grace_ms)
        return do(PlanCall(str(self.directory), PlanRequest(), terms))

    def erase(self, file: PlannedFile, mode: Mode) -> None:
        place = str(self.directory), file.number
        prepared = do(PrepareCall(*place, file.identity, file.entries))
        if self.is_refused(prepared.refusal):
            return
        assert split_rounds(file.entries, file_size=file.identity.size)
        for first in range(0, file.entry_count, self.rows_per_round):
            rows = slice_entries(file.entries, first, min(first + self.rows_per_round, file.entry_count))
            call = RoundCall(*place, mode, EPOCH, file.identity, rows, first == 0, self.witness)
            done = do(call)
            if self.is_refused(done.refusal):
                return
            self.witness = done.witness or self.witness
            self.entries += done.entries_done
        proof = do(ProveCall(*place, file.identity, file.entries, prepared.sha256_expected))
        if not self.is_refused(proof.refusal):
            assert proof.is_proved
            self.files_proved += 1

    def is_refused(self, refusal: Refusal | None) -> bool:
        if refusal is None:
            return False
        assert refusal.code in EXPECTED, refusal
        self.refused[refusal.code] += 1
        return True


def run(directory: Path, node_grace_ms: int) -> None:
    eraser, parent = Eraser(directory, node_grace_ms), os.getppid()
    eraser.plan()
    print("READY", flush=True)
    while os.getppid() == parent:
        eraser.make_pass()


def main() -> None:
    run(Path(sys.argv[1]), int(sys.argv[2]))


if __name__ == "__main__":
    main()

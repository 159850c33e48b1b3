"""Hands without a log: files of zeros, plans as a test wants them, and refusals in the order it names."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from spark.erase.calls.calls import (
    Costs,
    DeleteReservedAnswer,
    DeleteReservedCall,
    HeaderTime,
    HeaderTimesAnswer,
    HeaderTimesCall,
    Mode,
    PlanAnswer,
    PlanCall,
    PlannedFile,
    PrepareAnswer,
    PrepareCall,
    ProveAnswer,
    ProveCall,
    Refusal,
    RoundAnswer,
    RoundCall,
    Step,
)
from spark.erase.entry_tables import pack, unpack
from spark.erase.hands.hands import HandsLost
from spark.erase.native.planned import PLANNED
from spark.erase.reading.directory import Witness, file_names, identity_of
from spark.formats.je.log import EntryType, file_name, file_number

MIB = 1024 * 1024
BEFORE, EXPECTED = "a" * 64, "b" * 64
COSTS = Costs(reads=1, read_bytes=1000, writes=2, write_bytes=200, fsyncs=3, fsync_s=(0.001, 0.002, 0.003))


@dataclass
class FakeFile:
    """One file of the log: its entries lie so far apart that each is a round of its own."""

    created_ms: int = 0
    rounds: int = 1
    causes: dict[str, str] = field(default_factory=dict)
    reserved: bool = False
    checksum: int = 1

    @property
    def size(self) -> int:
        return max(1, self.rounds) * 10 * MIB

    def entries(self) -> pa.Table:
        count = 0 if self.causes or self.reserved else self.rounds
        return pa.table(
            {
                "offset": pa.array([38 + number * 10 * MIB for number in range(count)], pa.uint32()),
                "reason": pa.array([5] * count, pa.uint8()),
                "type": pa.array([int(EntryType.INS_LN)] * count, pa.uint8()),
                "flags": pa.array([0] * count, pa.uint8()),
                "previous": pa.array([0] * count, pa.uint32()),
                "item_bytes": pa.array([100] * count, pa.int32()),
                "vlsn": pa.array([0] * count, pa.int64()),
                "checksum": pa.array([self.checksum] * count, pa.uint32()),
            },
            schema=PLANNED,
        )


class FakeLog:
    """A directory of files of zeros, what a plan finds in them, and all that hands were asked."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.files: dict[int, FakeFile] = {}
        self.vlsn: Mapping[str, int | None] | None = None
        self.witness: Witness | None = None
        self.refusals: dict[tuple[str, int], list[Refusal]] = defaultdict(list)
        self.lost: list[str] = []
        self.asked: list[Any] = []
        self.open_hands = 0
        self.is_proved = True
        self.mode = Mode.CLOSED
        self.on_round: Callable[[RoundCall], None] = lambda _call: None
        self.on_plan: Callable[[PlanCall], None] = lambda _call: None

    def add(self, number: int, **fields: Any) -> FakeFile:
        file = self.files[number] = FakeFile(**fields)
        path = self.directory / file_name(number)
        path.touch()
        os.truncate(path, file.size)
        return file

    def remove(self, number: int) -> None:
        del self.files[number]
        (self.directory / file_name(number)).unlink()

    def refuse(self, kind: str, number: int, *refusals: Refusal) -> None:
        """Answer the next calls of this kind about a file with refusals."""
        self.refusals[kind, number] += refusals

    def take(self, _context: Any, _requested: Any, *, directory: Path) -> tuple[FakeHands, str]:
        """Hands for a job, as HandsSource gives them."""
        assert directory == self.directory
        self.open_hands += 1
        return FakeHands(self), "INLINE"

    def numbers(self) -> list[int]:
        return [file_number(name) for name in file_names(self.directory)]

    def rounds_of(self, number: int) -> list[RoundCall]:
        return [call for call in self.asked if isinstance(call, RoundCall) and call.number == number]

    def order(self) -> list[int]:
        """The files in the order in which they were first overwritten."""
        return list(dict.fromkeys(call.number for call in self.asked if isinstance(call, RoundCall)))


class FakeHands:
    """Somebody who answers at once and touches nothing."""

    def __init__(self, log: FakeLog) -> None:
        self.log = log
        self.is_over = False

    def _ask(self, kind: str, number: int, call: Any) -> Refusal | None:
        self.log.asked.append(call)
        if self.is_over or kind in self.log.lost:
            if kind in self.log.lost:
                self.log.lost.remove(kind)
            raise HandsLost("killed")
        waiting = self.log.refusals[kind, number]
        return waiting.pop(0) if waiting else None

    def header_times(self, call: HeaderTimesCall) -> HeaderTimesAnswer:
        refusal = self._ask("header_times", -1, call)
        numbers = [number for number in self.log.numbers() if number >= call.first][: call.count]
        files = tuple(
            HeaderTime(number, self.log.files[number].size, self.log.files[number].created_ms, 1)
            for number in numbers
        )
        return HeaderTimesAnswer(files, Costs(reads=len(files), read_bytes=38 * len(files)), refusal)

    def plan(self, call: PlanCall) -> PlanAnswer:
        self.log.on_plan(call)
        refusal = self._ask("plan", -1, call)
        if refusal is not None:
            return PlanAnswer(refusal=refusal)
        files = tuple(self._planned(number) for number in self.log.numbers())
        return PlanAnswer(
            files=files,
            vlsn=self.log.vlsn,
            mode=self.log.mode if call.live is None else Mode.LIVE,
            witness=self.log.witness,
            costs=Costs(reads=1, read_bytes=10),
        )

    def _planned(self, number: int) -> PlannedFile:
        file = self.log.files[number]
        causes = self._causes(number)
        entries = file.entries().slice(0, 0 if causes else None)  # as real plans: a cause forbids all
        count = entries.num_rows
        return PlannedFile(
            number=number,
            identity=identity_of(os.stat(self.log.directory / file_name(number))),
            created_ms=file.created_ms,
            causes=causes,
            entries=pack(entries),
            entry_count=count,
            erased={"SUPERSEDED": (count, count * 100)} if count else {},
            kept=dict.fromkeys(file.causes, (1, 100)),
            reserved=file.reserved,
            barren=file.reserved,
        )

    def _causes(self, number: int) -> dict[str, str]:
        tail = {"TAIL_OF_LOG": "the last file"} if number == max(self.log.files) else {}
        return self.log.files[number].causes | tail

    def prepare(self, call: PrepareCall) -> PrepareAnswer:
        refusal = self._ask("prepare", call.number, call)
        return PrepareAnswer(BEFORE, EXPECTED, call.identity.mtime_ns, COSTS, refusal)

    def round(self, call: RoundCall) -> RoundAnswer:
        self.log.on_round(call)
        refusal = self._ask("round", call.number, call)
        if refusal is not None:
            return RoundAnswer(Step.CHECK, 0, Costs(), refusal)
        return RoundAnswer(Step.DONE, unpack(call.entries).num_rows, COSTS)

    def prove(self, call: ProveCall) -> ProveAnswer:
        refusal = self._ask("prove", call.number, call)
        now = EXPECTED if self.log.is_proved else "c" * 64
        count = unpack(call.entries).num_rows
        return ProveAnswer(self.log.is_proved, now, "O_DIRECT", count, call.identity.size, 7, COSTS, refusal)

    def delete_reserved(self, call: DeleteReservedCall) -> DeleteReservedAnswer:
        refusal = self._ask("delete_reserved", call.number, call)
        if refusal is None:
            self.log.remove(call.number)
        return DeleteReservedAnswer(refusal is None, Costs(), refusal)

    def kill(self) -> None:
        self.is_over = True

    def close(self) -> None:
        self.is_over = True
        self.log.open_hands -= 1

"""What holds after a writer has ended anywhere, for whatever reason."""

from pathlib import Path

from spark.erase.calls.calls import Mode, PlanAnswer, RoundCall
from spark.formats.je.log import file_name
from tests.spark.erase.hands_at_work import contents, erase, plan, planned_bytes, rounds_of, rows_of
from tests.spark.erase.live_records import live_records

UNFINISHED = 1


class Aftermath:
    """Judges the files of an environment; states that were judged before are not judged again."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.before = contents(directory)
        self.answer = answer = plan(directory)
        self.rows = self.planned(answer)
        self.places = {file_name(file.number): list(planned_bytes(file)) for file in answer.files}
        self.live = live_records(directory)
        self.judged: set[bytes] = set()

    def judge(self, *, with_records: bool = True) -> None:
        """Nothing but planned bytes has changed, the log parses, and a plan finds what was begun."""
        now = contents(self.directory)
        whole = b"".join(now.values())
        if whole in self.judged:
            return
        self.judged.add(whole)
        begun, unfinished = set(), set()
        for name, places in self.places.items():
            rest, before = bytearray(now[name]), self.before[name]
            for kind, low, high in places:
                if rest[kind] == 43:
                    begun.add((name, kind - 4))
                    if any(rest[low:high]):
                        unfinished.add((name, kind - 4))
                    rest[kind], rest[low:high] = before[kind], before[low:high]
            assert rest == before
        again = self.planned(plan(self.directory))
        assert {place for place, reason in again.items() if reason == UNFINISHED} == unfinished
        # An entry that is erased proves nothing any more: what only it proved stays until the next cycle.
        assert again.keys() <= self.rows.keys()
        assert again.keys() & begun == unfinished
        if with_records:
            assert live_records(self.directory) == self.live

    def calls(self, mode: Mode, rows: int | None) -> list[RoundCall]:
        """All rounds of the environment."""
        files = self.answer.files
        return [call for file in files for call in rounds_of(self.directory, file, mode=mode, rows=rows)]

    def restore(self) -> None:
        for name, data in self.before.items():
            (self.directory / name).write_bytes(data)

    def finish(self) -> None:
        """The next cycle: a plan of what is left, to its end, with its proof."""
        erase(self.directory)
        assert self.planned(plan(self.directory)) == {}
        assert live_records(self.directory) == self.live

    @staticmethod
    def planned(answer: PlanAnswer) -> dict[tuple[str, int], int]:
        return {
            (file_name(file.number), row["offset"]): row["reason"]
            for file in answer.files
            for row in rows_of(file)
        }

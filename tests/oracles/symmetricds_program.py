"""What the outgoing purge of SymmetricDS 3.16 does to a database, step by step, as its source was read.

Facts only (facts/symmetricds-purge, section 5): ranges from batches, the note of the last purged id, expired
gaps walked around, rows in them captured again and then deleted, gaps deleted below the purged id, and what
is stranded captured again before it goes. A row that is captured again is a new row that names the old one.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tests.oracles.symmetricds import Place, Session, session

AGAIN = "again-"


@dataclass
class Program:
    """One node's purge; `in_tx` is job.purge.max.num.data.to.delete.in.tx."""

    place: Place
    in_tx: int = 5_000

    def purge(self, cutoff: datetime, gap_cutoff: datetime) -> None:
        """One run of the outgoing purge, as far as data, events, batches and gaps go."""
        with session(self.place) as target:
            _Run(self, target, self.place.encode(cutoff), self.place.encode(gap_cutoff)).all()


class _Run:
    def __init__(self, program: Program, target: Session, cutoff: Any, gap_cutoff: Any) -> None:
        self._in_tx = program.in_tx
        self._target = target
        self._cutoff, self._gap_cutoff = cutoff, gap_cutoff
        name = program.place.name
        self._data, self._event = name("data"), name("data_event")
        self._batch, self._gap, self._context = name("outgoing_batch"), name("data_gap"), name("context")
        self._expired = sorted(
            (int(start), int(end))
            for start, end in target.run(f"select start_id, end_id from {self._gap} where is_expired = 1")
        )
        self._live = self._number(f"select min(start_id) from {self._gap} where is_expired = 0")
        self._lowest = self._last("data") + 1
        if self._lowest == 1:
            self._lowest = self._number(f"select min(data_id) from {self._data}")
        self._highest = self._number(
            f"select max(data_id) from {self._event} where batch_id in"
            f" (select max(batch_id) from {self._batch}"
            f" where create_time < :cutoff and batch_id < (select max(batch_id) from {self._batch})"
            " group by channel_id)",
            cutoff=self._cutoff,
        )

    def all(self) -> None:
        """In the program's order."""
        self._rows()
        self._batches()
        self._gaps()
        self._stranded()

    def _number(self, sql: str, **bound: Any) -> int:
        return int(self._target.run(sql, bound)[0][0] or 0)

    def _last(self, what: str) -> int:
        found = self._target.run(
            f"select context_value from {self._context} where name = :name", {"name": f"purge.last.{what}.id"}
        )
        return int(found[0][0]) if found else 0

    def _note(self, data_id: int) -> None:
        key = {"name": "purge.last.data.id"}
        self._target.run(f"delete from {self._context} where name = :name", key)
        self._target.run(
            f"insert into {self._context} (name, context_value) values (:name, :value)",
            {**key, "value": str(data_id)},
        )

    def _rows(self) -> None:
        waiting = self._number(
            f"select min(data_id) from {self._event} where batch_id in"
            f" (select batch_id from {self._batch} where status <> 'OK')"
        )
        low, high = self._lowest, self._highest
        upto = min(waiting - 1 if waiting > 0 else high, high, self._live - 1)
        if upto == high:
            rest = (low, -1)
        elif upto == waiting - 1:
            rest = (waiting, high)
        else:
            rest = (self._live, high)
        self._ranges(low, upto)
        if 0 < rest[0] <= rest[1]:
            self._target.run(
                f"delete from {self._data} where data_id between :low and :high"
                f" and exists (select 1 from {self._event} e where e.data_id = {self._data}.data_id)"
                f" and not exists (select 1 from {self._batch} b inner join {self._event} e"
                f" on e.batch_id = b.batch_id where e.data_id = {self._data}.data_id and b.status <> 'OK')",
                {"low": rest[0], "high": rest[1]},
            )
            self._note(rest[1])

    def _ranges(self, low: int, upto: int) -> None:
        """The first pass: by ids alone, around the gaps."""
        if low > upto or low <= 0:
            return
        end = 0
        for start, end in self._around(low, upto):
            self._delete(start, end)
        self._note(max(end, upto))

    def _around(self, low: int, upto: int) -> list[tuple[int, int]]:
        found, start = [], low
        for first, last in self._expired:
            if last < start or first > upto:
                continue
            if start < first:
                found.append((start, first - 1))
            start = max(start, last + 1)
        if start <= upto:
            found.append((start, upto))
        return found

    def _delete(self, low: int, high: int) -> None:
        for start in range(low, high + 1, self._in_tx):
            bound = {"low": start, "high": min(start + self._in_tx - 1, high)}
            self._target.run(f"delete from {self._data} where data_id between :low and :high", bound)

    def _batches(self) -> None:
        old = self._number(f"select max(batch_id) from {self._batch} where create_time < :c", c=self._cutoff)
        self._target.run(
            f"delete from {self._event} where batch_id <= :old and not exists (select 1 from {self._batch} b"
            f" where b.batch_id = {self._event}.batch_id and b.status <> 'OK')",
            {"old": old},
        )
        self._target.run(
            f"delete from {self._batch} where status = 'OK' and batch_id < :old"
            f" and not exists (select 1 from {self._event} e where e.batch_id = {self._batch}.batch_id)",
            {"old": old},
        )

    def _gaps(self) -> None:
        for low, high in self._expired:
            self._capture_again(low, high)
            self._target.run(
                f"delete from {self._data} where data_id between :low and :high", {"low": low, "high": high}
            )
        if self._expired:
            self._target.run(
                f"delete from {self._gap} where create_time < :cutoff and end_id < :high and is_expired = 1",
                {"cutoff": self._gap_cutoff, "high": self._highest},
            )

    def _stranded(self) -> None:
        low = self._number(f"select min(data_id) from {self._data}")
        high = min(self._number(f"select min(data_id) from {self._event}"), self._live) - 1
        if low > high or low <= 0:
            return
        for start, end in self._around(low, high):
            self._capture_again(start, end)
            self._target.run(
                f"delete from {self._data} where data_id between :low and :high and create_time < :cutoff",
                {"low": start, "high": end, "cutoff": self._cutoff},
            )

    def _capture_again(self, low: int, high: int) -> None:
        rows = self._target.run(
            f"select data_id, transaction_id from {self._data} where data_id between :low and :high",
            {"low": low, "high": high},
        )
        for data_id, again in rows:
            following = self._number(f"select max(data_id) from {self._data}") + 1
            mark = again if str(again or "").startswith(AGAIN) else f"{AGAIN}{data_id}"
            self._target.run(
                f"insert into {self._data} (data_id, table_name, event_type, trigger_hist_id, transaction_id,"
                " create_time) values (:id, 'item', 'U', 1, :mark, :now)",
                {"id": max(following, self._live), "mark": mark, "now": self._cutoff},
            )


def kept_rows(place: Place) -> set[int]:
    """The ids of rows that are there still, or as a row that was captured again."""
    with session(place) as target:
        rows = target.run(f"select data_id, transaction_id from {place.name('data')}")
    again = [str(mark)[len(AGAIN) :] for _, mark in rows if str(mark or "").startswith(AGAIN)]
    return {int(data_id) for data_id, _ in rows} | {int(text) for text in again}

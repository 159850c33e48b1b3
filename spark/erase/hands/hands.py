"""Hands: whoever does calls. What they have in common is which call has which answer."""

from abc import ABC, abstractmethod
from typing import TypeVar

from spark.erase.calls.any_call import Call
from spark.erase.calls.calls import (
    DeleteReservedAnswer,
    DeleteReservedCall,
    HeaderTimesAnswer,
    HeaderTimesCall,
    PlanAnswer,
    PlanCall,
    PrepareAnswer,
    PrepareCall,
    ProveAnswer,
    ProveCall,
    RoundAnswer,
    RoundCall,
    VerifyAnswer,
    VerifyCall,
)
from spark.erase.calls.count_calls import CountAnswer, CountCall

Answer = TypeVar("Answer")


class HandsLost(Exception):
    """Whoever did the call is gone (killed, crashed): the call may have been done in part."""


class Hands(ABC):
    """Somebody who does calls, one at a time, in a process that never forks. Any thread may kill.

    ChildHands is a child process of this one, SparkHands a worker of the pooled session; both call
    `spark.erase.unit.do`.
    """

    @abstractmethod
    def _do(self, call: Call, kind: type[Answer]) -> Answer:
        """Do a call, and return its answer.

        Raises: HandsLost.
        """

    @abstractmethod
    def kill(self) -> None:
        """End what runs at once; every later call raises HandsLost. Any thread."""

    @abstractmethod
    def close(self) -> None:
        """Give back what is held."""

    def plan(self, call: PlanCall) -> PlanAnswer:
        """Plan an erasure."""
        return self._do(call, PlanAnswer)

    def header_times(self, call: HeaderTimesCall) -> HeaderTimesAnswer:
        """Read the headers of files."""
        return self._do(call, HeaderTimesAnswer)

    def prepare(self, call: PrepareCall) -> PrepareAnswer:
        """Hash a file before its first write."""
        return self._do(call, PrepareAnswer)

    def round(self, call: RoundCall) -> RoundAnswer:
        """Overwrite some entries of a file."""
        return self._do(call, RoundAnswer)

    def prove(self, call: ProveCall) -> ProveAnswer:
        """Read a finished file again and compare."""
        return self._do(call, ProveAnswer)

    def delete_reserved(self, call: DeleteReservedCall) -> DeleteReservedAnswer:
        """Delete a file that holds nothing any more."""
        return self._do(call, DeleteReservedAnswer)

    def verify(self, call: VerifyCall) -> VerifyAnswer:
        """Read an environment again after an erasure."""
        return self._do(call, VerifyAnswer)

    def count(self, call: CountCall) -> CountAnswer:
        """Name the databases, and count what an extinction covers."""
        return self._do(call, CountAnswer)

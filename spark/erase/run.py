"""Erasure on Spark: the plan as tasks a file, and hands that do their calls in a worker of the pool.

Invariants:
- a call that writes is begun once: a second attempt of its task, which Spark would make when a worker died,
  does nothing, and whoever waits is told that the hands are lost;
- a worker opens its own descriptors and closes them before its task ends (`spark.erase.unit`);
- nothing of a log but the answer of its plan comes to this process.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar, cast

from pyspark import TaskContext
from pyspark.sql import SparkSession

from spark.erase.calls.any_call import Call, Done
from spark.erase.calls.calls import (
    DeleteReservedCall,
    PlanAnswer,
    PlanCall,
    RoundCall,
    VerifyAnswer,
    VerifyCall,
)
from spark.erase.calls.refusing import Refused
from spark.erase.calls.request import PlanRequest
from spark.erase.errors import LogRefused
from spark.erase.hands.hands import Answer, Hands, HandsLost
from spark.erase.overwrite.log_at_rest import log_at_rest
from spark.erase.overwrite.verify import verify
from spark.erase.plan.spread import plan_spread
from spark.erase.reading.properties import refuse_own_eraser
from spark.erase.unit import do, refused_by_log, with_witness
from spark.pool.errors import SparkRunError
from spark.pool.lease import Lease
from spark.worker import end_with_connection, keep_modules

Argument = TypeVar("Argument")
Result = TypeVar("Result")

WRITES: Final = (RoundCall, DeleteReservedCall)


class SparkSpread:
    """Runs the tasks of a plan on the executors of a session."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext

    @property
    def parallelism(self) -> int:
        """How many tasks run at a time."""
        return max(1, self._context.defaultParallelism)

    def each(self, function: Callable[[Argument], Result], arguments: Sequence[Argument]) -> list[Result]:
        """Run a task for each argument; results in their order."""
        return self._context.parallelize(arguments, len(arguments)).map(partial(_kept, function)).collect()

    def exchange(
        self,
        function: Callable[[Argument], Iterable[tuple[int, bytes]]],
        arguments: Sequence[Argument],
        *,
        parts: int,
        gather: Callable[[Iterable[bytes]], bytes],
    ) -> list[bytes]:
        """Run a task for each argument, and one for each part with all that was made for it."""
        made = self._context.parallelize(arguments, len(arguments)).flatMap(partial(_kept, function))
        return made.partitionBy(parts, int).mapPartitions(partial(_gathered, gather=gather)).collect()


def _kept(function: Callable[[Argument], Result], argument: Argument) -> Result:
    """In a worker: call it; by then all that it needs is loaded."""
    end_with_connection()
    result = function(argument)
    keep_modules()
    return result


def _gathered(
    rows: Iterable[tuple[int, bytes]], *, gather: Callable[[Iterable[bytes]], bytes]
) -> Iterator[bytes]:
    end_with_connection()
    yield gather(content for _, content in rows)


class SparkHands(Hands):
    """Hands that borrow a slot of the pool. One thread calls; any may kill.

    A cancel leaves a worker up to two seconds in which it may still write: silence is proved by the locks of
    files, never by the end of a call.
    """

    def __init__(self, lease: Lease, *, given_back: Callable[[], object] = lambda: None) -> None:
        """Take a lease over.

        Args:
            given_back: called once, when `close` has given it back.
        """
        self._lease = lease
        self._given_back: Callable[[], object] | None = given_back
        self._guard = threading.Lock()
        self._why_lost: str | None = None
        self.repeats = 0
        """How often Spark has repeated a call that writes nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def plan(self, call: PlanCall) -> PlanAnswer:
        """Plan an erasure, a task a file; that of a LIVE store in one task."""
        if call.live is not None:
            return self._do(call, PlanAnswer)
        directory = Path(call.directory)
        try:
            with log_at_rest(directory):
                refuse_own_eraser(directory)
                found = self._run(partial(_plan, directory=directory, request=call.request))
        except Refused as refused:
            return PlanAnswer(refusal=refused.refusal)
        except LogRefused as refused:
            return PlanAnswer(refusal=refused_by_log(refused))
        return PlanAnswer(refusal=refused_by_log(found)) if isinstance(found, LogRefused) else found

    def verify(self, call: VerifyCall) -> VerifyAnswer:
        """Read an environment again after an erasure, a task a file."""
        return self._run(partial(_verify, call=call))

    def kill(self) -> None:
        """Cancel what runs; whoever waits for it gets HandsLost, and so does every later call."""
        self._note_lost("these hands were killed")
        self._lease.cancel("these hands were killed")

    def close(self) -> None:
        """Give the slot back; what still runs is cancelled and waited for, with a bound."""
        self._note_lost("these hands were closed")
        self._lease.close()
        with self._guard:
            given_back, self._given_back = self._given_back, None
        if given_back is not None:
            given_back()

    def _do(self, call: Call, kind: type[Answer]) -> Answer:
        attempt, answer = self._run(partial(_in_one_task, call=call))
        if answer is None:
            raise self._lost(f"a worker died; attempt {attempt} would have repeated a call that writes")
        self.repeats += attempt
        assert isinstance(answer, kind), type(answer)
        return answer

    def _run(self, function: Callable[[SparkSession], Result]) -> Result:
        with self._guard:
            if self._why_lost is not None:
                raise HandsLost(self._why_lost)
        try:
            return self._lease.run(function, description=f"{self._lease.job_id} erasure")
        except SparkRunError as error:
            raise self._lost(f"{error.code}: {error.detail}") from error

    def _lost(self, why: str) -> HandsLost:
        return HandsLost(self._note_lost(why))

    def _note_lost(self, why: str) -> str:
        with self._guard:
            self._why_lost = self._why_lost or why
            return self._why_lost


def _plan(spark: SparkSession, *, directory: Path, request: PlanRequest) -> PlanAnswer | LogRefused:
    """Plan in the slot's thread. A refusal is a value: what is raised there counts as a failure of Spark."""
    try:
        return with_witness(plan_spread(directory, request, SparkSpread(spark)), directory)
    except LogRefused as refused:
        return refused


def _verify(spark: SparkSession, *, call: VerifyCall) -> VerifyAnswer:
    return verify(call, SparkSpread(spark))


def _in_one_task(spark: SparkSession, *, call: Call) -> tuple[int, Done | None]:
    """Do a call in one task of a job of its own."""
    [answer] = spark.sparkContext.parallelize([call], 1).map(_do_here).collect()
    return answer


def _do_here(call: Call) -> tuple[int, Done | None]:
    """In the worker: the number of the attempt, and the answer; None where a write would be repeated."""
    end_with_connection()
    context = TaskContext.get()
    attempt = 0 if context is None else context.attemptNumber()
    if attempt > 0 and isinstance(call, WRITES):
        return attempt, None
    done = do(cast(PlanCall, call), clock=time.perf_counter)
    keep_modules()
    return attempt, done

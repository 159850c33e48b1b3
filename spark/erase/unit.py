"""One call of the eraser's hands, done here and now: used inline, in a child process and on Spark's workers.

Nothing waits and nothing is tried twice; what forbids a call, or ends it, is in the answer.
"""

from dataclasses import replace
from pathlib import Path
from typing import Final

from spark.erase.calls.any_call import Call, Done
from spark.erase.calls.calls import (
    DeleteReservedAnswer,
    DeleteReservedCall,
    HeaderTimesAnswer,
    HeaderTimesCall,
    LiveTerms,
    Mode,
    PlanAnswer,
    PlanCall,
    PrepareCall,
    ProveCall,
    Refusal,
    RefusalCode,
    RoundAnswer,
    RoundCall,
    VerifyCall,
)
from spark.erase.calls.count_calls import CountCall
from spark.erase.calls.refusing import Refused
from spark.erase.calls.request import PlanRequest
from spark.erase.errors import LogFileChanged, LogRefused
from spark.erase.live.live import check_live_round, plan_live
from spark.erase.overwrite.file_layer import Clock, FileLayer
from spark.erase.overwrite.header_times import read_header_times
from spark.erase.overwrite.log_at_rest import log_at_rest
from spark.erase.overwrite.overwrite import overwrite
from spark.erase.overwrite.prepare import prepare
from spark.erase.overwrite.proof import prove
from spark.erase.overwrite.reserved import delete_reserved
from spark.erase.overwrite.verify import InTurn, verify
from spark.erase.overwrite.witness import read_witness
from spark.erase.plan import plan_answer
from spark.erase.plan.plan import plan_erasure
from spark.erase.reading.properties import refuse_own_eraser
from spark.erase.rule.counting import count_records

SYSTEM: Final = FileLayer()
# A plan that the log has outrun is made again at once; one that is outrun so often waits.
LIVE_READINGS_MAX: Final = 4


def unmeasured() -> float:
    """Measure nothing: every fsync takes no time."""
    return 0.0


def do(call: Call, *, layer: FileLayer = SYSTEM, clock: Clock = unmeasured) -> Done:
    """Do one call.

    Args:
        layer: the system calls on files.
        clock: seconds that only grow; fsyncs are measured by it, and nothing else.
    Returns: the answer of its kind: a RoundAnswer to a RoundCall.
    """
    match call:
        case HeaderTimesCall():
            try:
                return read_header_times(call)
            except LogRefused as refused:
                return HeaderTimesAnswer(refusal=refused_by_log(refused))
        case PlanCall():
            return _plan(call)
        case PrepareCall():
            return prepare(call, layer=layer, clock=clock)
        case RoundCall():
            return _overwrite(call, layer=layer, clock=clock)
        case ProveCall():
            return prove(call, layer=layer, clock=clock)
        case DeleteReservedCall():
            return _delete_reserved(call, layer=layer, clock=clock)
        case VerifyCall():
            return verify(call, InTurn())
        case CountCall():
            return count_records(call)


def refused_by_log(refused: LogRefused) -> Refusal:
    """Turn a fact about the log into a refusal."""
    detail = f"{refused.code}: {refused.detail}"
    return Refusal(RefusalCode.LOG_REFUSED, detail, refused.code, refused.file, refused.offset)


def with_witness(answer: PlanAnswer, directory: Path) -> PlanAnswer:
    """Add to a plan what must stand in the log whenever something of it is done.

    Raises: LogRefused.
    """
    return replace(answer, witness=read_witness(directory, answer.checkpoint_lsn))


def _plan(call: PlanCall) -> PlanAnswer:
    """Plan under JE's lock, so that the log stands still: a JE process that wants in meanwhile fails.
    Where there is no lock file yet none is made: a plan writes nothing.

    With terms for LIVE no lock of JE is taken: its process may come and go.
    """
    directory = Path(call.directory)
    if call.live is not None:
        return _plan_live(directory, call.request, call.live)
    try:
        with log_at_rest(directory):
            refuse_own_eraser(directory)
            answer = plan_answer.of_plan(plan_erasure(directory, call.request))
            return with_witness(answer, directory)
    except LogRefused as refused:
        return PlanAnswer(refusal=refused_by_log(refused))
    except Refused as refused:
        return PlanAnswer(refusal=refused.refusal)


def _plan_live(directory: Path, request: PlanRequest, terms: LiveTerms) -> PlanAnswer:
    """Plan beside a JE process; a plan that the log has outrun is made again, some times."""
    answer = PlanAnswer(mode=Mode.LIVE)
    for _ in range(LIVE_READINGS_MAX):
        answer = _plan_live_once(directory, request, terms)
        if answer.refusal is None or answer.refusal.code != RefusalCode.LOG_MOVED:
            break
    return answer


def _plan_live_once(directory: Path, request: PlanRequest, terms: LiveTerms) -> PlanAnswer:
    try:
        plan, witness = plan_live(directory, request, terms)
        answer = plan_answer.of_plan(plan, mode=Mode.LIVE, refusal=check_live_round(directory))
        return answer if answer.refusal is not None else replace(answer, witness=witness)
    except Refused as refused:
        return PlanAnswer(mode=Mode.LIVE, refusal=refused.refusal)
    except LogFileChanged as moved:
        refusal = replace(refused_by_log(moved), code=RefusalCode.LOG_MOVED)
        return PlanAnswer(mode=Mode.LIVE, refusal=refusal)
    except LogRefused as refused:
        return PlanAnswer(mode=Mode.LIVE, refusal=refused_by_log(refused))


def _refused_before_writing(directory: Path, mode: Mode) -> Refusal | None:
    """What may have come since the plan, and forbids to write."""
    try:
        refuse_own_eraser(directory)
    except LogRefused as refused:
        return refused_by_log(refused)
    return check_live_round(directory) if mode == Mode.LIVE else None


def _overwrite(call: RoundCall, *, layer: FileLayer, clock: Clock) -> RoundAnswer:
    refusal = _refused_before_writing(Path(call.directory), call.mode)
    if refusal is not None:
        return RoundAnswer(refusal=refusal)
    return overwrite(call, layer=layer, clock=clock)


def _delete_reserved(call: DeleteReservedCall, *, layer: FileLayer, clock: Clock) -> DeleteReservedAnswer:
    refusal = _refused_before_writing(Path(call.directory), Mode.CLOSED)
    if refusal is not None:
        return DeleteReservedAnswer(refusal=refusal)
    return delete_reserved(call, layer=layer, clock=clock)

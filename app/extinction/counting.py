"""Counting the records of a JE environment that an extinction covers."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from app.jobs.engines.hands_call import ask_hands
from app.jobs.errors import JobFailed, JobWaiting
from app.jobs.models import WaitingOn
from app.jobs.running.context import JobContext
from app.stores.errors import StoreUrlRefused
from app.stores.models import Reach
from app.stores.rows import Store
from app.stores.targets import environment_directory
from spark.erase.calls.calls import RefusalCode
from spark.erase.calls.count_calls import CountAnswer, CountCall, Packed
from spark.erase.calls.request import LogExtinction
from spark.erase.hands.hands import Hands
from spark.formats.extinction import Extinction
from spark.formats.je.log import FILE_NAME
from spark.targets.files.log_place import log_folders

HandsTaker = Callable[[JobContext, Path], Hands]
"""Takes hands for a job that reads an environment."""
MOVED_AGAIN: Final = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class Counted:
    """What an extinction covers; `unknown`: databases that are not there; `noted`: those in the log.

    `reach`: the same as limits are judged by; `keys`: see CountAnswer.
    """

    records: int
    bytes: int
    reach: Reach
    unknown: tuple[str, ...] = ()
    noted: tuple[LogExtinction, ...] = ()
    keys: Packed = b""


def count_in_environment(
    context: JobContext,
    store: Store,
    extinction: Extinction,
    *,
    take_hands: HandsTaker,
    keys: bool = False,
) -> Counted:
    """Count the live records of the log that an extinction covers.

    Raises: JobSignal: the log cannot be read, or moves on too fast.
    """
    try:
        directory = environment_directory(store, context.settings)
    except StoreUrlRefused as error:
        raise JobFailed(error.code, error.detail) from error
    answer = _ask(context, CountCall(str(directory), extinction.to_json(), keys=keys), take_hands=take_hands)
    there = {name.encode() for name in answer.databases}
    unknown = tuple(name.decode() for name in sorted(extinction.databases - there))
    reach = reach_in_log(answer, directory)
    return Counted(answer.records, answer.bytes, reach, unknown, answer.log_extinctions, answer.keys)


def reach_in_log(answer: CountAnswer, directory: Path) -> Reach:
    """What an extinction covers in a log, as a share of its bytes."""
    return Reach(
        rows=answer.records,
        part=answer.bytes,
        whole=log_bytes(directory),
        shares="bytes of the log",
        bytes=answer.bytes,
    )


def log_bytes(directory: Path) -> int:
    """The octets of a log's files; 0 where it cannot be read, as reading it will say."""
    try:
        folders = log_folders(directory)
        found = [each for folder in folders for each in folder.iterdir() if FILE_NAME.fullmatch(each.name)]
        return sum(each.stat().st_size for each in found)
    except OSError:
        return 0


def _ask(context: JobContext, call: CountCall, *, take_hands: HandsTaker) -> CountAnswer:
    hands = take_hands(context, Path(call.directory))
    answer = ask_hands(context, hands, lambda taken: taken.count(call))
    refusal = answer.refusal
    if refusal is None:
        return answer
    if refusal.code is RefusalCode.LOG_MOVED:
        waiting = [WaitingOn(kind="LOG_MOVED", ref=refusal.file or "")]
        raise JobWaiting(waiting, not_before=context.clock.now() + MOVED_AGAIN)
    raise JobFailed(refusal.ref or refusal.code.value, refusal.detail)

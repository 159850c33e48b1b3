"""LIVE: erasing while a JE process has the environment open (facts je-live).

No lock of JE is taken and nothing is named, renamed or deleted, whether a JE process is there or not: JE asks
for its lock once when it opens an environment, and fails where it does not get it. Whether a process that
only reads is there, which would die of an erased entry, is told by a read lock on byte 1 of je.lck. A write
lock there is JE's cleaner at work, and says nothing.
"""

from dataclasses import replace
from pathlib import Path
from typing import Final

from spark.erase.calls.calls import LiveTerms, Refusal, RefusalCode
from spark.erase.calls.request import PlanRequest
from spark.erase.errors import RestoreRequired
from spark.erase.live.rules import decide_live, refuse_replicated, refuse_unknown_backup
from spark.erase.overwrite import environment_lock
from spark.erase.overwrite.file_layer import FileLayer
from spark.erase.overwrite.locking import refused_by_control
from spark.erase.overwrite.witness import check_witness, newest_witness
from spark.erase.plan.plan import Plan, make_plan
from spark.erase.reading.directory import Witness
from spark.erase.reading.live_reading import read_moving_log, vanished
from spark.erase.reading.properties import refuse_own_eraser
from spark.formats.je.log import RESTORE_MARKER_NAME
from spark.targets.files.control_errors import ControlError

SYSTEM: Final = FileLayer()


def plan_live(
    directory: Path, request: PlanRequest, terms: LiveTerms, *, layer: FileLayer = SYSTEM
) -> tuple[Plan, Witness]:
    """Read an environment that may be in use, and plan its erasure.

    Files that JE deletes meanwhile belong to what the plan is made of, and nothing is planned in them.
    Whoever calls asks `check_live_round` afterwards.

    Returns: the plan, and what must stand in the log whenever something of it is done.
    Raises: LogRefused: LogFileChanged, and LogFileVanished among them, pass by themselves: plan anew;
        Refused: LOG_MOVED: so does this.
    Source: facts je-live.
    """
    refuse_own_eraser(directory)
    with read_moving_log(directory) as log:
        refuse_replicated(log)
        refuse_unknown_backup(log, terms)
        decided = decide_live(log, request, terms)
        plan = make_plan(
            decided.facts, decided.checkpoint, decided.decision, request, nodes_wait=decided.nodes_wait
        )
        for file in log.open_files:
            file.look_again()
        witness = newest_witness(log, decided.checkpoint.lsn)
        check_witness(layer, directory, witness)
        return replace(plan, vanished=vanished(log)), witness


def check_live_round(directory: Path) -> Refusal | None:
    """Ask, after deciding and before each round, for what may have come since."""
    if (directory / RESTORE_MARKER_NAME).exists():
        detail = "a network restore began; the environment is not whole"
        code = RestoreRequired.code
        return Refusal(RefusalCode.LOG_REFUSED, f"{code}: {detail}", code, RESTORE_MARKER_NAME)
    try:
        if environment_lock.reader_present(directory):
            detail = "a process has the environment open for reading only"
            return Refusal(RefusalCode.READER_PRESENT, detail, file=environment_lock.NAME)
    except ControlError as error:
        return refused_by_control(error).refusal
    return None

"""LIVE: erasing while a JE process has the environment open (facts je-live).

No lock of JE is taken and nothing is named, renamed or deleted. Whether a JE process writes is told by byte 0
of je.lck; whether a read-only one is there, which would die of an erased entry, by a read lock on byte 1. A
write lock there is JE's cleaner at work, and says nothing.
"""

from pathlib import Path

from spark.erase import environment_lock
from spark.erase.calls import LiveTerms, Mode, Refusal, RefusalCode
from spark.erase.errors import RestoreRequired
from spark.erase.live_properties import refuse_own_eraser
from spark.erase.live_reading import read_moving_log
from spark.erase.live_rules import decide_live, refuse_replicated, refuse_unknown_backup
from spark.erase.locking import refused_by_control
from spark.erase.plan import Plan, make_plan
from spark.erase.request import PlanRequest
from spark.formats.je_log import RESTORE_MARKER_NAME
from spark.targets.control_errors import ControlError


def plan_live(directory: Path, request: PlanRequest, terms: LiveTerms) -> Plan:
    """Read an environment that is in use, and plan its erasure.

    Whoever calls asks `check_live_round` afterwards.

    Raises: LogRefused: LogFileChanged, and LogFileVanished among them, pass by themselves: plan anew.
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
    return plan


def choose_mode(directory: Path) -> Mode:
    """Tell how an environment of a LIVE store is handled now: as CLOSED where no JE process writes it.

    Raises: Refused: je.lck cannot be asked.
    """
    try:
        return Mode.LIVE if environment_lock.writer_present(directory) else Mode.CLOSED
    except ControlError as error:
        raise refused_by_control(error) from error


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

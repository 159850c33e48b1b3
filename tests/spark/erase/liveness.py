"""What the tests of liveness share: a plan as LSNs, and the judge's complaints about one."""

from pathlib import Path

from spark.erase.calls.request import PlanRequest
from spark.erase.plan.plan import Plan, plan_erasure
from spark.erase.reasons import Reason
from tests.oracles.je_liveness import Verdict
from tests.oracles.je_liveness_reader import Log
from tests.oracles.je_liveness_recovery import recover, with_erased


def chosen_by(plan: Plan) -> dict[int, str]:
    """LSN -> reason of what a plan erases."""
    return {
        (file.columns.number << 32) + row["offset"]: Reason(row["reason"]).name
        for file in plan.files
        for row in file.erase.to_pylist()
    }


def planned(directory: Path, request: PlanRequest | None = None) -> set[int]:
    return set(chosen_by(plan_erasure(directory, request or PlanRequest())))


def complaints(log: Log, verdict: Verdict, plan: set[int]) -> list[str]:
    """What the judge has against a plan: entries that must stay, or a recovery that is not what it was."""
    found = [
        f"{lsn:#x} must stay: {verdict.must_stay[lsn]}" for lsn in sorted(plan & verdict.must_stay.keys())
    ]
    before, after = recover(log), recover(with_erased(log, plan))
    found += after.fatal
    if before.records != after.records:
        found.append("other records")
    return found

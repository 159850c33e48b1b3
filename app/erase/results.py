"""The result of an erasure cycle's job."""

from pydantic import Field

from app.erase.models import EraserStats
from app.erase.rows import CycleState, FileState
from app.kit.model import Model


class CycleWarning(Model):
    """Files that are not as a cycle wants them."""

    code: str
    detail: str
    count: int


class ErasureResult(Model):
    """What a cycle leaves behind."""

    erasure_cycle_id: str
    state: CycleState
    files: dict[FileState, int] = Field(description="How many files stand in which state.")
    remaining: int
    remaining_by_cause: dict[str, list[str]] = Field(description="Names of files.")
    vetoed: int
    erased: dict[str, int] | None = Field(
        default=None,
        description="`entries` that are overwritten or went with their file; null: of a version before.",
    )
    stats: EraserStats
    warnings: list[CycleWarning]
    plan_id: str | None = Field(default=None, description="The plan that was executed.")
    planned: dict[str, int] | None = Field(default=None, description="Entries of that plan.")
    fewer_than_planned: int | None = None

"""The parameters and the result of a verification: an environment read again."""

from pydantic import Field

from app.kit.model import Model
from app.settings import EngineChoice


class ErasureVerifyParams(Model):
    """The cycle whose proof is held against the environment."""

    cycle: str
    engine: EngineChoice | None


class VerificationFault(Model):
    """Something that must not be."""

    code: str
    file: str | None
    offset: int | None
    detail: str


class ExplainedDifference(Model):
    """Something that differs, and rightly."""

    code: str
    file: str
    detail: str


class ErasureVerifyResult(Model):
    """What a verification has compared."""

    erasure_cycle_id: str
    verified: bool
    faults_count: int
    faults: list[VerificationFault] = Field(description="The first of them.")
    explained_count: int
    explained: list[ExplainedDifference] = Field(description="The first of them.")
    files_read: int
    files_as_proved: int
    erased_entries: int
    erased_bytes: int
    missing_count: int
    checkpoint: str = Field(description="LSN, as JE writes it.")
    first_active: str
    was_written_meanwhile: bool

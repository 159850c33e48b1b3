"""The result of a replication session's job."""

from pydantic import Field

from app.kit.model import Model
from app.replication.agreements.sessions.models import ProblemRead, SessionCounters
from app.replication.rows import SessionOutcome


class ReplicationSessionResult(Model):
    """What a session has sent, and how it ended."""

    replication_session_id: str
    outcome: SessionOutcome
    counters: dict[int, SessionCounters] = Field(description="By RID.")
    acknowledged: int = Field(description="Changes, over all RIDs.")
    windows: int
    rows_read: int
    batches: int
    bytes: int
    problem: ProblemRead | None
    warnings: list[ProblemRead] | None = Field(default=None, description="HALTED and UNPROVEN: the problem.")

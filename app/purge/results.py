"""The result of a purge of a SymmetricDS store. One that was stopped says what it had done by then."""

from datetime import datetime

from pydantic import Field

from app.archives.results import Counts, KeptArchive
from app.kit.model import Model

STOPPED = "Null: it was stopped before its end."


class MarkedNode(Model):
    """A node whose batches were given up."""

    node_id: str | None
    batches: int


class KeptStranded(Model):
    """Stranded rows of sym_data that RECAPTURE has left, and why."""

    code: str = Field(description="Why they stay: RECAPTURE_ROW_GONE and others, see the runbook.")
    count: int
    sample: list[int] = Field(description="Data ids of some of them.")


class MarkedStranded(Model):
    """Batches that were given up as OK: of nodes that are not enabled, or of channels that are gone.

    STRANDED with RECAPTURE: what was captured again, and what stays.
    """

    marked: int
    nodes: list[MarkedNode] | None = Field(default=None, description=STOPPED)
    recaptured: int | None = Field(
        default=None,
        description="Rows of sym_data that went, each captured again before; null: nobody said RECAPTURE.",
    )
    kept: list[KeptStranded] | None = Field(
        default=None,
        description="Stranded rows of sym_data that are still there, by reason; null: nobody said RECAPTURE.",
    )


class ResentBatchRead(Model):
    """A batch that is to be sent again, and whose data are gone."""

    batch_id: int
    node_id: str | None
    rows: int = Field(description="Of its events without data; 0: all its events are gone.")
    cause: str


class ResentAfterPurge(Model):
    """Batches that were asked for again after their data had gone; the first of them."""

    count: int
    items: list[ResentBatchRead]


class PurgeResult(Model):
    """What a purge of the tables of a SymmetricDS store has removed."""

    cutoff: datetime | None = Field(default=None, description=STOPPED)
    cutoff_local: str | None = Field(default=None, description="As the target's columns hold it.")
    retention_minutes: int | None = None
    retention_source: str | None = None
    channel_cutoffs: dict[str, datetime] | None = Field(
        default=None, description="Of channels with a retention of their own."
    )
    layout: str | None = None
    counts: Counts = Field(description="EXACT by the target's ledger, or AT_LEAST.")
    removed: dict[str, int] = Field(description="Rows by table.")
    plan_id: str | None = Field(default=None, description="The plan that was executed.")
    planned: dict[str, int] | None = Field(default=None, description="Rows of that plan, by table.")
    fewer_than_planned: int | None = None
    stranded: MarkedStranded | None = Field(
        default=None, description="OUTGOING, CHANNELS; STRANDED with RECAPTURE."
    )
    resent_after_purge: ResentAfterPurge | None = Field(default=None, description="OUTGOING only.")
    nodes: int | None = Field(default=None, description="INCOMING: nodes that had a range of batches.")
    compared: str | None = Field(default=None, description="DATA_GAP: what showed that a gap is over.")
    archive: KeptArchive | None
    units: int = Field(description="Transactions.")
    longest_hold_ms: int | None = Field(default=None, description="The longest transaction.")
    warnings: list[str] | None = Field(default=None, description=STOPPED)

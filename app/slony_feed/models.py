"""A feed as clients ask for it, the snapshot that its job keeps, and what it tells at its end."""

from datetime import datetime
from typing import Annotated, Any, Final

from pydantic import ConfigDict, Field, StringConstraints

from app.kit.model import Model
from app.kit.values import Text
from spark.formats.slony import NODE_MAX

JOB_FEED: Final = "SLONY_FEED"
SETS_MAX: Final = 100
TABLES_MAX: Final = 1_000
PREFIX_MAX: Final = 200
SYNCS_MAX: Final = 10_000_000
TABLE_PATTERN: Final = r"^[^\x00-\x1f]{1,63}\.[^\x00-\x1f]{1,63}$"
SetId = Annotated[int, Field(ge=0, le=NODE_MAX)]
TableName = Annotated[str, StringConstraints(pattern=TABLE_PATTERN)]


class SlonyFeedRequest(Model):
    """Carry what a node has changed into this replica, each SYNC exactly once."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"source": "node1"}]})

    source: str = Field(min_length=1, max_length=63, description="The SLONY store of the sets' origin.")
    sets: list[SetId] = Field(
        default=[], max_length=SETS_MAX, description="Only tables of these sets; empty: of all its sets."
    )
    tables: list[TableName] = Field(
        default=[],
        max_length=TABLES_MAX,
        description="Only these tables, as `schema.table`, and no sequence; empty: all.",
    )
    prefix: str = Field(
        default="",
        max_length=PREFIX_MAX,
        pattern=r"^[^\x00-\x1f]*$",
        description="What the key of each entry begins with.",
    )
    first_copy: bool = Field(
        default=False,
        description="Begin with a new first copy, whatever stands there: entries of the cluster's database"
        " that it does not have are deleted. false: a blank replica alone gets one.",
    )
    syncs_max: int | None = Field(
        default=None,
        ge=1,
        le=SYNCS_MAX,
        description="At most so many SYNCs; null: up to the newest one at the job's start.",
    )
    reason: Text | None = Field(default=None, max_length=500)


class SlonyFeedParams(Model):
    """The snapshot of a feed at its submission."""

    source: str = Field(description="The store of the node.")
    sets: list[int] = Field(description="Only tables of these; empty: of all its sets.")
    tables: list[str] = Field(description="Only these; empty: all.")
    prefix: str = Field(description="What the key of each entry begins with.")
    first_copy: bool = Field(description="It begins with a new first copy.")
    syncs_max: int | None = Field(description="At most so many SYNCs; null: up to the newest at its start.")
    target: dict[str, Any] = Field(description="The replica's target as it was.")
    node: str = Field(description="A digest of the node's URL and cluster as they were.")


class SlonyFeedResult(Model):
    """What a feed has brought, and where it stands."""

    origin: int = Field(description="The node whose changes they are.")
    seqno: int = Field(description="The last SYNC that was applied, or that of the first copy.")
    snapshot: str = Field(description="Of that SYNC.")
    at: datetime | None = Field(description="When that SYNC was made, by the node's clock.")
    newest_seqno: int = Field(description="The node's newest SYNC at the job's start.")
    copied: bool = Field(description="This job has made a first copy.")
    rows_copied: int = Field(description="Records of the first copy; 0 without one.")
    syncs: int = Field(description="Units that this job has applied.")
    records: int = Field(description="Records of these units.")
    scripts: int = Field(description="EXECUTE SCRIPTs among them; what they did to rows no record tells.")
    scripted_seqno: int | None = Field(
        description="The SYNC of the last EXECUTE SCRIPT since the first copy; null: there was none."
    )

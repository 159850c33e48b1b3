"""The purge ROWS over HTTP: its fields of a request, the snapshot that a job keeps, and its plan."""

from datetime import datetime, timedelta
from typing import Annotated, Any, Final, Literal

from pydantic import Field, StringConstraints, field_validator

from app.auth.rows import StoreName
from app.jobs.models import ThrottleSetting
from app.jobs.plans.reviewed_plan import MaxDrift
from app.kit.durations import Duration
from app.kit.model import Model
from app.kit.values import Instant
from app.settings import EngineChoice
from app.stores.models import LimitsRead
from spark.rows.expression import EXPRESSION_MAX_CHARS
from spark.rows.family import CHILDREN_MAX

ROWS: Final = "ROWS"
OLDER_THAN_MAX: Final = timedelta(days=36_525)
LAG_MAX: Final = timedelta(days=1)
REPLICAS_MAX: Final = 16
TableName = Annotated[str, StringConstraints(min_length=1, max_length=128)]


class RowsFields(Model):
    """What of a purge's request only the kind ROWS knows."""

    table: TableName | None = Field(default=None, description="ROWS: the table; its exact name.")
    time_column: TableName | None = Field(
        default=None, description="ROWS: the column that `older_than` and `cutoff` are compared with."
    )
    time_unit: Literal["S", "MS"] | None = Field(
        default=None,
        description="ROWS: a time column of whole numbers counts seconds or milliseconds since 1970.",
    )
    older_than: Duration | None = Field(
        default=None, description="ROWS: the age of rows that go, by the target's clock: `P90D`."
    )
    where: Annotated[str, StringConstraints(min_length=1, max_length=EXPRESSION_MAX_CHARS)] | None = Field(
        default=None,
        description="ROWS: which rows go, beside their age: `status = 'done' and not kept`. Comparisons, AND,"
        " OR, NOT, IN, BETWEEN, IS NULL; values are bound, never SQL.",
    )
    children: list[TableName] = Field(
        default_factory=list,
        max_length=CHILDREN_MAX,
        description="ROWS: tables whose rows go first, with the rows to which their foreign keys refer.",
    )
    max_rows_per_s: float | None = Field(
        default=None, gt=0, le=1e9, description="ROWS: short for `throttle: {rows_per_s}`."
    )
    max_replica_lag: Duration | None = Field(
        default=None,
        description="ROWS: no unit begins while a replica is further behind. PostgreSQL knows its replicas;"
        " those of MariaDB and MySQL are named in `replicas`.",
    )
    replicas: list[StoreName] = Field(
        default_factory=list,
        max_length=REPLICAS_MAX,
        description="ROWS: stores of kind SQL that are replicas of this one; their lag counts.",
    )

    @field_validator("older_than", "max_replica_lag")
    @classmethod
    def _in_range(cls, value: timedelta | None) -> timedelta | None:
        if value is not None and not timedelta(0) <= value <= OLDER_THAN_MAX:
            raise ValueError("from PT0S to P36525D")
        return value


class RowsRequest(RowsFields):
    """A request as this domain reads it; the route has checked the values."""

    cutoff: datetime | None = None
    max_rows_in_tx: int | None = None
    archive: dict[str, Any] | None = None
    engine: EngineChoice | None = None
    throttle: ThrottleSetting | None = None
    overlap: Literal["REFUSE", "QUEUE"] = "REFUSE"
    plan_id: str | None = None
    max_drift: MaxDrift | None = None


class RowsParams(Model):
    """The snapshot of a purge ROWS at its submission; every attempt uses it."""

    kind: Literal["ROWS"] = ROWS
    table: str
    time_column: str | None
    time_unit: Literal["S", "MS"] | None
    older_than: Duration | None
    cutoff: datetime | None = Field(description="Set when the client or a plan named it.")
    where: str | None
    children: list[str]
    rows_in_tx: int | None = Field(description="Null: Lethe's own size.")
    archive: bool
    archive_retention: str
    engine: EngineChoice | None
    throttle: ThrottleSetting | None
    max_replica_lag: Duration | None
    replicas: list[str]
    overlap: Literal["REFUSE", "QUEUE"]
    plan_id: str | None
    max_drift: int | float | None
    max_rows: int | None
    max_fraction: float | None
    target: dict[str, Any] = Field(description="The store's target as it was.")


class RowsTableRead(Model):
    """One table of a plan."""

    table: str
    rows: int
    rows_to_remove: int


class RowsWarningRead(Model):
    """Rows that stay although they are old enough, or something that the owner should know."""

    code: str
    table: str
    count: int
    sample: list[str] = Field(description="Keys of some of the rows.")
    detail: str


class RowsPlanRead(Model):
    """What a purge ROWS would do; nothing was written to the target."""

    plan_id: str
    store: str
    kind: Literal["ROWS"] = ROWS
    cutoff: Instant | None = Field(description="Null: rows of any age.")
    time_column: str | None
    time_unit: Literal["S", "MS"] | None
    where: str | None
    children: list[str]
    tables: list[RowsTableRead] = Field(description="In the order in which rows go.")
    rows: int
    rows_to_remove: int = Field(
        description="Where a table refers to itself at most so many: a row may be held by one that stays."
    )
    warnings: list[RowsWarningRead]
    limits: LimitsRead
    is_executable: bool = Field(description="False: more rows than a plan can name; purge without plan_id.")
    expires_at: datetime

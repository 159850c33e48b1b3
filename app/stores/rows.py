"""Stores as a table: registered targets."""

from datetime import datetime, timedelta
from typing import Any, Literal

from sqlalchemy import ColumnElement, String
from sqlmodel import Field, SQLModel, col

from app.db import JSON_TYPE, DurationSeconds, UtcDateTime
from app.kinds.rules import ExtinctionFilterMode as ExtinctionFilterMode
from app.kinds.rules import StoreMode as StoreMode
from app.kinds.table import StoreKind as StoreKind
from app.kit.values import Text
from app.stores.fields import (
    ClusterName,
    CsnText,
    DnText,
    EnvironmentPath,
    Grace,
    Identifier,
    Label,
    Prefix,
    ReplicaId,
    StoreUrl,
    TimeZone,
)
from spark.formats.csn import CSN_CHARS
from spark.formats.slony import CLUSTER_MAX_CHARS

NODE_GRACE = timedelta(minutes=10)
BACKUP_GRACE = timedelta(hours=24)


class StoreBase(SQLModel):
    """What a client chooses."""

    url: StoreUrl | None = Field(
        default=None,
        max_length=1000,
        description="Of a database; SQLAlchemy form, without a password: "
        "`postgresql+psycopg://user@host:5432/database`, "
        "`mysql+pymysql://user@host:3306/database` (MariaDB too), `sqlite:////absolute/path`. "
        "DS389: `ldaps://host:636`.",
    )
    schema_name: Identifier | None = Field(
        default=None,
        max_length=63,
        description="PostgreSQL; null: public. MariaDB, MySQL and SQLite have none.",
    )
    table_prefix: Prefix = Field(default="sym_", max_length=30)
    time_zone: TimeZone = Field(default="UTC", max_length=64, description="IANA zone of naive time columns.")
    labels: dict[Label, Text] = Field(default_factory=dict, sa_type=JSON_TYPE)
    runs_on: list[Label] = Field(
        default_factory=list, sa_type=JSON_TYPE, description="Labels that a runner must have to reach it."
    )
    parameters: dict[str, Any] = Field(default_factory=dict, sa_type=JSON_TYPE)
    path: EnvironmentPath | None = Field(
        default=None, max_length=1000, description="JE: the directory of the environment."
    )
    mode: StoreMode | None = Field(
        default=None,
        sa_type=String(10),
        description="JE: CLOSED, unless an admin chooses LIVE and declares `backups`.",
    )
    extinction_filter: ExtinctionFilterMode | None = Field(
        default=None, sa_type=String(20), description="JE: what the application's filter says."
    )
    backups: Literal["VIA_LETHE"] | None = Field(
        default=None,
        sa_type=String(20),
        description="JE: an admin confirms that every backup of the environment asks Lethe first.",
    )
    accept_medium: bool = Field(
        default=False,
        description="JE: erase on a file system that keeps copies (copy-on-write, compressed) all the same.",
    )
    delete_reserved_files: bool = Field(
        default=False, description="JE, CLOSED: delete files that JE has put aside, if nothing needs them."
    )
    erase_expired: bool = Field(
        default=False, description="JE: also erase expired records that no slot names."
    )
    node_grace: Grace = Field(
        default=NODE_GRACE,
        sa_type=DurationSeconds,
        description="JE, LIVE: old nodes go only under a checkpoint that is older than a later one by this.",
    )
    backup_grace: Grace = Field(
        default=BACKUP_GRACE,
        sa_type=DurationSeconds,
        description="JE, LIVE: for how long a backup that is not Lethe's is left alone.",
    )
    rid: ReplicaId | None = Field(
        default=None, description="REPLICA: its id among all that exchange changes; it never changes."
    )
    generation: CsnText | None = Field(
        default=None,
        max_length=CSN_CHARS,
        description="REPLICA: the generation that it begins with where it is empty; null: the CSN of its"
        " first change.",
    )
    cluster: ClusterName | None = Field(
        default=None,
        max_length=CLUSTER_MAX_CHARS,
        description="SLONY: the cluster's name; its catalog is the schema `_NAME`.",
    )
    bind_dn: DnText | None = Field(
        default=None, max_length=1000, description="DS389: who binds; it may read `cn=config`."
    )
    suffix: DnText | None = Field(
        default=None, max_length=1000, description="DS389: the replicated suffix, such as dc=example,dc=com."
    )


class Store(StoreBase, table=True):
    """A registered target."""

    __tablename__ = "stores"

    id: str = Field(primary_key=True, max_length=63)
    kind: StoreKind = Field(sa_type=String(20))
    password: str | None = Field(default=None, max_length=1010, description="A reference, never a secret.")
    limits: dict[str, Any] = Field(default_factory=dict, sa_type=JSON_TYPE)
    version: int = Field(default=1)
    is_suspended: bool = Field(default=False)
    suspended_until: datetime | None = Field(default=None, sa_type=UtcDateTime)
    suspended_reason: str | None = Field(default=None, max_length=500)
    target_identity: str | None = Field(default=None, max_length=200)
    target_parameters: dict[str, Any] = Field(
        default_factory=dict,
        sa_type=JSON_TYPE,
        description="The target's own values of parameters that Lethe honours, as it was last seen.",
    )
    target_limit: list[str] | None = Field(
        default=None,
        sa_type=JSON_TYPE,
        description="The stores that the token was limited to that chose the target; null: all.",
    )
    target_proof: str | None = Field(
        default=None, max_length=200, description="What the target said it was when that was decided on."
    )
    created_at: datetime = Field(sa_type=UtcDateTime)
    updated_at: datetime = Field(sa_type=UtcDateTime)


def is_of_known_kind() -> ColumnElement[bool]:
    """Whether we know the kind of a store: a newer version, which may work beside us, may have others."""
    return col(Store.kind).in_([str(kind) for kind in StoreKind])


def is_suspended(store: Store, *, now: datetime) -> bool:
    """Whether the store rests now."""
    return store.is_suspended and (store.suspended_until is None or store.suspended_until > now)

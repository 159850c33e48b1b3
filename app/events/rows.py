"""What the last check of a node of Slony-I saw of its cluster, as a table."""

from datetime import datetime
from typing import Any

from sqlalchemy import Column, ForeignKey, String
from sqlmodel import Field, SQLModel

from app.db import JSON_TYPE, UtcDateTime


class NodeLook(SQLModel, table=True):
    """The last check that could read the node; one that cannot leaves it as it is.

    Attributes:
        at: by our clock.
        target: the fields of the store that said which node it was.
        confirmations: items of ConfirmationRead.
        log_status: a LogStatusRead; None: the role may not read the log tables.
    """

    __tablename__ = "node_looks"

    store: str = Field(
        sa_column=Column(String(63), ForeignKey("stores.id", ondelete="CASCADE"), primary_key=True)
    )
    at: datetime = Field(sa_type=UtcDateTime)
    target: dict[str, Any] = Field(default_factory=dict, sa_type=JSON_TYPE)
    local_node: int
    confirmations: list[dict[str, Any]] = Field(default_factory=list, sa_type=JSON_TYPE)
    log_status: dict[str, Any] | None = Field(default=None, sa_type=JSON_TYPE, nullable=True)

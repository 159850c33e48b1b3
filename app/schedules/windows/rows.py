"""Windows as a table: when destructive jobs may work, at which stores, and how hard."""

from datetime import datetime

from sqlalchemy import String
from sqlmodel import Field, SQLModel

from app.db import JSON_TYPE, UtcDateTime
from app.schedules.windows.rules import WindowKind


class Window(SQLModel, table=True):
    """A window, for the stores that have all of its labels; none: for all stores."""

    __tablename__ = "windows"

    id: str = Field(primary_key=True, max_length=40)
    name: str | None = Field(default=None, max_length=100)
    kind: WindowKind = Field(sa_type=String(10))
    cron: str = Field(max_length=200)
    time_zone: str = Field(max_length=64)
    duration_s: int
    intensity: float
    labels: dict[str, str] = Field(default_factory=dict, sa_type=JSON_TYPE)
    created_by: str = Field(max_length=120)
    created_at: datetime = Field(sa_type=UtcDateTime)

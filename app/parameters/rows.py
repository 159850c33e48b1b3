"""Global values of the parameters as a table."""

from datetime import datetime
from typing import Any

from sqlmodel import Field as Column
from sqlmodel import SQLModel

from app.db import JSON_TYPE, UtcDateTime


class GlobalParameter(SQLModel, table=True):
    """A value that holds for every store that has none of its own; value null: unset again."""

    __tablename__ = "global_parameters"

    name: str = Column(primary_key=True, max_length=120)
    value: Any = Column(default=None, sa_type=JSON_TYPE, nullable=True)
    version: int = Column(default=1)
    updated_at: datetime = Column(sa_type=UtcDateTime)

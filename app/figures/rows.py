"""Figures as a table: one row per name, store and label, however many jobs have added to it."""

from datetime import datetime

from sqlmodel import Field, SQLModel

from app.db import UtcDateTime


class Figure(SQLModel, table=True):
    """A sum that only grows, or what was noted last.

    Attributes:
        store: empty: of no store.
        at: when it was changed last.
    """

    __tablename__ = "figures"

    name: str = Field(primary_key=True, max_length=40)
    store: str = Field(primary_key=True, max_length=63)
    label: str = Field(primary_key=True, max_length=200)
    value: float = Field(default=0.0)
    at: datetime = Field(sa_type=UtcDateTime)

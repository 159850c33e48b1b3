"""Figures as tables: sums by name, store and label, and what a store did in each piece of time."""

from datetime import datetime

from sqlalchemy import BigInteger, Index
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


class SeriesPoint(SQLModel, table=True):
    """What was counted or measured of a store in a piece of time; two lengths are kept beside each other.

    Attributes:
        step_s: the length.
        at: when it begins; a multiple of `step_s` since 1970.
        total, number: the sum of the values, and how many there were.
        most, last: the greatest of them, and the one that was written last.
    """

    __tablename__ = "series_points"
    __table_args__ = (Index("ix_series_points_at", "step_s", "at"),)

    store: str = Field(primary_key=True, max_length=63)
    name: str = Field(primary_key=True, max_length=40)
    step_s: int = Field(primary_key=True)
    at: datetime = Field(primary_key=True, sa_type=UtcDateTime)
    total: float = Field(default=0.0)
    number: int = Field(default=0, sa_type=BigInteger)
    most: float = Field(default=0.0)
    last: float = Field(default=0.0)

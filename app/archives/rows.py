"""Archives as a table: what was saved before it was removed."""

from datetime import datetime

from sqlalchemy import BigInteger
from sqlmodel import Field, SQLModel

from app.db import UtcDateTime


class ArchiveBase(SQLModel):
    """The archive of one job."""

    store: str = Field(max_length=63, index=True)
    directory: str = Field(max_length=1000)
    instance: str = Field(max_length=40, description="Whose disk it lies on, unless the root is shared.")
    resource: str = Field(max_length=200, description="The tables it was taken from.")
    created_at: datetime = Field(sa_type=UtcDateTime)
    files: int = Field(default=0)
    rows: int = Field(default=0, sa_type=BigInteger)
    bytes: int = Field(default=0, sa_type=BigInteger)
    counts: str = Field(default="EXACT", max_length=10, description="EXACT by the ledger, or AT_LEAST.")
    expires_at: datetime = Field(sa_type=UtcDateTime, index=True)


class Archive(ArchiveBase, table=True):
    """One row per job that archives."""

    __tablename__ = "archives"

    job_id: str = Field(primary_key=True, max_length=40)

"""The parameters and the result of a parent of many jobs."""

from typing import Any

from pydantic import Field

from app.kit.model import Model


class BatchRefusal(Model):
    """Why a store has no job."""

    code: str
    detail: str


class BatchParams(Model):
    """What each store is to do."""

    kind: str
    params: dict[str, Any] = Field(description="The body that the single request would have.")
    stores: list[str]
    refused: dict[str, BatchRefusal] = Field(
        default_factory=dict, description="Stores that have no job, and why."
    )


class ChildError(BatchRefusal):
    """Why a store's job failed, or why there is none."""

    title: str | None = None
    retryable: bool | None = None


class ChildRead(Model):
    """What became of one store."""

    job_id: str | None = Field(description="Null: it was refused.")
    state: str = Field(description="Of its job; REFUSED: it has none.")
    engine: str | None = None
    error: ChildError | None
    removed: dict[str, int] | None = Field(default=None, description="Rows by table.")


class BatchResult(Model):
    """What became of each store."""

    stores: dict[str, ChildRead]

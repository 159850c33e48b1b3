"""The request over many stores, as clients send it."""

from typing import Any

from pydantic import ConfigDict, Field, model_validator

from app.auth.rows import StoreName
from app.jobs.service import CHILDREN_MAX
from app.kit.model import Model
from app.kit.values import Text
from app.stores.fields import Label


class BatchRequest(Model):
    """The same job for many stores."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"kind": "PURGE", "params": {"kind": "OUTGOING"}, "labels": {"region": "eu"}}]
        },
    )

    kind: str = Field(description="PURGE, EVENT_CLEANUP, EVENT_SYNC, LOG_SWITCH or ERASURE.", max_length=40)
    params: dict[str, Any] = Field(description="The body that the single request would have.")
    stores: list[StoreName] | None = Field(default=None, min_length=1, max_length=CHILDREN_MAX)
    labels: dict[Label, Text] | None = Field(default=None, min_length=1, max_length=20)
    reason: Text | None = Field(default=None, max_length=500)

    @model_validator(mode="after")
    def _one_selection(self) -> "BatchRequest":
        if (self.stores is None) == (self.labels is None):
            raise ValueError("exactly one of stores and labels")
        return self

"""The snapshot of a plan of an extinction."""

from typing import Any, Literal

from pydantic import BaseModel, Field


class PlanParams(BaseModel):
    """The extinction as its record would be, and the store's target as it was."""

    plan: Literal["EXTINCTION"] = "EXTINCTION"
    extinction: str
    target: dict[str, Any] = Field(default_factory=dict)

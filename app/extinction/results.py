"""The parameters and the result of an extinction's job."""

from pydantic import Field

from app.kit.model import Model


class ExtinctionParams(Model):
    """The extinction whose records are removed, or at JE counted."""

    extinction_id: str
    plan_id: str | None = Field(default=None, description="The plan that is executed.")
    planned: dict[str, int] | None = Field(default=None, description="Records of that plan.")


class ExtinctionResult(Model):
    """What an extinction has reached."""

    extinction_id: str
    records: int
    bytes: int = Field(description="Of keys and values.")
    tombstones: int | None = Field(default=None, description="REPLICA only.")
    hint: str | None = Field(default=None, description="JE only: what is worth knowing of its size.")
    plan_id: str | None = Field(default=None, description="The plan that was executed.")
    planned: dict[str, int] | None = Field(default=None, description="Records of that plan.")
    fewer_than_planned: int | None = None

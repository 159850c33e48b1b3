"""The request of a verification, as clients send it."""

from pydantic import ConfigDict, Field

from app.kit.model import Model
from app.kit.values import Text
from app.settings import EngineChoice


class VerifyRequest(Model):
    """How to read an environment again."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"engine": "AUTO", "reason": "yearly audit"}]}
    )

    engine: EngineChoice | None = Field(default=None, description="Null: the service's default.")
    reason: Text | None = Field(default=None, max_length=500)

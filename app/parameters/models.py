"""Values set for the whole service, and parameters as clients see them."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field, StrictBool, StrictInt, StrictStr
from sqlmodel import Field as Column
from sqlmodel import SQLModel

from app.db import JSON_TYPE, UtcDateTime
from app.parameters.registry import ParameterScope, ParameterSpec, ParameterType, ParameterValue


class GlobalParameter(SQLModel, table=True):
    """A value that holds for every store that has none of its own; value null: unset again."""

    __tablename__ = "global_parameters"

    name: str = Column(primary_key=True, max_length=120)
    value: Any = Column(default=None, sa_type=JSON_TYPE, nullable=True)
    version: int = Column(default=1)
    updated_at: datetime = Column(sa_type=UtcDateTime)


class ParameterWrite(BaseModel):
    """A new value."""

    value: StrictBool | StrictInt | StrictStr = Field(description="A JSON value of the parameter's type.")

    model_config = {"extra": "forbid", "json_schema_extra": {"examples": [{"value": 1440}]}}


class ParameterRead(BaseModel):
    """A parameter, its value in effect and where that comes from."""

    name: str
    aliases: list[str]
    type: ParameterType
    unit: str | None
    minimum: int | str | None
    maximum: int | str | None
    default: ParameterValue
    value: ParameterValue
    source: str = Field(description="DEFAULT, GLOBAL, STORE; TARGET where the target's own table decides.")
    scopes: list[ParameterScope]
    kinds: list[str]
    in_use: bool = Field(description="Whether this version acts on it.")
    description: str


def read_parameter(spec: ParameterSpec, value: ParameterValue, source: str) -> ParameterRead:
    """Show a parameter."""
    return ParameterRead(
        name=spec.name,
        aliases=list(spec.aliases),
        type=spec.type,
        unit=spec.unit,
        minimum=spec.minimum,
        maximum=spec.maximum,
        default=spec.default,
        value=value,
        source=source,
        scopes=list(spec.scopes),
        kinds=list(spec.kinds),
        in_use=spec.in_use,
        description=spec.description,
    )

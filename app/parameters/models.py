"""Values of parameters as clients see them."""

from pydantic import ConfigDict, Field, StrictBool, StrictInt, StrictStr

from app.kinds.parameter import ParameterScope, ParameterSpec, ParameterType, ParameterValue
from app.kit.model import Model


class ParameterWrite(Model):
    """A new value."""

    value: StrictBool | StrictInt | StrictStr = Field(description="A JSON value of the parameter's type.")

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"value": 1440}]})


class ParameterRead(Model):
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

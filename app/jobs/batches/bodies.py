"""The body of a verb as it comes with a batch or a schedule."""

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from app.errors import InvalidRequest, faults_of

Body = TypeVar("Body", bound=BaseModel)


def read_body(form: type[Body], params: Mapping[str, Any]) -> Body:
    """A body, as the POST of its verb reads it.

    Raises: InvalidRequest: at `/params`.
    """
    try:
        return form.model_validate(params)
    except ValidationError as error:
        errors = faults_of({**item, "loc": ("body", "params", *item["loc"])} for item in error.errors())
        raise InvalidRequest(f"{len(errors)} field(s) are not valid", errors=errors) from error

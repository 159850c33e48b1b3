"""Page 7: the operations of the API, each with its parameters, bodies, answers and scopes."""

from functools import lru_cache
from typing import Annotated, Any

from fastapi import FastAPI, Path, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from app.console.reference.document import by_tag, fields_of, operations_of, type_of
from app.console.rendering import render
from app.console.sessions import SignedInDep
from app.description import described
from app.errors import NotFound
from app.kit.http.routing import new_router

Name = Annotated[str, Path(max_length=200)]
router = new_router(include_in_schema=False)


async def _document(app: FastAPI) -> Any:
    """The description, which is read once in a process."""
    return await run_in_threadpool(_described, app)


@lru_cache(maxsize=1)
def _described(app: FastAPI) -> dict[str, Any]:
    return described(app)


@router.get("/console/api")
async def get_operations(request: Request, signed_in: SignedInDep) -> Response:
    """All operations by tag."""
    document = await _document(request.app)
    values = {"tags": by_tag(document), "info": document["info"]}
    return render(request, "api.html", signed_in, **values)


@router.get("/console/api/operations/{name}")
async def get_operation(request: Request, signed_in: SignedInDep, name: Name) -> Response:
    """One operation."""
    document = await _document(request.app)
    for operation in operations_of(document):
        if operation.id == name:
            values = {"operation": operation, "schemas": document["components"]["schemas"]}
            return render(
                request, "api_operation.html", signed_in, type_of=type_of, fields_of=fields_of, **values
            )
    raise NotFound("there is no such operation")


@router.get("/console/api/schemas/{name}")
async def get_schema(request: Request, signed_in: SignedInDep, name: Name) -> Response:
    """One schema: its fields, or what it is one of."""
    schema = (await _document(request.app))["components"]["schemas"].get(name)
    if schema is None:
        raise NotFound("there is no such schema")
    values = {"name": name, "schema": schema, "type_of": type_of, "fields_of": fields_of}
    return render(request, "api_schema.html", signed_in, **values)

"""Routers whose operations are analysed when they are first asked for.

FastAPI reads signatures, dependencies and models of an operation as its decorator runs, and builds what
checks them; it does so once more for each application that includes the router. Of two hundred operations
that is a third of a start, and most processes are asked for a few.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Final

from fastapi import APIRouter, Depends, FastAPI
from fastapi.routing import APIRoute
from starlette.routing import compile_path, get_name

from app.kit.http.unread import refuse_unread

OF_PATH: Final = frozenset({"path_regex", "path_format", "param_convertors"})
OF_OPERATION: Final = frozenset({*APIRoute.__annotations__, "app"})


class LateRoute(APIRoute):
    """An operation that is analysed when something of it is asked for that its decorator does not know.

    Rules:
    - what an analysis sets is the same each time: two threads may do it at once.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **given: Any) -> None:
        self.path, self.endpoint = path, endpoint
        self.name = given.get("name") or get_name(endpoint)
        self.methods = {method.upper() for method in given.get("methods") or ("GET",)}
        self._given = given

    def __getattr__(self, name: str) -> Any:
        """What is not set yet: of the path alone, or of the whole operation."""
        if name in OF_PATH:
            self.path_regex, self.path_format, self.param_convertors = compile_path(self.path)
        elif name in OF_OPERATION:
            super().__init__(self.path, self.endpoint, **self._given)
        return object.__getattribute__(self, name)


def new_router(
    *,
    tags: Sequence[str | Enum] = (),
    include_in_schema: bool = True,
    route_class: type[LateRoute] = LateRoute,
) -> APIRouter:
    """A router with what is asked of every request; `add_routes` puts it into an application."""
    return APIRouter(
        tags=list(tags),
        include_in_schema=include_in_schema,
        route_class=route_class,
        dependencies=[Depends(refuse_unread)],
    )


def add_routes(app: FastAPI, router: APIRouter) -> None:
    """Add its operations as they are: nothing of them depends on the application."""
    app.router.routes.extend(router.routes)

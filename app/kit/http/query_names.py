"""The names that a query may have: the one mechanism of all operations.

A name that nobody reads is refused: `?stat=RUNNING` must not list every job, nor a typo in `validate_only`
purge.
"""

from typing import Final

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from app.errors import InvalidRequest

NAME_MAX_CHARS: Final = 100
NAMED_MAX: Final = 20


def query_names(dependant: Dependant) -> frozenset[str]:
    """The query parameters of a route and of all that it depends on."""
    own = {parameter.alias for parameter in dependant.query_params}
    return frozenset(own.union(*(query_names(child) for child in dependant.dependencies)))


def refuse_unknown_query(request: Request) -> None:
    """Let a request pass whose query has no name that its operation does not read.

    Raises: InvalidRequest: with the names that are not known, and those that are.
    """
    route = request.scope.get("route")
    if not request.scope.get("query_string") or not isinstance(route, APIRoute):
        return
    allowed = query_names(route.dependant)
    unknown = sorted(set(request.query_params) - allowed)
    if unknown:
        wrong = [
            {"pointer": f"query:{name[:NAME_MAX_CHARS]}", "detail": "there is no such parameter"}
            for name in unknown[:NAMED_MAX]
        ]
        can = f"this takes {', '.join(sorted(allowed))}" if allowed else "this takes none"
        raise InvalidRequest(
            f"a query parameter is not known; {can}", errors=wrong, extra={"allowed": sorted(allowed)}
        )

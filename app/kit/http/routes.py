"""Which routes a path can have, by its first two parts: a request is not matched with all the others.

Rules:
- a group has, in the application's order, every route that could match one of its paths, by whatever method;
- where a group finds nothing the whole application is asked: what is not found is answered there.
"""

from collections.abc import Iterable
from typing import Final

from fastapi import APIRouter
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

PARTS: Final = 2
Key = tuple[str, ...]


def key_of(path: str) -> Key:
    """The first parts of a path: `/v1/jobs/job_1:pause` is of `v1`, `jobs`."""
    return tuple(path.split("/", PARTS + 1)[1 : PARTS + 1])


def keys_of(route: BaseRoute) -> set[Key] | None:
    """Of the paths that a route can match; None: of any."""
    path = getattr(route, "path", None)
    key = key_of(path) if isinstance(path, str) and isinstance(route, Route) else None
    return None if key is None or any("{" in part for part in key) else {key}


class RouteGroups:
    """Stands before a router whose paths are matched one after the other.

    Args:
        router: of the application; routes that are added later are seen.
    """

    def __init__(self, router: APIRouter) -> None:
        assert not router.redirect_slashes, "where a path leads to is found by all routes"
        self._router = router
        self._all: ASGIApp = router.middleware_stack
        self._groups: dict[Key, APIRouter] = {}
        self._routes = -1

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope.get("root_path"):
            await self._all(scope, receive, send)
            return
        if self._routes != len(self._router.routes):
            self._group()
        group = self._groups.get(key_of(scope["path"]))
        if group is None:
            await self._all(scope, receive, send)
            return
        scope.setdefault("router", self._router)
        await group.app(scope, receive, send)

    def _group(self) -> None:
        routes = list(self._router.routes)
        keys = [keys_of(route) for route in routes]
        every = set[Key]().union(*(found for found in keys if found is not None))
        self._groups = {
            key: self._of(
                route for route, found in zip(routes, keys, strict=True) if found is None or key in found
            )
            for key in every
        }
        self._routes = len(routes)

    def _of(self, routes: Iterable[BaseRoute]) -> APIRouter:
        return APIRouter(routes=list(routes), redirect_slashes=False, default=self._all)

"""What each operation demands of a token, as the OpenAPI document tells it."""

from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute, iter_route_contexts

from app.auth.access import Requirement


def requirements_of(app: FastAPI) -> dict[str, Requirement]:
    """What each operation demands of a token, by the very object that demands it."""
    found = {}
    for context in iter_route_contexts(app.routes):
        route = context.original_route
        if isinstance(route, APIRoute):
            demanded = list(_demanded(route.dependant))
            assert len(set(demanded)) <= 1, f"{route.operation_id} demands rights in two ways"
            if demanded:
                found[str(route.operation_id)] = demanded[0]
    return found


def _demanded(dependant: Dependant) -> Iterator[Requirement]:
    for child in dependant.dependencies:
        if isinstance(child.call, Requirement):
            yield child.call
        yield from _demanded(child)


def describe_rights(operation: dict[str, Any], requirement: Requirement) -> None:
    """The scopes as the security requirement, as extensions for programs, and as a sentence for readers."""
    names = [str(scope) for scope in requirement.any_of]
    [scheme] = operation["security"][0]
    operation["security"] = [{scheme: [name]} for name in names] or [{scheme: []}]
    operation["x-required-scopes"] = names
    operation["x-conditional-scopes"] = [
        {"scope": str(condition.scope), "when": condition.when} for condition in requirement.conditions
    ]
    operation["x-unlimited-token"] = requirement.is_unlimited
    lines = [
        f"Needs the scope {' or '.join(f'`{name}`' for name in names)}." if names else "Any token will do."
    ]
    lines += [f"Needs `{each.scope}` too when {each.when}." for each in requirement.conditions]
    if requirement.is_unlimited:
        lines.append("A token that is limited to stores will not do.")
    operation["description"] = "\n\n".join([operation.get("description", ""), " ".join(lines)]).strip()

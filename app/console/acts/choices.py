"""Which acts a store of a kind can have, and by which operation of the API: the table of verbs tells.

Rules:
- an act is a row of the table, or one of its `acts`; a new verb is a new act here without a word;
- the operation is the POST below a store whose body is the verb's request.
"""

from dataclasses import dataclass
from typing import Any, Final

from fastapi import FastAPI
from fastapi.routing import APIRoute, iter_route_contexts

from app.errors import NotFound
from app.stores.models import StoreKind
from app.verbs.table import VERBS
from app.verbs.verb import Verb

PREFIX: Final = "/v1/stores/{store_id}/"


@dataclass(frozen=True, slots=True)
class StoreAct:
    """Something that can be done at a store.

    Args:
        act: the value of `kind` in the request; None: the request has none.
    """

    verb: Verb
    act: str | None

    @property
    def key(self) -> str:
        """For addresses: `purge-outgoing`."""
        parts = [self.verb.kind, *([] if self.act is None else [self.act])]
        return "-".join(parts).replace("_", "-").lower()

    @property
    def name(self) -> str:
        """For people: `purge outgoing`."""
        return self.key.replace("-", " ")

    @property
    def fixed(self) -> dict[str, Any]:
        """What of the request the choice of the act has settled."""
        return {} if self.act is None else {"kind": self.act}


def acts_of(kind: str) -> list[StoreAct]:
    """All acts of a kind of store."""
    verbs = [verb for verb in VERBS if StoreKind(kind) in verb.stores]
    named = [StoreAct(verb, act) for verb in verbs for act in sorted(verb.acts)]
    return named + [StoreAct(verb, None) for verb in verbs if not verb.acts]


def find_act(kind: str, key: str) -> StoreAct:
    """The act of a key.

    Raises: NotFound.
    """
    for act in acts_of(kind):
        if act.key == key:
            return act
    raise NotFound(f"a store of kind {kind} has no act {key}")


def collection_of(app: FastAPI, act: StoreAct) -> str:
    """The last part of the operation's path: `purges`."""
    for context in iter_route_contexts(app.routes):
        route = context.original_route
        if isinstance(route, APIRoute) and "POST" in (route.methods or ()) and route.path.startswith(PREFIX):
            bodies = [param.field_info.annotation for param in route.dependant.body_params]
            last = route.path.removeprefix(PREFIX)
            if bodies == [act.verb.request] and "{" not in last:
                return last
    raise AssertionError(f"no operation below a store takes {act.verb.request.__name__}")

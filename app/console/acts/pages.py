"""The form of an act, and the act itself where nothing plans it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

from fastapi import Depends, Query, Request
from starlette.responses import Response

from app.auth.rows import StoreName
from app.console.acting import Act, ActDep, show_again
from app.console.acts.choices import StoreAct, acts_of, collection_of, find_act
from app.console.acts.fields import Field, body_of, fields_of, given_of
from app.console.acts.given import Given, read_given, text_of
from app.console.calls import Api
from app.console.rendering import render
from app.console.sessions import ApiDep, SignedInDep
from app.errors import ServiceError, Unprocessable
from app.kit.http.routing import new_router
from app.kit.values import Text

FORM: Final = "/console/stores/{store}/acts/{key}"
AGREEMENT: Final = "agreement_id"
router = new_router(include_in_schema=False)


@router.get("/console/acts")
async def get_choices(
    request: Request,
    signed_in: SignedInDep,
    api: ApiDep,
    page_token: Annotated[Text, Query(max_length=2_000)] = "",
) -> Response:
    """All stores, each with its acts."""
    found = await api.get("stores", page_size=100, page_token=page_token or None)
    stores = [(store, acts_of(store["kind"])) for store in found["items"]]
    return render(request, "acts.html", signed_in, stores=stores, next_token=found["next_page_token"])


@router.get("/console/stores/{store}/acts")
async def get_choices_of_one(
    request: Request, signed_in: SignedInDep, api: ApiDep, store: StoreName
) -> Response:
    """One store, and its acts."""
    found = await api.get("stores", store)
    return render(request, "acts.html", signed_in, stores=[(found, acts_of(found["kind"]))], next_token="")


@dataclass(frozen=True, slots=True)
class Place:
    """Where an act is to be done."""

    request: Request
    store: Mapping[str, Any]
    act: StoreAct
    fields: list[Field]

    @property
    def url(self) -> str:
        """Of its form."""
        return FORM.format(store=self.store["id"], key=self.act.key)

    @property
    def path(self) -> tuple[str, ...]:
        """Of the operation of the API."""
        return "stores", self.store["id"], collection_of(self.request.app, self.act)


async def place_of(request: Request, api: ApiDep, store: StoreName, key: str) -> Place:
    """The act of an address.

    Raises: Refused, NotFound.
    """
    found = await api.get("stores", store)
    act = find_act(found["kind"], key)
    fields = fields_of(act.verb.request, act.act)
    return Place(request, found, act, fields)


PlaceDep = Annotated[Place, Depends(place_of)]


@router.get(FORM)
async def get_form(
    request: Request, signed_in: SignedInDep, api: ApiDep, place: PlaceDep, given: Given = ""
) -> Response:
    """The form, filled with `given` where a plan is made anew."""
    filled = given_of(place.fields, read_given(given))
    return render(request, "act.html", signed_in, **await form_values(api, place, filled))


async def form_values(
    api: Api, place: Place, filled: Mapping[str, str], problem: ServiceError | None = None
) -> dict[str, Any]:
    """What the template of the form shows."""
    options = {}
    if any(field.name == AGREEMENT for field in place.fields):
        found = await api.find("stores", place.store["id"], "agreements", page_size=100)
        options[AGREEMENT] = [each["id"] for each in (found or {"items": []})["items"]]
    return {"place": place, "filled": filled, "options": options, "problem": problem}


@router.post(FORM + ":plan")
async def post_plan(request: Request, signed_in: SignedInDep, place: PlaceDep, act: ActDep) -> Response:
    """Ask for the plan, and lead to it; what is wrong with the request stands above the form."""
    act.require(place.act.verb.scope)
    try:
        body = _body(place, act)
        given = text_of(body)
        found = await act.send("POST", *place.path, body=body, query={"validate_only": "true"})
    except ServiceError as error:
        return await _again(request, signed_in, place, act, error)
    return show_again(f"{place.url}/plans/{found.get('plan_id') or found['id']}?given={given}")


@router.post(FORM + ":run")
async def post_run(request: Request, signed_in: SignedInDep, place: PlaceDep, act: ActDep) -> Response:
    """Do at once what has no plan."""
    act.require(place.act.verb.scope)
    try:
        if place.act.verb.plan is not None:
            raise Unprocessable("this act is planned first", code="CONSOLE_PLAN_FIRST")
        check_named(place.store["id"], act)
        body = _body(place, act) | {"reason": act.reason}
        found = await act.send("POST", *place.path, body=body)
    except ServiceError as error:
        return await _again(request, signed_in, place, act, error)
    return show_again(job_url(found))


def _body(place: Place, act: Act) -> dict[str, Any]:
    """What the form asks for; a page that plans again says it whole."""
    told = act.fields.get("given")
    return place.act.fixed | (body_of(place.fields, act.fields) if told is None else read_given(told))


async def _again(
    request: Request, signed_in: SignedInDep, place: Place, act: Act, error: ServiceError
) -> Response:
    told = act.fields.get("given")
    filled = act.fields if told is None else given_of(place.fields, read_given(told))
    values = await form_values(act.api, place, filled, error)
    return render(request, "act.html", signed_in, **values)


def check_named(store: str, act: Act) -> None:
    """Return when the name of the store was typed.

    Raises: Unprocessable: CONSOLE_NAME_DIFFERS.
    """
    if act.fields.get("confirm", "").strip() != store:
        raise Unprocessable(
            "type the store's name as it is shown, then run",
            code="CONSOLE_NAME_DIFFERS",
            errors=[{"pointer": "/confirm", "detail": "this is not the store's name"}],
        )


def job_url(found: Mapping[str, Any]) -> str:
    """The page of the job that an operation has made."""
    return f"/console/jobs/{found.get('job_id') or found['id']}"

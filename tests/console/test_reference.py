"""Page 7 tells all that the document tells: each operation and each schema, in this process."""

from __future__ import annotations

from typing import Any

import pytest
from markupsafe import escape

from app.console.reference.document import by_tag, fields_of, operations_of, type_of
from app.console.rendering import environment
from app.db import Database
from app.description import describe
from app.main import create_app
from app.settings import Settings

OUTSIDE = {"request_path": "/", "request_url": "/", "signed_in": None, "rights": None, "is_read_only": False}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return describe(create_app(Settings(), Database("sqlite://")))


def shown(template: str, **values: Any) -> str:
    given = OUTSIDE | {"type_of": type_of, "fields_of": fields_of} | values
    return environment().get_template(template).render(given)


def test_list_has_every_operation(document: dict[str, Any]) -> None:
    page = shown("api.html", tags=by_tag(document), info=document["info"])
    operations = list(operations_of(document))
    assert len(operations) > 100
    assert [each.id for each in operations if f'/console/api/operations/{each.id}"' not in page] == []


def test_every_operation_shows_its_parameters_scopes_and_answers(document: dict[str, Any]) -> None:
    assert sum(bool(operation.scopes) for operation in operations_of(document)) > 100
    for operation in operations_of(document):
        page = shown("api_operation.html", operation=operation, schemas=document["components"]["schemas"])
        parameters = [each["name"] for each in operation.told.get("parameters", ())]
        wanted = [operation.path, *parameters, *operation.scopes, *operation.told["responses"]]
        assert [each for each in wanted if str(escape(each)) not in page] == [], operation.id
        for _, body in operation.bodies:
            for part in type_of(body["schema"]):
                assert str(escape(part.text)) in page, operation.id


def test_every_schema_shows_its_fields(document: dict[str, Any]) -> None:
    for name, schema in document["components"]["schemas"].items():
        page = shown("api_schema.html", name=name, schema=schema)
        assert [field for field, *_ in fields_of(schema) if str(escape(field)) not in page] == [], name

"""The schema of a job: of each kind its own parameters and its own result, told apart by `kind`."""

from collections.abc import Sequence
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from app.verbs.table import CARRIERS, VERBS

REFERENCE: Final = "#/components/schemas/"
JOB: Final = "JobRead"
FIELDS: Final = "JobFields"
TYPED: Final = ("kind", "params", "result")
OLDER: Final = "What an earlier version has written is shown as it is, and may lack fields or have others."

Models = Sequence[type[BaseModel]]


def models_of_kinds() -> dict[str, tuple[Models, Models]]:
    """Kind of job to the models of its parameters and of its result."""
    found: dict[str, tuple[Models, Models]] = {}
    for verb in VERBS:
        params, results = found.get(verb.kind, ((), ()))
        found[verb.kind] = ((*params, verb.params), (*results, verb.result))
    return found | {kind: (carrier.params, carrier.result) for kind, carrier in CARRIERS.items()}


def name_of(kind: str) -> str:
    """The name of a kind's schema: `EventCleanupJob`."""
    return "".join(word.capitalize() for word in kind.split("_")) + "Job"


def describe_jobs(schemas: dict[str, Any]) -> None:
    """Make the schema of a job a union of the kinds, told apart by `kind`.

    Args:
        schemas: of the document, changed here.
    """
    kinds = models_of_kinds()
    models = {model for both in kinds.values() for models in both for model in models}
    ordered = sorted(models, key=lambda model: model.__name__)
    made, defined = models_json_schema(
        [(model, "serialization") for model in ordered], ref_template=REFERENCE + "{model}"
    )
    references = {model: reference for (model, _), reference in made.items()}
    for name, schema in defined.get("$defs", {}).items():
        schemas.setdefault(name, schema)
    fields = schemas[JOB]
    for name in TYPED:
        del fields["properties"][name]
    fields["required"] = [name for name in fields["required"] if name not in TYPED]
    schemas[FIELDS] = fields | {"title": FIELDS, "description": "What jobs of all kinds have."}
    for kind, (params, results) in kinds.items():
        schemas[name_of(kind)] = _job(
            kind, [references[each] for each in params], [references[each] for each in results]
        )
    schemas[JOB] = {
        "title": JOB,
        "description": f"A job; `kind` tells what `params` and `result` are. {OLDER}",
        "oneOf": [{"$ref": REFERENCE + name_of(kind)} for kind in kinds],
        "discriminator": {
            "propertyName": "kind",
            "mapping": {kind: REFERENCE + name_of(kind) for kind in kinds},
        },
    }


def _job(kind: str, params: list[Any], results: list[Any]) -> dict[str, Any]:
    own = {
        "kind": {"const": kind, "type": "string", "title": "Kind"},
        "params": _one_of(params) | {"description": "What was asked for, as it was submitted."},
        "result": {
            "anyOf": [*results, {"type": "null"}],
            "description": "Null: it has nothing to tell yet, or failed before it did anything.",
        },
    }
    return {
        "title": name_of(kind),
        "description": f"A job of kind {kind}.",
        "allOf": [
            {"$ref": REFERENCE + FIELDS},
            {"type": "object", "properties": own, "required": ["kind", "params", "result"]},
        ],
    }


def _one_of(references: list[Any]) -> dict[str, Any]:
    return {"anyOf": references} if len(references) > 1 else {"allOf": references}

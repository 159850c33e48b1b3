"""Gives every field and parameter of an OpenAPI document without a description the sentence of its name.

A field's own description goes before. A name that means another thing in one schema has a description there.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from app.runbook.glossary import fields_a_to_m, fields_n_to_z, parameters
from app.runbook.registry import RUNBOOK

FIELDS: Final[Mapping[str, str]] = MappingProxyType(fields_a_to_m.SENTENCES | fields_n_to_z.SENTENCES)
PARAMETERS: Final[Mapping[str, str]] = MappingProxyType(parameters.SENTENCES)
METHODS: Final = ("get", "put", "post", "patch", "delete")
PARTS: Final = ("allOf", "anyOf", "oneOf")


def properties_of(name: str, schema: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(path, name, property) of every property in a schema, those of its parts and of what it holds too."""
    for field, each in schema.get("properties", {}).items():
        yield f"{name}.{field}", field, each
        yield from properties_of(f"{name}.{field}", each)
        if isinstance(each.get("items"), Mapping):
            yield from properties_of(f"{name}.{field}", each["items"])
    for part in PARTS:
        for each in schema.get(part, ()):
            yield from properties_of(name, each)


def operations_of(document: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """("POST /v1/...", operation) of every operation."""
    for path, item in document["paths"].items():
        for method in METHODS:
            if method in item:
                yield f"{method.upper()} {path}", item[method]


def describe_names(document: dict[str, Any]) -> None:
    """Add what is missing; what has no sentence stays without."""
    for name, schema in document["components"]["schemas"].items():
        for _, field, each in properties_of(name, schema):
            if not each.get("description") and field in FIELDS:
                each["description"] = FIELDS[field]
    for _, operation in operations_of(document):
        for each in operation.get("parameters", ()):
            if not each.get("description") and each["name"] in PARAMETERS:
                each["description"] = PARAMETERS[each["name"]]


def describe_enums(part: Any) -> None:
    """Say what each word of an enum means, where all of them have entries in the runbook.

    Choices and kinds have none: their field says what each does.
    """
    if isinstance(part, dict):
        words = part.get("enum", ())
        if len(words) > 1 and all(word in RUNBOOK for word in words):
            part["x-enum-descriptions"] = [RUNBOOK[word].meaning for word in words]
        for each in part.values():
            describe_enums(each)
    elif isinstance(part, list):
        for each in part:
            describe_enums(each)

"""The OpenAPI document as pages need it: operations by tag, fields of a schema, types as words."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

METHODS: Final = ("get", "post", "put", "patch", "delete")
UNTAGGED: Final = "other"
Schema = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of the document."""

    method: str
    path: str
    told: Schema

    @property
    def id(self) -> str:
        """Its operationId."""
        return str(self.told["operationId"])

    @property
    def tag(self) -> str:
        """Where it is listed."""
        return str(next(iter(self.told.get("tags", ())), UNTAGGED))

    @property
    def scopes(self) -> list[str]:
        """Of these one is needed; empty: any token will do, or none."""
        return list(self.told.get("x-required-scopes", ()))

    @property
    def bodies(self) -> list[tuple[str, Schema]]:
        """Content type and what is told of it."""
        return list(self.told.get("requestBody", {}).get("content", {}).items())

    @property
    def answers(self) -> list[tuple[str, Schema, list[tuple[str, Schema]]]]:
        """Status, what is told of it, its content by type."""
        responses = self.told.get("responses", {})
        return [(status, told, list(told.get("content", {}).items())) for status, told in responses.items()]


def operations_of(document: Schema) -> Iterator[Operation]:
    """All operations, in the document's order."""
    for path, methods in document["paths"].items():
        for method in METHODS:
            if method in methods:
                yield Operation(method.upper(), path, methods[method])


def by_tag(document: Schema) -> dict[str, list[Operation]]:
    """All operations by their tag."""
    found: dict[str, list[Operation]] = {}
    for operation in operations_of(document):
        found.setdefault(operation.tag, []).append(operation)
    return dict(sorted(found.items()))


@dataclass(frozen=True, slots=True)
class Part:
    """A type in words, and the schema that it names, if it does."""

    text: str
    schema: str = ""


def type_of(schema: Schema) -> list[Part]:
    """A type as words and names of schemas."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return [Part(name, name)]
    for key, word in (("anyOf", " or "), ("oneOf", " or "), ("allOf", " and ")):
        if key in schema:
            return _joined([type_of(each) for each in schema[key]], word)
    if "enum" in schema:
        return [Part(" or ".join(str(each) for each in schema["enum"]))]
    if "const" in schema:
        return [Part(str(schema["const"]))]
    if schema.get("type") == "array":
        return [Part("list of "), *type_of(schema.get("items", {}))]
    text = str(schema.get("type", "anything"))
    bounds = _bounds(schema)
    return [Part(f"{text} ({bounds})" if bounds else text)]


def _joined(types: list[list[Part]], word: str) -> list[Part]:
    found: list[Part] = []
    for each in types:
        found += ([Part(word)] if found else []) + each
    return found


BOUNDS: Final = {
    "format": "{}",
    "minimum": "at least {}",
    "exclusiveMinimum": "more than {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "less than {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {}",
    "maxItems": "at most {}",
    "pattern": "like {}",
}


def _bounds(schema: Schema) -> str:
    return ", ".join(text.format(schema[name]) for name, text in BOUNDS.items() if name in schema)


def fields_of(schema: Schema) -> list[tuple[str, Schema, bool]]:
    """The fields of an object: name, schema, whether it is needed."""
    needed = set(schema.get("required", ()))
    return [(name, each, name in needed) for name, each in schema.get("properties", {}).items()]

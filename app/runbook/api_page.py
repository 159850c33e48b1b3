"""`python -m app.runbook.api_page < openapi/openapi.json`: docs/reference/api.md on standard output."""

import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final

from app.runbook.glossary.describing import operations_of

REFERENCE: Final = "#/components/schemas/"
HEAD: Final = """\
# API

Every operation of `/v1` with its parameters, and every object with its fields. This page is made by
`make runbook` from `openapi/openapi.json`, which generators of clients read. Times are RFC 3339 in UTC,
durations ISO 8601 (`PT1H`), fields of bytes are base64. What a refusal's `code` means is in the
[runbook](runbook.md); the [settings](settings.md) bound sizes and rates.
"""


def render(document: Mapping[str, Any]) -> str:
    """The page as committed."""
    parts = [HEAD, "\n## Operations\n"]
    by_path: dict[str, list[tuple[str, dict[str, Any]]]] = defaultdict(list)
    for name, operation in sorted(operations_of(document), key=lambda each: each[0].partition(" ")[2]):
        by_path[_noun(name)].append((name, operation))
    for noun, operations in sorted(by_path.items()):
        parts.append(f"\n### {noun}\n")
        for name, operation in operations:
            parts += _operation(name, operation)
    parts.append("\n## Objects\n")
    for name, schema in sorted(document["components"]["schemas"].items()):
        parts += _object(name, schema)
    return "".join(parts)


def _noun(name: str) -> str:
    parts = name.partition(" ")[2].strip("/").split("/")
    return parts[1].partition(":")[0] if parts[0] == "v1" and len(parts) > 1 else parts[0]


def _operation(name: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f"\n#### `{name}`\n\n{_line(operation.get('description') or operation['summary'])}\n"
    facts = []
    bodies = operation.get("requestBody", {}).get("content", {}).values()
    asked = [_type(body["schema"]) for body in bodies if "schema" in body]
    if asked:
        facts.append(f"Takes {', '.join(dict.fromkeys(asked))}.")
    answers = [
        f"{code}{_answered(answer)}"
        for code, answer in operation["responses"].items()
        if code.startswith("2")
    ]
    facts.append(f"Answers {', '.join(answers)}.")
    yield f"\n{' '.join(facts)}\n"
    parameters = operation.get("parameters", ())
    if parameters:
        yield "\n| parameter | in | type | meaning |\n|---|---|---|---|\n"
        for each in parameters:
            needed = "" if not each.get("required") or each["in"] == "path" else " (needed)"
            kind, meaning = _type(each.get("schema", {})), _cell(each.get("description", ""))
            yield f"| `{each['name']}`{needed} | {each['in']} | {kind} | {meaning} |\n"


def _answered(answer: Mapping[str, Any]) -> str:
    for media, body in answer.get("content", {}).items():
        shown = _type(body.get("schema", {}))
        return f" {shown}" if media == "application/json" else f" {media}"
    return ""


def _object(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield f"\n### {name}\n"
    if schema.get("description"):
        yield f"\n{_line(schema['description'])}\n"
    if "enum" in schema:
        yield f"\nOne of {', '.join(f'`{each}`' for each in schema['enum'])}.\n"
    for part in ("allOf", "anyOf", "oneOf"):
        others = [_type(each) for each in schema.get(part, ()) if "$ref" in each]
        if others:
            yield f"\n{'All' if part == 'allOf' else 'One'} of {', '.join(others)}.\n"
    fields = dict(schema.get("properties", {}))
    for each in schema.get("allOf", ()):
        fields |= each.get("properties", {})
    if not fields:
        return
    needed = set(schema.get("required", ()))
    yield "\n| field | type | meaning |\n|---|---|---|\n"
    for field, each in fields.items():
        mark = " (needed)" if field in needed and "default" not in each else ""
        yield f"| `{field}`{mark} | {_type(each)} | {_cell(_meaning(each))} |\n"


def _meaning(field: Mapping[str, Any]) -> str:
    parts = [field.get("description", "")]
    if "enum" in field:
        parts.append(f"One of {', '.join(f'`{each}`' for each in field['enum'])}.")
    if "x-extensible-enum" in field:
        parts.append("Each is in the [runbook](runbook.md).")
    bounds = [
        f"{word} {field[key]}"
        for key, word in (
            ("minimum", "at least"),
            ("maximum", "at most"),
            ("maxLength", "characters at most:"),
        )
        if key in field
    ]
    if bounds:
        parts.append(f"{', '.join(bounds).capitalize()}.")
    if field.get("default") is not None:
        parts.append(f"Default: `{json.dumps(field['default'])}`.")
    return " ".join(part for part in parts if part)


def _type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(REFERENCE)
        return f"[{name}](#{name.lower()})"
    for part in ("anyOf", "oneOf", "allOf"):
        if part in schema:
            return " or ".join(dict.fromkeys(_type(each) for each in schema[part]))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if "const" in schema:
        return f"`{schema['const']}`"
    kind = schema.get("format") or schema.get("type") or "any"
    return {"date-time": "time", "object": "object", "duration": "duration"}.get(kind, str(kind))


def _line(text: str) -> str:
    return _escaped(" ".join(text.split()))


def _cell(text: str) -> str:
    return _line(text).replace("|", "\\|")


def _escaped(text: str) -> str:
    """Angle brackets are text, outside of code."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else part.replace("<", "&lt;") for part in parts)


if __name__ == "__main__":
    sys.stdout.write(render(json.load(sys.stdin)))

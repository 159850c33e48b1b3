"""A form from the model of a request, and the request from what was filled in.

Rules:
- what a form leaves empty is not sent: the API's own default is in effect;
- what cannot be read as a field's type is sent as it is: the API says what is wrong with it.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pydantic import BaseModel

from app.verbs.table import VERBS

SETTLED: Final = frozenset({"kind", "plan_id", "max_drift", "reason"})
"""What the page asks elsewhere, or knows."""
FIRST: Final = frozenset(
    {"retention_minutes", "cutoff", "stranded", "max_entries", "archive", "period", "kinds", "interval"}
    | {"table", "time_column", "older_than", "where", "children", "action", "timeout"}
    | {"label", "databases", "start_key", "end_key", "filter", "confirm_keys_never_reused"}
    | {"agreement_id", "mode", "origin", "confirmed", "seqno", "gone_rids"}
)
"""What people fill in first; all else is folded."""
_OF_ACTS: Final = re.compile(r"(?:^|\. )([A-Z_]+)(?: only)?[:.]")
_ACTS: Final = frozenset(act for verb in VERBS for act in verb.acts)
Schema = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a form.

    Args:
        name: of the request; within another field `throttle.rows_per_s`.
        is_first: it is shown unfolded.
        form: text, long, number, either (a number or a word), select, flag, lines, several or json.
    """

    name: str
    form: str
    help: str = ""
    options: Sequence[str] = ()
    is_required: bool = False
    default: str = ""
    is_first: bool = False

    @property
    def label(self) -> str:
        """For people."""
        return self.name.replace("_", " ").replace(".", ": ")


def fields_of(
    model: type[BaseModel],
    act: str | None,
    *,
    settled: frozenset[str] = SETTLED,
    first: frozenset[str] = FIRST,
) -> list[Field]:
    """The fields of a request, those that people use first in front.

    Args:
        act: its `kind`, whose fields are wanted; those that only other kinds have are left out.
        settled: fields that the form does not ask for.
        first: those that it shows unfolded.
    """
    schema = model.model_json_schema()
    found = [
        field
        for name, each in schema["properties"].items()
        if name not in settled and _is_of(each.get("description", ""), act)
        for field in _fields(name, each, schema.get("$defs", {}), name in schema.get("required", ()))
    ]
    found = [
        replace(each, is_first=each.is_required or each.name.partition(".")[0] in first) for each in found
    ]
    return sorted(found, key=lambda field: not field.is_first)


def _is_of(description: str, act: str | None) -> bool:
    """Whether an act has a field: descriptions begin with an act's name where not all have it."""
    first = _OF_ACTS.match(description)
    if first is None or first[1] not in _ACTS:
        return True
    return act in _OF_ACTS.findall(description)


def _fields(name: str, schema: Schema, defined: Schema, is_required: bool) -> Iterator[Field]:
    forms = [_resolved(each, defined) for each in schema.get("anyOf", [schema])]
    forms = [each for each in forms if each.get("type") != "null"]
    field = Field(
        name=name,
        form="text",
        help=schema.get("description", ""),
        is_required=is_required,
        default=_shown(schema.get("default")),
    )
    if len(forms) > 1:
        yield replace(field, form="either")
        return
    [form] = forms
    if "properties" in form:
        for inner, each in form["properties"].items():
            yield from _fields(f"{name}.{inner}", each, defined, False)
        return
    yield _of_type(field, form, defined)


def _of_type(field: Field, form: Schema, defined: Schema) -> Field:
    if "const" in form or "enum" in form:
        options = form.get("enum", [form.get("const")])
        return replace(field, form="select", options=[str(each) for each in options])
    if form.get("type") == "array":
        item = _resolved(form.get("items", {}), defined)
        several = [str(each) for each in item.get("enum", ())]
        return replace(field, form="several" if several else "lines", options=several)
    by_type = {"boolean": "flag", "integer": "number", "number": "number", "object": "json"}
    is_long = form.get("maxLength", 0) > 500
    return replace(field, form=by_type.get(form.get("type", ""), "long" if is_long else "text"))


def _resolved(schema: Schema, defined: Schema) -> Schema:
    for each in (schema, *schema.get("allOf", ())):
        if "$ref" in each:
            found: Schema = defined[each["$ref"].rpartition("/")[2]]
            return found
    return schema


def _shown(default: Any) -> str:
    return str(default) if isinstance(default, str | int | float) and not isinstance(default, bool) else ""


# -- what was filled in


def body_of(fields: Sequence[Field], given: Mapping[str, str]) -> dict[str, Any]:
    """The request that a form makes."""
    body: dict[str, Any] = {}
    for field in fields:
        value = _value(field, given)
        if value is None:
            continue
        outer, _, inner = field.name.partition(".")
        if inner:
            body.setdefault(outer, {})[inner] = value
        else:
            body[outer] = value
    return body


def _value(field: Field, given: Mapping[str, str]) -> Any:
    if field.form == "several":
        return [each for each in field.options if f"{field.name}.{each}" in given] or None
    text = given.get(field.name, "").strip()
    if not text:
        return None
    if field.form == "lines":
        return [line.strip() for line in text.splitlines() if line.strip()]
    if field.form == "flag":
        return text == "yes"
    return _read(text) if field.form in ("number", "json", "either") else text


def _read(text: str) -> Any:
    try:
        found = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return text
    return text if found in (math.inf, -math.inf) else found


def _no_number(text: str) -> float:
    """JSON has no `NaN` and no `Infinity`: they are sent as they are written."""
    raise ValueError(text)


def given_of(fields: Sequence[Field], body: Mapping[str, Any]) -> dict[str, str]:
    """What a form is filled with, so that it makes this request."""
    given: dict[str, str] = {}
    for field in fields:
        outer, _, inner = field.name.partition(".")
        value = body.get(outer)
        value = value.get(inner) if inner and isinstance(value, Mapping) else value
        if value is None:
            continue
        is_list = isinstance(value, list)
        if field.form == "several" and is_list:
            given |= {f"{field.name}.{each}": "yes" for each in value}
        elif field.form == "lines" and is_list:
            given[field.name] = "\n".join(str(each) for each in value)
        elif field.form == "flag":
            given[field.name] = "yes" if value else ""
        else:
            given[field.name] = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return given

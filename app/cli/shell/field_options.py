"""Which option of the command filled which field of the request: an error that names a field names both."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from inspect import Parameter
from itertools import pairwise
from typing import Annotated, Any, Final, get_args, get_origin

from typer.models import ArgumentInfo, OptionInfo

Shown = Mapping[str, str]
"""The name of a parameter of the command, or of its option, to what a user types for it."""
OTHER_NAMES: Final[Mapping[str, Sequence[str]]] = {
    "backups": ("backups_via_lethe",),
    "bytes_per_s": ("throttle_bytes",),
    "channel_retention_minutes": ("channel_retention",),
    "children": ("child",),
    "confirm_keys_never_reused": ("confirm",),
    "created_after": ("after",),
    "created_before": ("before",),
    "expected": ("expect",),
    "filter": ("filter_text",),
    "id": ("store",),
    "rows_per_s": ("throttle",),
    "schema_name": ("schema",),
    "url": ("target_url",),
}
"""Fields whose option has another name than the field; those in the plural are found without."""
BODIES: Final = ("body", "params")
"""What a command sends as it was given, whatever fields are in it."""


def shown_options(parameters: Iterable[Parameter]) -> Shown:
    """How each parameter of a command is given: `--max-rows`, or STORE.

    Args:
        parameters: of the command's function, annotated as typer takes them.
    """
    found: dict[str, str] = {}
    for each in parameters:
        info = _info(each.annotation)
        if isinstance(info, OptionInfo):
            long = [name.partition("/")[0] for name in info.param_decls or () if name.startswith("--")]
            shown = long[0] if long else "--" + each.name.strip("_").replace("_", "-")
            found |= {each.name: shown, shown.strip("-").replace("-", "_"): shown}
        elif isinstance(info, ArgumentInfo):
            found[each.name] = str(info.metavar or each.name.upper())
    return found


def _info(annotation: Any) -> Any:
    if get_origin(annotation) is not Annotated:
        return None
    return next(
        (each for each in get_args(annotation)[1:] if isinstance(each, OptionInfo | ArgumentInfo)), None
    )


def option_of(pointer: str, options: Shown) -> str | None:
    """The option that filled a field; None: none is known to.

    Args:
        pointer: JSON pointer into the body, or `query:name`.
    """
    return next((options[name] for name in _names(pointer, options) if name in options), None)


def _names(pointer: str, options: Shown) -> Iterator[str]:
    """Names that a parameter for a field may have, the likeliest first: from the inside to the outside."""
    place, is_parameter, name = pointer.partition(":")
    parts = name.split(".") if is_parameter and place in ("query", "path") else pointer.split("/")
    words = [each for each in parts if each and not each.isdigit()]
    if words and words[0] in BODIES and "body" in options:
        yield "body"
    # An item of a list was given whole, by the list's option.
    for each in (one for one, two in pairwise(parts) if two.isdigit()):
        yield from _alike(each)
    for at in range(len(words) - 1, -1, -1):
        word = words[at]
        yield "_".join(words[max(at - 1, 0) : at + 1])
        yield from _alike(word)


def _alike(word: str) -> Iterator[str]:
    yield word
    yield from OTHER_NAMES.get(word, ())
    yield word.removesuffix("s")


def fault_text(fault: Mapping[str, Any], options: Shown) -> str:
    """One fault of a request, with the option beside the pointer."""
    pointer, detail = str(fault.get("pointer") or ""), str(fault.get("detail") or "")
    if pointer in ("", "/"):
        return detail
    option = option_of(pointer, options)
    return f"{pointer} ({option}): {detail}" if option else f"{pointer}: {detail}"

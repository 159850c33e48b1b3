"""What runners of former versions do not know: such a job waits for a runner that does.

While two versions work on one metadata, the former one takes whatever its labels let it take, and leaves out
what it does not know of a job's parameters: rows would go that a younger parameter keeps.

Rules:
- a parameter, or a value of one, that comes to a kind of job gets the next level here
  (tests/style/test_levels.py); a kind of purge that comes has a label of its own by itself;
- a job that has one needs a runner with the label of it, in `runs_on_key` alone: `runs_on` shows the
  labels of its store;
- a runner has the labels of all levels and kinds that its version knows; former versions compare the same
  labels.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

LEVELS: Final = 1
FIELDS: Final[Mapping[str, int]] = {"channel_cutoffs": 1, "channel_retention_minutes": 1}
"""Of parameters that are there and not empty."""
VALUES: Final[Mapping[tuple[str, str], int]] = {
    **dict.fromkeys((("stranded", mode) for mode in ("RECAPTURE", "REMOVE")), 1),
    **dict.fromkeys(
        (
            ("kind", kind)
            for kind in (
                "CHANNELS",
                "EXTRACT_REQUEST",
                "INCOMING_ERROR",
                "REGISTRATION_REQUEST",
                "STATISTICS",
                "STRANDED",
                "TOMBSTONES",
                "TRIGGER_HIST",
            )
        ),
        1,
    ),
}

OF_BEFORE: Final = frozenset(
    {"CHANGELOG", "DATA_GAP", "INCOMING", "OUTGOING", "ROWS"}
    | {value for name, value in VALUES if name == "kind"}
)
"""Kinds of purges from before each had a label; no other comes to them."""


def level_of(params: Mapping[str, Any]) -> int:
    """The level that a runner needs for a job with these parameters; 0: any version runs it."""
    carried = params.get("params")
    found = [level_of(carried)] if isinstance(carried, Mapping) else [0]
    for name, value in params.items():
        if value:
            found.append(FIELDS.get(name, 0))
        if isinstance(value, str):
            found.append(VALUES.get((name, value), 0))
    return max(found)


def labels_of(params: Mapping[str, Any]) -> frozenset[str]:
    """The labels that a runner needs besides those of the store."""
    level = level_of(params)
    return frozenset({*([_label(level)] if level else ()), *_of_kinds(_kinds(params))})


def labels_known(purges: Iterable[str] = ()) -> frozenset[str]:
    """The labels of every runner of this version.

    Args:
        purges: the kinds of purges that it runs.
    """
    return frozenset({*(_label(level) for level in range(1, LEVELS + 1)), *_of_kinds(purges)})


def _kinds(params: Mapping[str, Any]) -> Iterator[str]:
    """The kind of purge that a job is, or that a batch or a plan carries beside its own kind of job."""
    if isinstance(carried := params.get("params"), Mapping):
        yield from _kinds(carried)
    elif isinstance(kind := params.get("kind"), str):
        yield kind


def _of_kinds(kinds: Iterable[str]) -> Iterator[str]:
    return (f"purge/{kind}" for kind in kinds if kind not in OF_BEFORE)


def _label(level: int) -> str:
    return f"level/{level}"

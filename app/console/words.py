"""Values as people read them: times, durations, numbers with their units. Filters of the templates."""

import base64
import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from markupsafe import Markup, escape

from app.jobs.running.waits import PLANNED
from app.jobs.states import JobState
from app.kit.durations import parse_duration

NONE: Final = "–"
CODE: Final = Markup("<code>{}</code>")
BYTES: Final = ("B", "kB", "MB", "GB", "TB", "PB")
INSTANT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
DURATION: Final = re.compile(r"P(?=[\dT])(\d+D)?(T(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?")
HUMP: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
ENUM: Final = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+")
ONE_WORD: Final = re.compile(r"[A-Z]{3,}")
ENUMS: Final = frozenset(
    {"action", "classification", "counts", "interval_source", "mode", "not_compared", "outcome", "overlap"}
    | {"reason", "retention_source", "role", "rule", "severity", "source", "state", "status", "step"}
    | {"strategy", "stranded", "stranded_by", "verdict", "via", "why"}
)
"""Fields whose values are names of the API, though they may be of one word."""
GIVEN: Final = frozenset(
    {"", "actor", "application", "channel", "channel_id", "channels", "children", "cluster", "consumer"}
    | {"database", "databases", "directory", "end_key", "file", "files", "granted_by", "host", "hostname"}
    | {"key", "keys", "kind", "label", "name", "node", "node_id", "nodes", "path", "prefix", "requested_by"}
    | {"sample", "schema", "start_key", "store", "stores", "suffix", "supplier", "table", "time_column"}
    | {"tool", "url", "user", "where"}
)
"""Fields whose values are the names of others, however they are written."""
ROWS_MAX: Final = 100
COLUMNS_MAX: Final = 12
STEP: Final = 1_000
UNITS_S: Final = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def instant(value: str | datetime) -> datetime:
    """An instant of the API, in UTC."""
    found = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    return found.astimezone(UTC)


def _time(value: str | datetime | None, kind: str, shown: Callable[[datetime], str]) -> Markup | str:
    if value is None:
        return NONE
    at = instant(value)
    exact = at.strftime("%Y-%m-%d %H:%M:%S UTC")
    return Markup('<time datetime="{}" title="{}" class="{}">{}</time>').format(
        at.isoformat().replace("+00:00", "Z"), exact, kind, shown(at)
    )


def when(value: str | datetime | None) -> Markup | str:
    """An instant: in UTC here, in the viewer's zone once the script has seen it."""
    return _time(value, "at", lambda at: at.strftime("%Y-%m-%d %H:%M:%S UTC"))


def since(value: str | datetime | None, now: datetime) -> Markup | str:
    """How long ago an instant was, or how long it is until then."""
    return _time(value, "ago", lambda at: _distance((now - at).total_seconds()))


def _distance(seconds: float) -> str:
    return f"{lasting(seconds)} ago" if seconds >= 0 else f"in {lasting(-seconds)}"


def lasting(value: float | str | timedelta | None) -> str:
    """A duration in its two largest units: `2 h 5 min`; of seconds, of ISO 8601 or a timedelta."""
    if value is None:
        return NONE
    if isinstance(value, str):
        value = parse_duration(value)
    seconds = value.total_seconds() if isinstance(value, timedelta) else float(value)
    if 0 < seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    left = round(seconds)
    parts: list[tuple[int, str]] = []
    for name, size in UNITS_S:
        number, left = divmod(left, size)
        if number or parts:
            parts.append((number, name))
    return " ".join(f"{number} {name}" for number, name in parts[:2] if number) or "0 s"


def count(value: float | None, unit: str = "") -> str:
    """A whole number with its unit: `18 211 rows`."""
    if value is None:
        return NONE
    shown = f"{value:,.0f}".replace(",", "\u202f")
    return shown + (f" {noun(value, unit)}" if unit else "")


def noun(value: float, plural: str) -> str:
    """What is counted, as it is called where it is one: `rows`, `rows/s`, `retries`, `crashes`."""
    if f"{value:.0f}" != "1":
        return plural
    name, slash, rest = plural.partition("/")
    if name.endswith("ies"):
        name = name.removesuffix("ies") + "y"
    else:
        name = name.removesuffix("es" if name.endswith(("shes", "ches")) else "s")
    return name + slash + rest


def size(value: float | None) -> str:
    """A number of bytes in the unit that reads best, 1 kB being 1000 bytes."""
    if value is None:
        return NONE
    number, place = float(value), 0
    while abs(number) >= STEP and place < len(BYTES) - 1:
        number, place = number / STEP, place + 1
    return f"{number:.{0 if place == 0 or abs(number) >= 100 else 1}f} {BYTES[place]}"


def measured(value: float | None, unit: str) -> str:
    """A number in a unit of the API: bytes, seconds, rows."""
    if value is None:
        return NONE
    if unit == "bytes":
        return size(value)
    return lasting(value) if unit == "seconds" else count(value, unit)


def percent(fraction: float | None) -> str:
    """A share of the whole; 100 % is all of it, and 0 % nothing."""
    if fraction is None:
        return NONE
    shown = round(100 * fraction)
    if 0 < fraction < 1:
        shown = min(99, max(1, shown))
    return f"{shown} %"


def is_foreseen(job: Mapping[str, Any], eta: str | None, now: datetime | None = None) -> bool:
    """Whether the end that a job has told still holds: it works, or waits only for what was reckoned with.

    Args:
        now: an end that lies before it is none any more; None: whoever shows it shows no distance.
    """
    if eta is None or (now is not None and instant(eta) <= now):
        return False
    causes = (
        [job["waits_for"]] if job.get("waits_for") else [each["kind"] for each in job.get("waiting_on") or ()]
    )
    is_held = job["state"] != JobState.RUNNING
    return not is_held or (job["state"] == JobState.WAITING and bool(causes) and PLANNED.issuperset(causes))


def pretty(value: Any, most: int | None = None) -> str:
    """JSON for people; so many characters of it, or all."""
    text = json.dumps(value, indent=2, ensure_ascii=False, sort_keys=False)
    return text if most is None or len(text) <= most else f"{text[:most]}\n… cut: the API has all of it"


def words(name: str) -> str:
    """A code or a name of the API as words: `JOB_FAILED`, `rows_removed`, `eraserFsyncs`."""
    return HUMP.sub(" ", name).replace("_", " ").lower()


def listed(names: Sequence[str], most: int) -> str:
    """A few names, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {count(more)} more" if more > 0 else "")


def filled(value: Mapping[str, Any]) -> dict[str, Any]:
    """Fields without those that say nothing."""
    return {name: each for name, each in value.items() if each is not None and each not in ("", [], {})}


def decoded(text: str) -> str:
    """Bytes in base64 as the text that they are, or as hexadecimal digits; what is no base64 as it is."""
    try:
        found = base64.b64decode(text)
    except ValueError:
        return text
    shown = found.decode(errors="replace")
    return shown if shown.isprintable() and "\ufffd" not in shown else found.hex()


def prose(text: str) -> Markup:
    """A description of the API, its names between backticks as code."""
    parts = text.split("`")
    shown = [CODE.format(part) if place % 2 else escape(part) for place, part in enumerate(parts)]
    return Markup("").join(shown)


def faults(problem: Any) -> dict[str, str]:
    """What is wrong with each field of a form, by its name; of no problem: nothing."""
    found: dict[str, str] = {}
    for each in getattr(problem, "errors", None) or ():
        name = each["pointer"].rpartition(":")[2].strip("/").replace("/", ".")
        found[name] = f"{found[name]}; {each['detail']}" if name in found else each["detail"]
    return found


def help_url(link: str | None) -> str | None:
    """Where the console explains what a `help` of the API points at."""
    if not link:
        return None
    return "/console/help#" + link.partition("#")[2]


def subject_url(subject: str | None) -> str | None:
    """The page of what an attention or an event is about; None: it has none."""
    parts = (subject or "").split("/")
    if parts[0] == "jobs" and len(parts) == 2:
        return f"/console/jobs/{parts[1]}"
    if parts[0] == "stores" and len(parts) >= 2:
        return f"/console/stores/{parts[1]}"
    return "/console/system" if parts[0] == "instances" else None


def shape(value: Any, name: str = "") -> str:
    """How a value of the API is shown: the one word that templates choose by."""
    if isinstance(value, dict | list):
        return "nothing" if not value else "fields" if isinstance(value, dict) else _shape_of_list(value)
    if value is None or value == "":
        return "nothing"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        if name.endswith(("_per_s", "_ms")):
            return "rate" if name.endswith("_per_s") else "milliseconds"
        return (
            "bytes"
            if "bytes" in name.lower()
            else "seconds"
            if name.endswith(("_s", "seconds"))
            else "number"
        )
    text = str(value)
    if INSTANT.fullmatch(text) and _is_read(instant, text):
        return "instant"
    return "duration" if DURATION.fullmatch(text) and _is_read(parse_duration, text) else "text"


def _is_read(read: Callable[[str], Any], text: str) -> bool:
    """Whether a text of anybody is what it looks like: `PT` is a country, `P1DT` nothing."""
    try:
        read(text)
    except (ValueError, OverflowError):
        return False
    return True


def plain(value: Any, name: str) -> str:
    """A text of the API; one of its own names is shown as words: `NEVER_CONFIRMED`, `never confirmed`."""
    text = str(value)
    is_own = ENUM.fullmatch(text) if name not in ENUMS else ENUM.fullmatch(text) or ONE_WORD.fullmatch(text)
    return words(text) if is_own and name not in GIVEN else text


def _shape_of_list(values: list[Any]) -> str:
    if all(isinstance(each, dict) for each in values):
        return "rows"
    return "texts" if not any(isinstance(each, dict | list) for each in values) else "json"


def columns(rows: list[dict[str, Any]]) -> list[str]:
    """The names that rows have, in their order; a few."""
    return list(dict.fromkeys(name for row in rows[:ROWS_MAX] for name in row))[:COLUMNS_MAX]


def tone(state: str) -> str:
    """How a state is coloured; it is always written as well."""
    return TONES.get(state, "plain")


TONES: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        (
            "OK",
            "SUCCEEDED",
            "ENDED",
            "ACTIVE",
            "VALID",
            "ALIVE",
            "ONLINE",
            "UP_TO_DATE",
            "CURRENT",
            "DONE",
            "REGISTERED",
        ),
        "good",
    ),
    **dict.fromkeys(("FAILED", "ERROR", "INVALID", "EXPIRED", "HALTED", "REFUSED", "UNPROVEN"), "bad"),
    **dict.fromkeys(("CRITICAL", "NEEDS_TOTAL", "DIVERGED", "NEVER_CONFIRMED"), "bad"),
    **dict.fromkeys(
        (
            "WARNING",
            "UNKNOWN",
            "BEHIND",
            "STALE",
            "PAUSED",
            "PAUSING",
            "ABORTING",
            "ABORTED",
            "ABANDONED",
            "SUSPENDED",
        ),
        "warn",
    ),
    **dict.fromkeys(("RUNNING", "PREPARING"), "busy"),
}
FILTERS: Final[Mapping[str, Callable[..., Any]]] = {
    "when": when,
    "since": since,
    "lasting": lasting,
    "count": count,
    "noun": noun,
    "size": size,
    "measured": measured,
    "percent": percent,
    "pretty": pretty,
    "words": words,
    "instant": instant,
    "is_foreseen": is_foreseen,
    "prose": prose,
    "decoded": decoded,
    "filled": filled,
    "faults": faults,
    "plain": plain,
    "help_url": help_url,
    "subject_url": subject_url,
    "shape": shape,
    "columns": columns,
    "tone": tone,
}

"""What `:find-lost` has found, in sentences."""

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from app.console.words import count, listed

WHY: Final[Mapping[str, str]] = {
    "JUMPED": "a session sent a later change of the same replica without it",
    "REFUSED": "the server answered with an error, and the session went on",
    "HOLE": "its changelog has changes before and behind it; a total update leaves such holes too",
}
SERVERS_MAX: Final = 10
RID_AT: Final = slice(12, 16)
TIME_AT: Final = slice(0, 8)


def tell(found: Mapping[str, Any]) -> Iterator[str]:
    """The answer, what was lost before what is suspected."""
    known = f"{count(found['known'], 'changes')} and {count(len(found['sessions']), 'sessions')} are known"
    proved = [each for each in found["lost"] if each["proved"]]
    suspected = [each for each in found["lost"] if not each["proved"]]
    if not found["known"]:
        yield "These files name no change: they prove nothing."
    elif not found["lost"]:
        yield f"Nothing was lost, as far as these files tell: {known}."
    else:
        yield f"{known[:1].upper()}{known[1:]}."
    if proved:
        yield f"Lost: {count(len(proved), 'changes')}. {_servers(proved)}"
    elif suspected:
        yield "No loss is proved."
    if suspected:
        yield f"Suspected: {count(len(suspected), 'changes')}. {_servers(suspected)}"


def _servers(lost: list[Mapping[str, Any]]) -> str:
    by_server = Counter(each["server"] for each in lost)
    named = [f"server {rid} lacks {count(number)}" for rid, number in sorted(by_server.items())]
    text = listed(named, SERVERS_MAX)
    return f"{text[:1].upper()}{text[1:]}."


def row_of(change: Mapping[str, Any]) -> dict[str, Any]:
    """A lost change, with what its CSN says: who made it, and when."""
    made_s = int(change["csn"][TIME_AT], 16)
    return {
        **change,
        "rid": int(change["csn"][RID_AT], 16),
        "made_at": datetime.fromtimestamp(made_s, UTC),
        "because": WHY.get(change["why"], change["why"]),
    }

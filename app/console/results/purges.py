"""What purges and cleanups have removed, what stays, and what was kept of it."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from markupsafe import Markup

from app.console.words import count, listed, size, when, words

Result = Mapping[str, Any]
PLACES_MAX: Final = 8


def removed(result: Result, *, unit: str = "rows") -> Iterator[str]:
    """How much went, by table."""
    by_table: Mapping[str, int] = result.get("removed") or {}
    gone = {table: rows for table, rows in by_table.items() if rows}
    if not gone:
        yield f"No {unit} went."
        return
    least = "At least " if result.get("counts") == "AT_LEAST" else ""
    places = [f"{count(rows)} of {table}" for table, rows in gone.items()]
    yield f"{least}{count(sum(gone.values()), unit)} went: {listed(places, PLACES_MAX)}."


def bounded(result: Result) -> Iterator[str]:
    """How old what went had to be, and what a plan had said."""
    if result.get("cutoff"):
        yield Markup("Only what was older than {} was to go.").format(when(result["cutoff"]))
    if result.get("fewer_than_planned"):
        fewer = count(result["fewer_than_planned"], "rows")
        yield f"{fewer} of the plan did not go: they are not there any more, or are needed now."


def kept(result: Result) -> Iterator[str]:
    """The archive of what went."""
    archive = result.get("archive")
    if not archive:
        return
    if archive.get("error"):
        yield f"Its archive has no manifest yet ({archive['error']['code']}): {archive['error']['detail']}"
        return
    held = f"{count(archive.get('rows'), 'rows')} in {count(archive.get('files'), 'files')}"
    yield f"An archive keeps {held}, {size(archive.get('bytes'))}."


def purge(result: Result) -> Iterator[str]:
    """Of the tables of a SymmetricDS store."""
    yield from removed(result)
    yield from bounded(result)
    yield from _recaptured(result.get("stranded") or {})
    marked = (result.get("stranded") or {}).get("marked")
    if marked:
        nodes = [str(each["node_id"]) for each in result["stranded"].get("nodes") or ()]
        whose = f" of nodes {listed(nodes, PLACES_MAX)}" if nodes else ""
        yield f"Given up: {count(marked, 'batches')}{whose}; what they hold is never delivered."
    resent = (result.get("resent_after_purge") or {}).get("count")
    if resent:
        yield f"To be sent again, and their data are gone: {count(resent, 'batches')}."
    yield from kept(result)


def _recaptured(stranded: Result) -> Iterator[str]:
    """What was captured again before it went, and what of the stranded rows stays."""
    if stranded.get("recaptured") is not None:
        yield f"Captured again before they went: {count(stranded['recaptured'], 'rows')} of sym_data."
    for each in stranded.get("kept") or ():
        sample = listed([str(number) for number in each["sample"]], PLACES_MAX)
        such = f", such as data ids {sample}" if sample else ""
        yield Markup("Left: {} of sym_data{}, by {}.").format(
            count(each["count"], "rows"), such, _code(each["code"])
        )


def _code(name: str) -> Markup:
    """A code, and the way to what it means."""
    return Markup('<a class="code" href="/console/help#{}">{}</a>').format(name.lower(), name)


def rows(result: Result) -> Iterator[str]:
    """Of any table."""
    yield from removed(result)
    yield from bounded(result)
    for each in result.get("kept") or ():
        yield f"Left: {count(each['count'], 'rows')} of {each['table']}, {each['detail']}."
    yield from kept(result)


def changelog(result: Result) -> Iterator[str]:
    """Of a replica's changelog."""
    yield from removed(result, unit="records")
    yield from bounded(result)
    if result.get("rows_left") is not None:
        yield f"Left: {count(result['rows_left'], 'records')}."
    for each in result.get("rids") or ():
        if each.get("rows_held"):
            who = listed(each.get("held_by") or ["a consumer"], PLACES_MAX)
            held = count(each["rows_held"], "records")
            yield f"Old enough, and {who} may still need them: {held} of replica id {each['rid']}."
    yield from kept(result)


def tombstones(result: Result) -> Iterator[str]:
    """Of a replica's deleted keys."""
    yield from removed(result, unit="tombstones")
    yield from bounded(result)
    if result.get("rows_left") is not None:
        yield f"Left: {count(result['rows_left'], 'tombstones')}."
    if result.get("held_by"):
        yield f"Held back by {listed(result['held_by'], PLACES_MAX)}."
    yield from kept(result)


def cleanup(result: Result) -> Iterator[str]:
    """Of a node's catalog."""
    yield from removed(result)
    if result.get("confirmed_before"):
        yield Markup("Confirmations younger than {} did not count.").format(when(result["confirmed_before"]))
    for each in result.get("origins") or ():
        if each.get("held"):
            yield f"{each['held'][:1].upper()}{each['held'][1:]}."
    step = result.get("log_switch") or {}
    if step.get("emptied"):
        yield f"{step['emptied']} was emptied."
    elif step.get("blocked"):
        blocked = step["blocked"]
        yield f"{blocked['table']} could not be emptied: {words(blocked['why'])}."
    yield from kept(result)

"""What verifications and restores of archives have found, and what became of a job for many stores."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from app.console.words import count, listed, words

Result = Mapping[str, Any]
SHOWN_MAX: Final = 8


def verification(result: Result) -> Iterator[str]:
    """Of an archive's files."""
    read = f"Read: {count(result['rows'], 'rows')} in {count(result['files'], 'files')}"
    bad = result.get("bad") or ()
    if not bad:
        yield f"{read}. All are as they were written."
        return
    yield f"{read}. Not as they were written: {count(len(bad), 'files')}."
    for each in bad[:SHOWN_MAX]:
        yield f"{each['path']} is {words(each['state'])}: {each['detail']}"


def restore(result: Result) -> Iterator[str]:
    """Of an archive's rows."""
    brought = f"{count(result['rows'], 'rows')} in {count(result['units'], 'units')}"
    yield f"Brought back: {brought}. There already: {count(result['skipped'], 'rows')}."
    for each in list(result.get("refused") or ())[:SHOWN_MAX]:
        why = f"{words(each['state'])}: {each['detail']}"
        yield f"Unit {each['unit_id']} of {each['table']} was refused, {why}"
    for each in result.get("warnings") or ():
        yield f"{each['code']}: {each['detail']}"


def batch(result: Result) -> Iterator[str]:
    """Of many stores."""
    stores: Mapping[str, Any] = result["stores"]
    states = Counter(str(each["state"]) for each in stores.values())
    told = [f"{count(number)} {words(state)}" for state, number in states.most_common()]
    yield f"{count(len(stores), 'stores')}: {listed(told, SHOWN_MAX)}."

"""Other stores of the same kind on one target: allowed, and rarely meant.

Stores of two kinds on one database are usual: SQL beside SYMMETRICDS. Two of one kind with the same tables
remove the same rows, each by its own retention, limits and schedules.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from sqlalchemy import and_, func, or_
from sqlalchemy.engine import make_url
from sqlmodel import Session, col, select

from app.stores.borders import DEFAULT_PORTS, THIS_MACHINE
from app.stores.checks.models import Finding, FindingSeverity, StoreCheck
from app.stores.rows import Store
from spark.targets.ldap.url import is_ldap, ldap_place
from spark.targets.target import is_loopback, network_place, socket_directory

SAID_BY_KINDS: Final = frozenset({"SAME_NODE", "SAME_REPLICA"})
"""Codes by which the check of a kind says the same, and more exactly."""
NAMED_MAX: Final = 10


def others_on_target(
    db: Session, store: Store, findings: Iterable[Finding], identity: str | None
) -> Sequence[str]:
    """Ids of the other stores whose target has said that it is the same.

    Args:
        findings: of the check; none are looked for where its kind has said the same.
        identity: what the target said it is; None: it was not reached.
    """
    if identity is None or any(each.code in SAID_BY_KINDS for each in findings):
        return ()
    is_it = or_(col(Store.target_identity) == identity, col(Store.target_proof) == identity)
    same = (col(Store.kind) == store.kind, col(Store.table_prefix) == store.table_prefix)
    query = select(Store.id).where(col(Store.id) != store.id, *same, is_it).order_by(col(Store.id))
    return db.exec(query).all()


def shown_check(found: StoreCheck, others: Sequence[str], *, visible: Sequence[str] | None) -> StoreCheck:
    """The report of a check for one reader: a store that the reader may not see has no name in it.

    Args:
        others: ids of other stores on the target, as `others_on_target` finds them.
        visible: the stores that the reader may see; None: all.
    """
    findings = [each.for_reader(visible) for each in found.findings]
    worded = {before.detail: after.detail for before, after in zip(found.findings, findings, strict=True)}
    conflicts = [worded.get(each, each) for each in found.conflicts]
    findings += shown_same_target(others, visible=visible)
    return found.model_copy(update={"findings": findings, "conflicts": conflicts})


def shown_same_target(others: Sequence[str], *, visible: Sequence[str] | None) -> list[Finding]:
    """One finding of all of them, for one reader: a store that the reader may not see has no name.

    Args:
        visible: the stores that the reader may see; None: all.
    """
    named = [each for each in others if visible is None or each in visible]
    hidden = len(others) - len(named)
    words = [f"store {each}" for each in named[:NAMED_MAX]]
    if more := len(named[NAMED_MAX:]):
        words.append(f"{more} more store(s)")
    if hidden:
        words.append(f"{hidden} store(s) that this token may not see")
    return [_finding(" and ".join(words))] if words else []


def kept_same_target(others: Sequence[str]) -> list[Finding]:
    """The same for whoever may see the store: what is kept names no other one."""
    return [_finding(f"{len(others)} other store(s), which `:check` names")] if others else []


def warn_of_same_target(db: Session, store: Store, *, visible: Sequence[str] | None) -> list[Finding]:
    """What a registration says: other stores on the same target, by what it said it is, else by its address.

    Args:
        store: its `target_proof` is what the target said; None: it could not be asked.
    """
    address = _address(store)
    found = [
        other.id
        for other in db.exec(_near(store).order_by(col(Store.id)))
        if _is_proved(store, other) or _address(other) == address
    ]
    return shown_same_target(found, visible=visible)


def _near(store: Store) -> Any:
    """Those that may be the same: by what the target said, or by what their addresses have in common."""
    words = and_(*_in_common(store))
    same = (col(Store.kind) == store.kind, col(Store.table_prefix) == store.table_prefix)
    others = select(Store).where(col(Store.id) != store.id, *same)
    proof = store.target_proof
    if proof is None:
        return others.where(words)
    is_it = or_(col(Store.target_identity) == proof, col(Store.target_proof) == proof)
    # In a fleet all have the same last word: addresses are compared where the other's target never answered.
    is_unknown = and_(col(Store.target_identity).is_(None), col(Store.target_proof).is_(None))
    return others.where(or_(is_it, and_(words, is_unknown)))


def _in_common(store: Store) -> Iterator[Any]:
    """What addresses of one place have in common as they are written; a fleet has one name on many hosts."""
    url = str(store.url)
    if store.path is not None:
        yield _ends_alike(col(Store.path), store.path)
        return
    if is_ldap(url):
        yield func.lower(col(Store.suffix)) == (store.suffix or "").lower()
    else:
        yield _ends_alike(col(Store.url), make_url(url).database or "")
    place = network_place(url)
    if place is not None and not is_loopback(place[0]):  # which has several names
        yield func.lower(col(Store.url)).contains(place[0].lower(), autoescape=True)


def _ends_alike(written: Any, path: str) -> Any:
    """Files by the last two names, which a fleet has not alike; those that go up and down are looked at."""
    ends = Path(*Path(os.path.normpath(path)).parts[-2:])
    return or_(written.contains(str(ends), autoescape=True), written.contains("/."))


def _is_proved(one: Store, other: Store) -> bool:
    proof = one.target_proof
    return proof is not None and proof in (other.target_identity, other.target_proof)


def _address(store: Store) -> tuple[object, ...]:
    """The place of a store as its address has it: no name and no file is looked up."""
    if store.path is not None:
        return ("je", os.path.normpath(store.path))
    url = str(store.url)
    if is_ldap(url):
        place = ldap_place(url)
        return ("ldap", _host(place.host), place.port, (store.suffix or "").lower())
    parsed = make_url(url)
    dialect = parsed.get_backend_name().replace("mariadb", "mysql")
    if dialect == "sqlite":
        return (dialect, os.path.normpath(str(parsed.database)))
    host, port = network_place(url) or (socket_directory(url), parsed.port or DEFAULT_PORTS[dialect])
    tables = (store.schema_name or "public", store.cluster) if dialect == "postgresql" else ()
    return (dialect, _host(host), port, parsed.database, *tables)


def _host(host: str | None) -> str:
    return THIS_MACHINE if host is None or is_loopback(host) else host.lower()


def _finding(others: str) -> Finding:
    detail = (
        f"{others}: the same kind, and the same tables of the same target. Each purges them by"
        " its own retention, limits and schedules; while a job of one runs, those of the others wait or are"
        " refused (CONFLICTING_JOB). Keep one of them"
    )
    return Finding(code="SAME_TARGET", severity=FindingSeverity.WARNING, detail=detail)

"""Other stores of the same kind on one target: allowed, and rarely meant.

Stores of two kinds on one database are usual: SQL beside SYMMETRICDS. Two of one kind with the same tables
remove the same rows, each by its own retention, limits and schedules.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from sqlalchemy import and_, or_
from sqlalchemy.engine import make_url
from sqlmodel import Session, col, select

from app.stores.borders import DEFAULT_PORTS, THIS_MACHINE
from app.stores.checks.models import Finding, FindingSeverity
from app.stores.rows import Store
from spark.targets.ldap.url import is_ldap, ldap_place
from spark.targets.target import is_loopback, network_place, socket_directory

SAID_BY_KINDS: Final = frozenset({"SAME_NODE", "SAME_REPLICA"})
"""Codes by which the check of a kind says the same, and more exactly."""
NAMED_MAX: Final = 10


def note_same_target(
    db: Session,
    store: Store,
    findings: Iterable[Finding],
    identity: str | None,
    *,
    visible: Sequence[str] | None,
) -> list[Finding]:
    """What a check adds: other stores whose target has said that it is the same.

    Args:
        findings: of the check.
        identity: what the target said it is; None: it was not reached.
        visible: the stores that whoever reads this may see; None: all.
    """
    if identity is None or any(each.code in SAID_BY_KINDS for each in findings):
        return []
    is_it = or_(col(Store.target_identity) == identity, col(Store.target_proof) == identity)
    others = db.exec(_others(store).where(is_it).order_by(col(Store.id)).limit(NAMED_MAX)).all()
    return _finding([other.id for other in others], visible)


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
    return _finding(found[:NAMED_MAX], visible)


def _others(store: Store) -> Any:
    same = (col(Store.kind) == store.kind, col(Store.table_prefix) == store.table_prefix)
    return select(Store).where(col(Store.id) != store.id, *same)


def _near(store: Store) -> Any:
    """Those that may be the same: by what the target said, or by the last word of the address."""
    if store.path is not None:
        words = col(Store.path).contains(Path(store.path).name, autoescape=True)
    elif is_ldap(str(store.url)):
        words = col(Store.suffix).is_not(None)
    else:
        name = Path(make_url(str(store.url)).database or "").name
        words = col(Store.url).contains(name, autoescape=True)
    proof = store.target_proof
    if proof is None:
        return _others(store).where(words)
    is_it = or_(col(Store.target_identity) == proof, col(Store.target_proof) == proof)
    # In a fleet all have the same last word: addresses are compared where the other's target never answered.
    is_unknown = and_(col(Store.target_identity).is_(None), col(Store.target_proof).is_(None))
    return _others(store).where(or_(is_it, and_(words, is_unknown)))


def _is_proved(one: Store, other: Store) -> bool:
    proof = one.target_proof
    return proof is not None and proof in (other.target_identity, other.target_proof)


def _address(store: Store) -> tuple[object, ...]:
    """The place of a store as its address has it: no name is looked up, and nothing is connected to."""
    if store.path is not None:
        return ("je", Path(store.path).resolve())
    url = str(store.url)
    if is_ldap(url):
        place = ldap_place(url)
        return ("ldap", _host(place.host), place.port, (store.suffix or "").lower())
    parsed = make_url(url)
    dialect = parsed.get_backend_name().replace("mariadb", "mysql")
    if dialect == "sqlite":
        return (dialect, Path(str(parsed.database)).resolve())
    host, port = network_place(url) or (socket_directory(url), parsed.port or DEFAULT_PORTS[dialect])
    tables = (store.schema_name or "public", store.cluster) if dialect == "postgresql" else ()
    return (dialect, _host(host), port, parsed.database, *tables)


def _host(host: str | None) -> str:
    return THIS_MACHINE if host is None or is_loopback(host) else host.lower()


def _finding(others: Sequence[str], visible: Sequence[str] | None) -> list[Finding]:
    """One finding of all of them; a store that the reader may not see has no name."""
    if not others:
        return []
    named = [each for each in others if visible is None or each in visible]
    words = [f"store {each}" for each in named]
    if hidden := len(others) - len(named):
        words.append(f"{hidden} store(s) that this token may not see")
    detail = (
        f"{' and '.join(words)}: the same kind, and the same tables of the same target. Each purges them by"
        " its own retention, limits and schedules; while a job of one runs, those of the others wait or are"
        " refused (CONFLICTING_JOB). Keep one of them"
    )
    return [Finding(code="SAME_TARGET", severity=FindingSeverity.WARNING, detail=detail)]

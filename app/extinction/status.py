"""What a store's extinctions say, as far as the metadata knows: what other domains may rely on."""

import base64
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlmodel import Session

from app.extinction.records import extinction_of, insert_row, rows_of
from app.extinction.rows import HOLDING, ExtinctionOrigin, ExtinctionRow, ExtinctionState
from app.kit.instants import instant_text
from app.stores.rows import ExtinctionFilterMode, Store
from spark.erase.calls.request import ExtinctionTerms, FilterMode, HoldingExtinction, LogExtinction
from spark.formats.extinction import Extinction


@dataclass(frozen=True, slots=True)
class KnownExtinctions:
    """Those that hold, and those of which nobody knows yet whether they are committed: MAYBE_EXTINCT.

    Attributes:
        filtered: found in a JE log with a filter that only JE can evaluate: MAYBE_EXTINCT too.
        secondary: JE's own ranges in databases with duplicates, which are of other keys than those that are
            asked for: every key of such a database is MAYBE_EXTINCT.
    """

    holding: tuple[Extinction, ...]
    reserved: tuple[Extinction, ...]
    filtered: tuple[Extinction, ...] = ()
    secondary: tuple[Extinction, ...] = ()


def known_extinctions(db: Session, store_id: str) -> KnownExtinctions:
    """The extinctions of a store, oldest first."""
    rows = rows_of(db, store_id)
    holding = [(extinction_of(row), _secondary_of(row)) for row in rows if _holds(row)]
    return KnownExtinctions(
        tuple(
            replace(each, databases=each.databases - secondary)
            for each, secondary in holding
            if each.databases - secondary
        ),
        tuple(extinction_of(row) for row in rows if row.state == ExtinctionState.RESERVED),
        tuple(extinction_of(row) for row in rows if row.has_java_filter),
        tuple(
            replace(each, databases=secondary, start_key=None, end_key=None)
            for each, secondary in holding
            if secondary
        ),
    )


def _secondary_of(row: ExtinctionRow) -> frozenset[bytes]:
    """The databases in which its range does not tell which primary keys are extinct.

    Of a row that was noted before they were told apart these are all, until the log has been read again.
    """
    extinction = extinction_of(row)
    is_whole = extinction.start_key is None and extinction.end_key is None
    if row.origin != ExtinctionOrigin.LOG or is_whole:
        return frozenset()
    if row.secondary is None:
        return extinction.databases
    return frozenset(base64.b64decode(each) for each in row.secondary)


def _holds(row: ExtinctionRow) -> bool:
    return row.state in HOLDING and not row.has_java_filter


@dataclass(frozen=True, slots=True)
class PlannedExtinctions:
    """What an erasure of a JE store is planned with; `mark` changes when that does."""

    terms: ExtinctionTerms
    mark: str


def extinctions_of(db: Session, store: Store) -> PlannedExtinctions:
    """The extinctions of a JE store, as the plan of an erasure takes them.

    The mark leaves out what the plan itself finds in the log.
    """
    mode = FilterMode(store.extinction_filter or ExtinctionFilterMode.NONE)
    if mode is FilterMode.NONE:
        return PlannedExtinctions(ExtinctionTerms(), mode)
    holding, reserved, seen = [], [], []
    for row in rows_of(db, store.id):
        payload = extinction_of(row).to_json()
        if _holds(row):
            holding.append(HoldingExtinction(payload, attested=row.attested_at is not None))
        elif row.state == ExtinctionState.RESERVED:
            reserved.append(payload)
        if row.origin != ExtinctionOrigin.LOG or row.attested_at is not None:
            seen.append([row.id, _holds(row), str(row.state) == "RESERVED", row.attested_at is not None])
    digest = hashlib.sha256(json.dumps([mode, seen]).encode()).hexdigest()
    return PlannedExtinctions(ExtinctionTerms(mode, tuple(holding), tuple(reserved)), f"{mode} {digest[:32]}")


def note_log_extinctions(
    db: Session, store_id: str, found: Iterable[LogExtinction], *, now: datetime
) -> None:
    """Note those that a JE log has and the metadata has not. JE has discarded them itself: they are done."""
    for each in found:
        extinction = Extinction.parse(each.payload)
        secondary = sorted(base64.b64encode(name.encode()).decode() for name in each.secondary)
        row = db.get(ExtinctionRow, (store_id, extinction.id))
        if row is None:
            insert_row(
                db,
                store_id,
                extinction,
                state=ExtinctionState.DONE,
                now=now,
                origin=ExtinctionOrigin.LOG,
                has_java_filter=each.has_filter,
                secondary=secondary,
                logged_at=now,
                done_at=now,
            )
        elif row.secondary is None and row.origin == ExtinctionOrigin.LOG:
            row.secondary, row.version = secondary, row.version + 1
            db.add(row)


def shown_in_certificate(db: Session, store_id: str, ids: Iterable[str]) -> list[dict[str, Any]]:
    """Extinctions as a certificate names them, in the order of their ids."""
    shown = []
    for name in sorted(ids):
        row = db.get(ExtinctionRow, (store_id, name))
        if row is None:  # the store's registration has gone
            shown.append({"id": name})
            continue
        fields = extinction_of(row).fields()
        fields["databases"] = sorted(each.decode() for each in extinction_of(row).databases)
        attested = None
        if row.attested_at is not None:
            attested = {
                "by": row.attested_by,
                "at": instant_text(row.attested_at),
                "reason": row.attest_reason,
            }
        shown.append(
            fields
            | {"origin": str(row.origin), "requested_by": row.requested_by, "reason": row.reason}
            | {"attested": attested}
        )
    return shown

"""What a store's extinctions say, as far as the metadata knows: what other domains may rely on."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlmodel import Session

from app.extinction.models import HOLDING, ExtinctionOrigin, ExtinctionRow, ExtinctionState
from app.extinction.records import extinction_of, insert_row, rows_of
from app.kit.instants import instant_text
from app.stores.models import ExtinctionFilterMode, Store
from spark.erase.request import ExtinctionTerms, FilterMode, HoldingExtinction, LogExtinction
from spark.formats.extinction import Extinction


@dataclass(frozen=True, slots=True)
class KnownExtinctions:
    """Those that hold, and those of which nobody knows yet whether they are committed: MAYBE_EXTINCT.

    Attributes:
        filtered: found in a JE log with a filter that only JE can evaluate: MAYBE_EXTINCT too.
    """

    holding: tuple[Extinction, ...]
    reserved: tuple[Extinction, ...]
    filtered: tuple[Extinction, ...] = ()


def known_extinctions(db: Session, store_id: str) -> KnownExtinctions:
    """The extinctions of a store, oldest first."""
    rows = rows_of(db, store_id)
    return KnownExtinctions(
        tuple(extinction_of(row) for row in rows if _holds(row)),
        tuple(extinction_of(row) for row in rows if row.state == ExtinctionState.RESERVED),
        tuple(extinction_of(row) for row in rows if row.has_java_filter),
    )


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
        if db.get(ExtinctionRow, (store_id, extinction.id)) is None:
            insert_row(
                db,
                store_id,
                extinction,
                state=ExtinctionState.DONE,
                now=now,
                origin=ExtinctionOrigin.LOG,
                has_java_filter=each.has_filter,
                logged_at=now,
                done_at=now,
            )


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

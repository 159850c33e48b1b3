"""The verification of an erasure that a schedule asks for: of the store's newest cycle that has ended."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlmodel import Session, col, select

from app.auth.service import Caller
from app.erase.certificates.models import VerifyRequest
from app.erase.certificates.verify_service import submit_verify
from app.erase.errors import CycleNotFound
from app.erase.rows import ErasureCycle
from app.jobs.batches.bodies import read_body
from app.jobs.engines.choice import check_engine, check_je
from app.jobs.rows import Job
from app.settings import Settings
from app.stores.models import StoreKind
from app.stores.rows import Store
from app.stores.service import require_kind


def submit_newest_verify(
    db: Session,
    store: Store,
    params: Mapping[str, Any],
    caller: Caller,
    _parent_id: str | None,
    settings: Settings,
    now: datetime,
) -> Job:
    """Queue the verification of the cycle that has ended last.

    Raises: InvalidRequest, StoreKindWrong, SparkDisabled, as `submit_verify`; CycleNotFound: none has ended.
    """
    body = read_body(VerifyRequest, params)
    require_kind(store, StoreKind.JE)
    check_engine(body.engine, settings)
    check_je(store.runs_on, settings)
    ended = select(ErasureCycle.id).where(
        ErasureCycle.store == store.id, col(ErasureCycle.ended_at).is_not(None)
    )
    newest = db.exec(ended.order_by(col(ErasureCycle.started_at).desc()).limit(1)).first()
    if newest is None:
        raise CycleNotFound(f"no cycle of the store {store.id} has ended yet: there is nothing to verify")
    return submit_verify(db, store, newest, body, caller=caller, settings=settings, now=now)

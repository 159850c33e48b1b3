"""What a job was submitted for: it works with that consumer and that target, or not at all."""

from collections.abc import Mapping
from typing import Any

from app.errors import ServiceError
from app.jobs.errors import JobFailed
from app.jobs.running.context import JobContext
from app.replication.agreements.service import get_agreement
from app.replication.agreements.sessions.service import consumer_of, target_of_store
from app.replication.rows import Agreement
from app.stores.rows import Store


def agreement_as_submitted(
    context: JobContext,
    store: Store,
    agreement_id: str,
    *,
    consumer: Mapping[str, Any],
    target: Mapping[str, Any],
) -> Agreement:
    """The agreement of a job, which names the consumer of the submission, as the store names its target.

    Raises: JobFailed: AGREEMENT_NOT_FOUND, AGREEMENT_CHANGED, STORE_CHANGED.
    """
    try:
        agreement = context.read(lambda db: get_agreement(db, store.id, agreement_id))
    except ServiceError as error:
        raise JobFailed(error.code, error.detail) from error
    if consumer_of(agreement) != consumer:
        raise JobFailed("AGREEMENT_CHANGED", "the agreement names another consumer than at the submission")
    if target_of_store(store) != target:
        raise JobFailed("STORE_CHANGED", "the store names another target than at the submission")
    return agreement

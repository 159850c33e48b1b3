"""What stores need from the floors above them, passed in as values by main.py."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from fastapi import Request
from sqlmodel import Session

from app.auth.actions import Action
from app.db import Database
from app.settings import Settings
from app.stores.checks.models import RecoveryRead, StoreCheck
from app.stores.models import StoreKind
from app.stores.rows import Store


@dataclass(frozen=True, slots=True)
class Leaving:
    """What goes with a removed store, as the audit has it; `subject` is its type and its id."""

    action: Action
    subject: tuple[str, str]
    detail: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StoreHooks:
    """Functions of the jobs and the domains.

    Args:
        count_active_jobs: how many jobs of a store have not ended.
        count_extinctions: how many extinctions of a store are kept in the metadata alone.
        leave: removes what asks for jobs of a store that is being removed.
        resumed: lets the store's waiting jobs look again.
        relabelled: lets jobs look again that wait for what goes by labels.
        checks: kind of store to the function that looks at its target.
        recover: raises our epoch above the target's (`lethe recover`).
    """

    count_active_jobs: Callable[[Session, str], int]
    count_extinctions: Callable[[Session, Store], int]
    leave: Callable[[Session, str, datetime], Sequence[Leaving]]
    resumed: Callable[[Session, str, datetime], None]
    relabelled: Callable[[Session, datetime], None]
    checks: Mapping[StoreKind, Callable[[Database, Store, Settings, datetime], StoreCheck]]
    recover: Callable[[Database, Settings, Store, str], RecoveryRead]


def hooks_of(request: Request) -> StoreHooks:
    """The hooks of this application."""
    return cast(StoreHooks, request.app.state.store_hooks)

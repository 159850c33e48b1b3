"""What the service does with the target of a store, whatever its kind."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlmodel import Session

from app.db import Database
from app.kinds.rules import KindRules
from app.settings import Settings
from app.stores.checks.models import RecoveryRead, StoreCheck
from app.stores.rows import Store

_NEEDED: Any = None
"""A column that every kind must fill: `check_kinds` names the one that is empty."""


def keeps_none(_db: Session, _store: Store) -> int:
    """Of a kind whose extinctions lie in its target, or that has none."""
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class KindOfStore:
    """A kind of store.

    Args:
        rules: its fields, what it needs, an example.
        check: looks at the target; whatever is wrong is a finding.
        recover: raises our epoch above the target's (`lethe recover`); raises ServiceError where the target
            cannot be asked.
        is_ahead: whether the target has seen a greater epoch than ours; None: it cannot be asked.
        extinctions: how many the metadata alone keeps of a store.
    """

    rules: KindRules
    check: Callable[[Database, Store, Settings, datetime], StoreCheck] = _NEEDED
    recover: Callable[[Database, Settings, Store, str], RecoveryRead] = _NEEDED
    is_ahead: Callable[[Database, Store, Settings], bool | None] = _NEEDED
    extinctions: Callable[[Session, Store], int] = keeps_none

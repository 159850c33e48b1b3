"""An environment of Berkeley DB JE."""

from sqlmodel import Session

from app.erase.check import check_environment
from app.erase.recover import is_environment_ahead, recover_environment
from app.extinction.status import known_extinctions
from app.kinds.je import RULES
from app.stores.rows import Store
from app.verbs.stores.kind import KindOfStore


def _extinctions(db: Session, store: Store) -> int:
    known = known_extinctions(db, store.id)
    return len({each.id for each in (*known.holding, *known.secondary)})


JE = KindOfStore(
    rules=RULES,
    check=check_environment,
    recover=recover_environment,
    is_ahead=is_environment_ahead,
    extinctions=_extinctions,
)

"""A database of SymmetricDS."""

from app.kinds.symmetricds import RULES
from app.purge.check import check_store
from app.purge.recover import is_epoch_ahead, recover_store
from app.verbs.stores.kind import KindOfStore

SYMMETRICDS = KindOfStore(rules=RULES, check=check_store, recover=recover_store, is_ahead=is_epoch_ahead)

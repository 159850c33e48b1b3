"""A replica of 389 Directory Server."""

from app.kinds.ds389 import RULES
from app.replication.ds389.check import check_directory, is_directory_ahead, recover_directory
from app.verbs.stores.kind import KindOfStore

DS389 = KindOfStore(
    rules=RULES, check=check_directory, recover=recover_directory, is_ahead=is_directory_ahead
)

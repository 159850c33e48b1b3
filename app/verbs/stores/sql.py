"""A database of anybody's."""

from app.kinds.sql import RULES
from app.rows.check import check_database, is_database_ahead, recover_database
from app.verbs.stores.kind import KindOfStore

SQL = KindOfStore(rules=RULES, check=check_database, recover=recover_database, is_ahead=is_database_ahead)

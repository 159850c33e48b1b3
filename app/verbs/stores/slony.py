"""A node of a Slony-I cluster."""

from app.events.check import check_node
from app.events.recover import is_node_ahead, recover_node
from app.kinds.slony import RULES
from app.verbs.stores.kind import KindOfStore

SLONY = KindOfStore(rules=RULES, check=check_node, recover=recover_node, is_ahead=is_node_ahead)

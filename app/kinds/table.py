"""The rules of all kinds."""

from collections.abc import Mapping
from typing import Final

from app.kinds import je, replica, slony, sql, symmetricds
from app.kinds.rules import KindRules, StoreKind

RULES: Final[Mapping[StoreKind, KindRules]] = {
    rules.kind: rules for rules in (symmetricds.RULES, je.RULES, replica.RULES, slony.RULES, sql.RULES)
}


def fields_of_other_kinds(kind: StoreKind) -> frozenset[str]:
    """The fields that make no sense for a kind."""
    every = frozenset[str]().union(*(rules.fields for rules in RULES.values()))
    return every - RULES[kind].fields

"""The kinds of stores and the rules of each."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from app.kinds import ds389, je, replica, slony, sql, symmetricds
from app.kinds.rules import KindRules


class StoreKind(StrEnum):
    """What a store is."""

    SYMMETRICDS = "SYMMETRICDS"
    JE = "JE"
    REPLICA = "REPLICA"
    SLONY = "SLONY"
    SQL = "SQL"
    DS389 = "DS389"


RULES: Final[Mapping[StoreKind, KindRules]] = {
    StoreKind.SYMMETRICDS: symmetricds.RULES,
    StoreKind.JE: je.RULES,
    StoreKind.REPLICA: replica.RULES,
    StoreKind.SLONY: slony.RULES,
    StoreKind.SQL: sql.RULES,
    StoreKind.DS389: ds389.RULES,
}


def fields_of_other_kinds(kind: StoreKind) -> frozenset[str]:
    """The fields that make no sense for a kind."""
    every = frozenset[str]().union(*(rules.fields for rules in RULES.values()))
    return every - RULES[kind].fields

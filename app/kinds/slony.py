"""A node of a Slony-I cluster."""

from app.kinds.rules import KindRules, StoreKind

RULES = KindRules(
    kind=StoreKind.SLONY,
    fields=frozenset({"url", "password", "cluster"}),
    needs=("url", "cluster"),
    dialects=frozenset({"postgresql"}),
    lies_on="a node of Slony-I lies on PostgreSQL",
    example={
        "id": "lab-1",
        "kind": "SLONY",
        "url": "postgresql+psycopg://slony@127.0.0.1:5432/node1",
        "cluster": "lab",
    },
)

"""A node of a Slony-I cluster."""

from app.auth.scopes import Scope
from app.kinds.parameter import STORE, ParameterSpec, ParameterType, switch
from app.kinds.rules import KindRules
from app.kinds.slony_health import HEALTH

PARAMETERS = (
    ParameterSpec(
        "cleanup_interval",
        ParameterType.DURATION,
        "PT10M",
        "How old a confirmation must be for cleanup to go by it; and, as in slon, the time between two"
        " cleanups where start.cleanup_thread is on (there at least a minute).",
        unit="ISO 8601",
        minimum="PT0S",
        maximum="P365D",
    ),
    switch(
        "start.cleanup_thread",
        False,
        "Lethe itself submits an event cleanup of this store every cleanup_interval, the first one an"
        " interval after it was switched on. slon's own cleanup thread does the same where one runs for this"
        " node: both may run, one of them then finds little to do. Set on a store, never for all.",
        scopes=STORE,
        needs=Scope.EVENTS_WRITE,
    ),
    *HEALTH,
)
RULES = KindRules(
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
    parameters=PARAMETERS,
)

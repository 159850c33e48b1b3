"""What is asked before a command of slonik, what one node knows, and the answer: values only."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from spark.events.records import Node
from spark.events.waiting import Why


class Command(StrEnum):
    """Before what slonik waits, or looks whether it may go on."""

    SUBSCRIBE_SET = "SUBSCRIBE_SET"
    DROP_NODE = "DROP_NODE"
    CLONE_PREPARE = "CLONE_PREPARE"
    CREATE_SET = "CREATE_SET"
    SUBMIT_TO_OTHER_NODE = "SUBMIT_TO_OTHER_NODE"
    STORE_NODE = "STORE_NODE"
    RESUBSCRIBE_NODE = "RESUBSCRIBE_NODE"
    MERGE_SET = "MERGE_SET"
    MOVE_SET = "MOVE_SET"
    LOCK_SET = "LOCK_SET"
    FAILOVER = "FAILOVER"


class What(StrEnum):
    """Up to where an origin must be confirmed, as it is fixed at the first look.

    CONFIG: its newest event that is no SYNC. DROP_SET: its newest DROP_SET. LAST: the newest event, a SYNC
    too, of a node that is to be dropped. PREVIOUS: the last event of the event node before. TRANSACTIONS:
    every transaction that had begun at a node.
    """

    CONFIG = "CONFIG"
    DROP_SET = "DROP_SET"
    LAST = "LAST"
    PREVIOUS = "PREVIOUS"
    TRANSACTIONS = "TRANSACTIONS"


@dataclass(frozen=True, slots=True)
class Question:
    """A command that is to be submitted.

    Args:
        node: SUBSCRIBE_SET, CLONE_PREPARE, RESUBSCRIBE_NODE: the provider. CREATE_SET, MERGE_SET, MOVE_SET,
            LOCK_SET: the origin of the set. DROP_NODE: the one to be dropped. STORE_NODE,
            SUBMIT_TO_OTHER_NODE: the event node. FAILOVER: the failed node.
        other: DROP_NODE: the event node. SUBMIT_TO_OTHER_NODE: the event node before. STORE_NODE: the new
            node. FAILOVER: the backup node. Else None.
        event_node: where it is submitted to; None: nothing is submitted, or nothing before it.
        previous: where the command before it in the script was; None: it is the first.
        sets: MERGE_SET: both of them.
    """

    command: Command
    node: int
    other: int | None = None
    event_node: int | None = None
    previous: int | None = None
    sets: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest event of an origin and of a kind; of TRANSACTIONS: the first id that was not given yet."""

    seqno: int
    type: str


Fixed = Mapping[tuple[What, int], Newest | None]
"""What is waited for, by origin; None: no such event, only that a row of confirmation is there."""


@dataclass(frozen=True, slots=True)
class Enabling:
    """An event that begins or ends a subscription's first copy: newest of its origin, set and receiver."""

    origin: int
    seqno: int
    type: str
    set_id: int
    receiver: int


@dataclass(frozen=True, slots=True)
class Runner:
    """A transaction with an id; `pid` None: a prepared one."""

    pid: int | None
    xid: int
    application: str
    user: str
    state: str
    age_s: float


@dataclass(frozen=True, slots=True)
class Running:
    """The transactions of a server, of all its databases.

    Args:
        oldest, following: xmin and xmax of a snapshot.
        runners: those that may be seen, the oldest first.
    """

    oldest: int
    following: int
    runners: tuple[Runner, ...] = ()


@dataclass(frozen=True, slots=True)
class Subscriptions:
    """Rows of sl_set and sl_subscribe.

    Args:
        origins: set to origin.
        rows: (set, provider, receiver, forwards).
    """

    origins: Mapping[int, int]
    rows: tuple[tuple[int, int, int, bool], ...]


@dataclass(frozen=True, slots=True)
class View:
    """What one node knows.

    Args:
        nodes: its sl_node.
        any, config, drop_set: origin to its newest event here: of any type, of any type but SYNC, DROP_SET.
        confirmed: (origin, receiver) to the newest confirmed seqno; a pair without any row is absent.
        enabling, running, subscriptions, paths: None or empty where the command does not need them.
        paths: (server, client).
        has_slon: whether its own slon is connected; None: it was not asked, or cannot be seen.
    """

    node: int
    nodes: tuple[Node, ...]
    any: Mapping[int, Newest] = field(default_factory=dict)
    config: Mapping[int, Newest] = field(default_factory=dict)
    drop_set: Mapping[int, Newest] = field(default_factory=dict)
    confirmed: Mapping[tuple[int, int], int] = field(default_factory=dict)
    enabling: tuple[Enabling, ...] = ()
    running: Running | None = None
    subscriptions: Subscriptions | None = None
    paths: frozenset[tuple[int, int]] = frozenset()
    has_slon: bool | None = None

    def find(self, node: int) -> Node | None:
        """A node as this one knows it."""
        return next((each for each in self.nodes if each.id == node), None)


Views = Mapping[int, View]


@dataclass(frozen=True, slots=True, order=True)
class Missing:
    """An event that a node has not confirmed.

    Args:
        event: None: no such event is left, but the node has never confirmed anything of this origin.
        confirmed_seqno: the newest that it has confirmed; None: none at all.
    """

    origin: int
    node: int
    event: Newest | None
    confirmed_seqno: int | None
    why: Why


class Bar(StrEnum):
    """What else than a confirmation is in the way."""

    TRANSACTION_RUNS = "TRANSACTION_RUNS"
    NO_PATH_TO_BACKUP = "NO_PATH_TO_BACKUP"
    NOT_A_FORWARDER = "NOT_A_FORWARDER"
    SLON_NOT_RUNNING = "SLON_NOT_RUNNING"


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Something in the way at a node, in words; `other`: the node or the set that it is about."""

    bar: Bar
    node: int
    detail: str
    other: int | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """What a rule has found.

    Args:
        needed: nodes whose views it needs.
        fixed: what it waits for; only what no view that was absent could change.
    """

    needed: frozenset[int]
    fixed: Fixed = field(default_factory=dict)
    missing: tuple[Missing, ...] = ()
    obstacles: tuple[Obstacle, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer.

    Args:
        not_evaluated: nodes whose view is needed and was not there.
        fixed: what is waited for from now on; given to `judge` again, it asks for nothing younger.
        needed: nodes whose views it took, or would have taken.
    """

    missing: tuple[Missing, ...]
    not_evaluated: tuple[int, ...]
    obstacles: tuple[Obstacle, ...] = ()
    fixed: Fixed = field(default_factory=dict, compare=False)
    needed: frozenset[int] = field(default=frozenset(), compare=False)

    @property
    def is_met(self) -> bool:
        """Whether slonik's command may be submitted."""
        return not self.missing and not self.not_evaluated and not self.obstacles

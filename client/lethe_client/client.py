"""The client: one connection pool, one token, the resources as attributes."""

from types import TracebackType
from typing import Any, Self

import httpx

from lethe_client.archives import Archives
from lethe_client.audits import Audits
from lethe_client.backups import Backups, Protections
from lethe_client.changes import Changes
from lethe_client.dead_letters import DeadLetters
from lethe_client.ds389 import Ds389
from lethe_client.entries import Entries
from lethe_client.environment import from_environment
from lethe_client.erasure import Erasure
from lethe_client.errors import ProblemError, TransportFailed
from lethe_client.extinctions import Extinctions
from lethe_client.fleet import Fleet
from lethe_client.jobs import Jobs
from lethe_client.operation import Audit, Instances
from lethe_client.parameters import Parameters
from lethe_client.purges import Purges
from lethe_client.replica_clock import DiscardGrants, KnownKeys, ReplicaClocks
from lethe_client.replica_snapshots import ReplicaSnapshots
from lethe_client.replication import Replication
from lethe_client.replication_agreements import Agreements
from lethe_client.replication_sessions import ReplicationSessions
from lethe_client.retries import RetryPolicy
from lethe_client.schedules import Schedules, Windows
from lethe_client.secrets import Secrets
from lethe_client.signing_keys import SigningKeys
from lethe_client.slony import Slony
from lethe_client.slony_changes import SlonyChanges
from lethe_client.spark_pool import SparkPool
from lethe_client.stores import Stores
from lethe_client.tokens import Tokens
from lethe_client.transport import Call, Transport
from lethe_client.webhooks import Webhooks


class Lethe:
    """A Lethe service.

    Args:
        url: such as `http://127.0.0.1:8765`.
        token: the bearer token.
        timeout_s: of one request; long polls and streams have their own.
        retries: how often and how long an unanswered or postponed request is sent again.
        verify: as httpx takes it: False, or an SSL context for a private authority.
        transport: another httpx transport, for tests and special networks.
    Raises: ConfigurationInvalid: the URL or the token cannot be used.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout_s: float = 30.0,
        retries: RetryPolicy | None = None,
        verify: Any = True,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        retries = retries or RetryPolicy()
        self._transport = Transport(
            url, token, timeout_s=timeout_s, retries=retries, verify=verify, transport=transport
        )
        self.jobs = Jobs(self._transport)
        self.stores = Stores(self._transport)
        self.secrets = Secrets(self._transport)
        self.purges = Purges(self._transport, self.jobs)
        self.fleet = Fleet(self._transport)
        self.archives = Archives(self._transport)
        self.erasure = Erasure(self._transport, self.jobs)
        self.extinctions = Extinctions(self._transport, self.jobs)
        self.signing_keys = SigningKeys(self._transport)
        self.backups = Backups(self._transport)
        self.protections = Protections(self._transport)
        self.replication = Replication(self._transport)
        self.agreements = Agreements(self._transport)
        self.replication_sessions = ReplicationSessions(self._transport)
        self.discard_grants = DiscardGrants(self._transport)
        self.known_keys = KnownKeys(self._transport)
        self.replica_clocks = ReplicaClocks(self._transport)
        self.audits = Audits(self._transport)
        self.replica_snapshots = ReplicaSnapshots(self._transport)
        self.dead_letters = DeadLetters(self._transport)
        self.changes = Changes(self._transport)
        self.entries = Entries(self._transport)
        self.slony = Slony(self._transport, self.jobs)
        self.ds389 = Ds389(self._transport)
        self.slony_changes = SlonyChanges(self._transport)
        self.schedules = Schedules(self._transport)
        self.windows = Windows(self._transport)
        self.parameters = Parameters(self._transport)
        self.tokens = Tokens(self._transport)
        self.audit = Audit(self._transport)
        self.webhooks = Webhooks(self._transport)
        self.instances = Instances(self._transport)
        self.spark_pool = SparkPool(self._transport)

    @classmethod
    def from_env(
        cls, *, timeout_s: float = 30.0, retries: RetryPolicy | None = None, verify: Any = True
    ) -> Self:
        """The service of LETHE_URL, with the token of LETHE_TOKEN or in the file of LETHE_TOKEN_FILE.

        Raises: ConfigurationInvalid: LETHE_URL is not set, or the file cannot be read.
        """
        url, token = from_environment()
        return cls(url, token, timeout_s=timeout_s, retries=retries, verify=verify)

    @property
    def url(self) -> str:
        return self._transport.url

    def is_ready(self) -> bool:
        """Ask /readyz once, without a retry's patience for a refusal; False also where nothing listens."""
        try:
            self._transport.request(Call(method="GET", path="/readyz"))
        except (ProblemError, TransportFailed):
            return False
        return True

    def close(self) -> None:
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

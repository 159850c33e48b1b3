"""Every limit of the service, with its unit in its name. Environment: `LETHE_` and the name in capitals."""

import os
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, ConfigDict, Field, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from app.kit.model import Model
from app.kit.spark.settings import SparkSettings as SparkSettings
from app.kit.texts.listed import networks, split
from spark.pool.master import is_on_loopback
from spark.targets.target import is_loopback


def _safe_url(value: str | None) -> str | None:
    if value is None:
        return None
    parts = urlsplit(value)
    if parts.scheme == "https" and parts.hostname:
        return value
    if parts.scheme == "http" and is_loopback(parts.hostname or ""):
        return value
    raise ValueError("must be https:// (http:// only on this machine)")


Role = Literal["admin", "operator", "viewer", "backup", "peer", "writer"]
"""What a token may do; app.auth.scopes has the scopes of each."""

SigningAlgorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519", "EdDSA"
]
"""Of keys whose public half checks; never a shared secret, never none."""

EngineChoice = Literal["AUTO", "INLINE", "SPARK"]
"""What runs the units of a job; AUTO decides by the estimated rows when the job runs."""


class OidcSettings(Model):
    """Tokens of an OpenID Connect provider. Environment: `LETHE_OIDC__` and the name in capitals."""

    model_config = ConfigDict(extra="forbid")

    issuer: str | None = None
    """As its tokens name it, `https://...`; null: only tokens that Lethe has made are taken."""
    audience: Annotated[list[str], NoDecode] = Field(default=[])
    """A token must be for one of these."""
    jwks_url: str | None = None
    """Where its keys are; null: where its discovery says."""
    algorithms: Annotated[list[SigningAlgorithm], NoDecode] = Field(
        default=["RS256", "PS256", "ES256", "Ed25519", "EdDSA"]
    )
    role_claim: Annotated[str, Field(min_length=1)] = "roles"
    """The claim that names roles; `a.b` looks for b inside of a."""
    roles: dict[str, Role] = Field(default={})
    """From a name in that claim to a role here, as JSON."""
    stores_claim: str | None = None
    """The claim that names the stores a token is limited to (`*`: none); null: no token of it is limited."""
    name_claim: str = "preferred_username"
    """How the caller is called in audit rows and jobs; where a token lacks it, by its claim sub."""
    hosts: Annotated[list[str], NoDecode] = Field(default=[])
    """Hosts, addresses and networks that the provider may be at; none: any."""
    ca_file: Path | None = None
    """Whom to trust for its certificate; null: whom this machine trusts."""
    leeway_s: Annotated[int, Field(ge=0, le=300)] = 30
    keys_fresh_s: Annotated[float, Field(ge=1, le=86_400)] = 300.0
    """After so long the keys are asked for again."""

    @field_validator("audience", "algorithms", "hosts", mode="before")
    @classmethod
    def _comma_separated(cls, value: object) -> object:
        return split(value)

    @field_validator("issuer", "jwks_url")
    @classmethod
    def _safe_way(cls, value: str | None) -> str | None:
        """Keys that come in the clear are anybody's, but from this machine."""
        return _safe_url(value)

    @model_validator(mode="after")
    def _whole(self) -> "OidcSettings":
        """An issuer alone lets nobody in, or everybody that it knows."""
        if self.issuer is not None and not self.audience:
            raise ValueError("LETHE_OIDC__ISSUER needs LETHE_OIDC__AUDIENCE: whom its tokens are for")
        if self.issuer is not None and not self.roles:
            raise ValueError("LETHE_OIDC__ISSUER needs LETHE_OIDC__ROLES: what its tokens may do here")
        return self


class VaultSettings(Model):
    """HashiCorp Vault, for secrets `vault:MOUNT/PATH#FIELD`. Environment: `LETHE_VAULT__` and the name."""

    model_config = ConfigDict(extra="forbid")

    url: str | None = None
    """`https://...`; null: there is none."""
    token_file: Path | None = None
    """A file with a token, read at each use: an agent may replace it. Or an AppRole:"""
    role_id: str | None = None
    secret_id_file: Path | None = None
    approle_mount: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+(/[A-Za-z0-9_-]+)*$")] = "approle"
    namespace: str | None = None
    hosts: Annotated[list[str], NoDecode] = Field(default=[])
    """Hosts, addresses and networks that it may be at; none: any."""
    ca_file: Path | None = None
    """Whom to trust for its certificate; null: whom this machine trusts."""
    timeout_s: Annotated[float, Field(gt=0, le=30)] = 5.0
    """Of one look, a login included, however slowly it answers."""

    @field_validator("hosts", mode="before")
    @classmethod
    def _comma_separated(cls, value: object) -> object:
        return split(value)

    @field_validator("url")
    @classmethod
    def _safe_way(cls, value: str | None) -> str | None:
        return _safe_url(value)

    @model_validator(mode="after")
    def _whole(self) -> "VaultSettings":
        """One way to log in."""
        if (self.role_id is None) != (self.secret_id_file is None):
            raise ValueError("LETHE_VAULT__ROLE_ID and LETHE_VAULT__SECRET_ID_FILE belong together")
        if self.url is not None and (self.role_id is None) == (self.token_file is None):
            raise ValueError(
                "LETHE_VAULT__URL needs LETHE_VAULT__TOKEN_FILE, or LETHE_VAULT__ROLE_ID and"
                " LETHE_VAULT__SECRET_ID_FILE"
            )
        return self


class Settings(BaseSettings):
    """Settings of one process of Lethe.

    Lists are given as comma-separated text (`LETHE_LABELS=zone-a,fast`).
    """

    model_config = SettingsConfigDict(env_prefix="LETHE_", env_nested_delimiter="__", extra="ignore")

    # where it lives
    data_dir: Path = Path("lethe-data")
    metadata_url: str | None = None
    archive_root: Path | None = None
    archive_free_min_mb: Annotated[int, Field(ge=0)] = 64
    data_free_min_mb: Annotated[int, Field(ge=0)] = 16
    """Less than this in the data directory, and less than a twentieth of its file system: /readyz tells."""
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8765
    api_processes: Annotated[int, Field(ge=1, le=64)] = 1
    """Processes that answer the API; more than one: beside the one that runs the jobs (PostgreSQL)."""
    tls_cert: Path | None = None
    tls_key: Path | None = None
    behind_proxy: bool = False
    proxy_addresses: Annotated[list[str], NoDecode, AfterValidator(networks)] = ["127.0.0.1", "::1"]
    """Addresses and networks whose word on the client and its scheme is taken, behind a proxy."""
    migrate: bool = False
    labels: Annotated[list[str], NoDecode] = []
    otel: bool = False
    cors_origins: Annotated[list[str], NoDecode] = []

    # what stores may name
    allowed_roots: Annotated[list[Path], NoDecode] = []
    allowed_hosts: Annotated[list[str], NoDecode] = []
    """Hosts, addresses, networks, directories of sockets, each judged at every connection; none: any host."""
    secrets_dir: Path | None = None
    """Where files with secrets lie; null: there are none, only variables LETHE_SECRET_*."""
    exec_secrets: dict[str, Annotated[list[str], Field(min_length=1, max_length=100)]] = {}
    """Commands that print a secret, as JSON: from the NAME of `exec:NAME` to program and arguments."""
    exec_secret_timeout_s: Annotated[float, Field(gt=0, le=120)] = 10.0
    secrets_fresh_s: Annotated[float, Field(ge=0, le=300)] = 5.0
    """How long what a command or Vault said is used without asking again."""
    vault: VaultSettings = VaultSettings()

    # HTTP
    request_body_max_bytes: Annotated[int, Field(ge=1024)] = 1_048_576
    request_headers_timeout_s: Annotated[float, Field(gt=0)] = 10.0
    """From a connection's beginning, or the first byte after a rest, until a request's headers are here."""
    request_body_chunk_timeout_s: Annotated[float, Field(gt=0)] = 15.0
    """How long nothing of a body may come; then 408."""
    request_body_timeout_s: Annotated[float, Field(gt=0)] = 300.0
    """Of a whole body; what we take to read it does not count."""
    connections_max: Annotated[int, Field(ge=16)] = 10_000
    """Fewer where the process may open fewer files. One more ends the oldest that asks for nothing."""
    connections_per_address_max: Annotated[int, Field(ge=8)] = 4_000
    """Not behind a proxy, whose address is everybody's."""
    descriptors_reserved: Annotated[int, Field(ge=32)] = 512
    """For metadata, targets and logs; at most half of what the process may open."""
    bodies_per_token_max: Annotated[int, Field(ge=1)] = 256
    """Bodies of one token that have begun and not ended."""
    bodies_per_address_max: Annotated[int, Field(ge=1)] = 64
    """The same of an address, for those without a known token."""
    token_requests_per_s: Annotated[float, Field(gt=0)] = 500.0
    token_requests_burst: Annotated[float, Field(ge=1)] = 5_000.0
    address_failures_per_s: Annotated[float, Field(gt=0)] = 20.0
    """Requests of one address that are not authenticated; then 429, but for tokens that were good before."""
    address_failures_burst: Annotated[float, Field(ge=1)] = 1_000.0
    refusal_delay_max_s: Annotated[float, Field(ge=0, le=10)] = 1.0
    """How long the answer 401 or 403 waits where many went to one address or token before; 0: never."""
    refusals_written_s: Annotated[float, Field(gt=0, le=3600)] = 60.0
    """How often refused requests are written to the audit, a row for each address."""
    api_threads_max: Annotated[int, Field(ge=4, le=400)] = 24
    waiters_max: Annotated[int, Field(ge=1)] = 2_000
    wait_max_s: Annotated[int, Field(ge=1, le=60)] = 60
    plan_wait_default_s: Annotated[int, Field(ge=0, le=60)] = 10
    plan_away_max_s: Annotated[float, Field(ge=0, le=3_600)] = 20.0
    """How long a plan tries a target that does not answer."""
    watch_interval_s: Annotated[float, Field(gt=0)] = 0.25
    sse_keepalive_s: Annotated[float, Field(gt=0)] = 15.0
    stream_max_s: Annotated[float, Field(ge=0.1)] = 3_600.0
    """After so long a stream of /v1/events ends; whoever listens goes on by Last-Event-ID."""
    change_feeds_max: Annotated[int, Field(ge=1)] = 1_000
    """Readers of change feeds at a time, long polls and streams."""
    change_feeds_per_token_max: Annotated[int, Field(ge=1)] = 250
    stream_stalled_s: Annotated[float, Field(gt=0)] = 30.0
    """How long a reader of a stream may take nothing; then it is cut."""
    stop_grace_s: Annotated[float, Field(gt=0, le=15)] = 12.0

    console: Literal["ON", "READ_ONLY", "OFF"] = "ON"
    """The operator's console below /console; READ_ONLY: it shows, and changes nothing."""

    # callers
    oidc: OidcSettings = OidcSettings()

    # metadata
    metadata_pool_size: Annotated[int, Field(ge=2)] = 10
    metadata_pool_timeout_s: Annotated[float, Field(gt=0)] = 20.0
    metadata_lock_timeout_ms: Annotated[int, Field(ge=100)] = 5_000
    metadata_statement_timeout_ms: Annotated[int, Field(ge=1000)] = 30_000

    # jobs
    runner_jobs_max: Annotated[int, Field(ge=1, le=64)] = 4
    runner_spark_jobs_max: Annotated[int, Field(ge=0, le=64)] = 28
    """More bulk jobs, whose units the pool runs: they only plan and wait in this process."""
    runner_interactive_jobs_max: Annotated[int, Field(ge=1, le=64)] = 2
    runner_poll_interval_s: Annotated[float, Field(gt=0)] = 0.5
    lease_ttl_s: Annotated[float, Field(gt=0)] = 90.0
    lease_renew_interval_s: Annotated[float, Field(gt=0)] = 20.0
    lease_self_stop_s: Annotated[float, Field(gt=0)] = 60.0
    crash_loop_max: Annotated[int, Field(ge=1)] = 5
    job_retries_max: Annotated[int, Field(ge=0)] = 30
    job_retry_backoff_max_s: Annotated[float, Field(gt=0)] = 30.0
    progress_interval_s: Annotated[float, Field(ge=0)] = 0.5
    jobs_queued_max: Annotated[int, Field(ge=1)] = 10_000
    cancel_grace_s: Annotated[float, Field(ge=0)] = 2.0
    schedules_poll_s: Annotated[float, Field(ge=5, le=60)] = 30.0
    """How often schedules are looked at while none is due: so late is one that another instance wrote."""
    schedules_late_s: Annotated[float, Field(ge=60, le=86_400)] = 3_600.0
    """How late a schedule is still begun that its service could not begin in time: its metadata was away."""

    # webhooks
    webhook_source: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[!-~]+$")] = "lethe"
    """`source` of the events that leave: a URI reference that tells this Lethe from others."""
    webhook_timeout_s: Annotated[float, Field(ge=1, le=30)] = 15.0
    """Of one whole attempt to deliver an event, however slowly its receiver answers."""

    # targets
    target_connect_timeout_s: Annotated[int, Field(ge=1, le=60)] = 5
    target_lock_timeout_ms: Annotated[int, Field(ge=10, le=900)] = 500
    target_statement_timeout_ms: Annotated[int, Field(ge=1000)] = 30_000
    target_idle_in_transaction_timeout_ms: Annotated[int, Field(ge=1000)] = 30_000

    store_check_s: Annotated[float, Field(ge=0, le=604_800)] = 300.0
    """How often each store is looked at by itself, as `:check` does, where `store.check.period` says nothing
    else; 0: never."""

    # engine
    engine: EngineChoice = "AUTO"
    spark: SparkSettings = SparkSettings()

    # purge
    purge_workers: Annotated[int, Field(ge=1, le=32)] = 2
    purge_unit_rows: Annotated[int, Field(ge=100, le=1_000_000)] = 20_000
    purge_unit_target_ms: Annotated[int, Field(ge=10)] = 300
    purge_window_units: Annotated[int, Field(ge=1, le=1000)] = 32
    purge_unit_retries_max: Annotated[int, Field(ge=0)] = 8
    plan_valid_s: Annotated[int, Field(ge=60)] = 86_400

    # replication, the consumer's side
    replication_bulk_max_bytes: Annotated[int, Field(ge=1024)] = 33_554_432
    """Of one request with local changes, as it arrives and when it is decoded."""
    replication_batch_rows: Annotated[int, Field(ge=1, le=100_000)] = 10_000
    replication_batch_max_bytes: Annotated[int, Field(ge=1_200_000)] = 8_388_608
    """Of one batch of a session, as it arrives and when it is decoded; the largest record must fit."""
    replication_in_flight: Annotated[int, Field(ge=1, le=4)] = 4
    """So many batches of one session are here at a time."""
    replication_batches_max: Annotated[int, Field(ge=1, le=1_000)] = 32
    """Of all sessions: with the bytes of a batch, what they take of memory."""
    replication_batches_per_token_max: Annotated[int, Field(ge=1, le=1_000)] = 8
    """Of all sessions of one token: it must not stop those of others."""
    replication_parking_s: Annotated[float, Field(gt=0, le=60)] = 5.0
    """How long a batch waits for those before it."""

    replication_unproven_peers: bool = False
    """Whether peers of a version that proves nothing of its history are let in."""
    replication_trusted_suppliers: Annotated[list[int], NoDecode] = []
    """Replica ids that may bring changes of others without the signature of those."""

    # replication, the supplier's side
    replication_tick_s: Annotated[float, Field(gt=0)] = 1.0
    """How often agreements with an interval are asked whether a session is due."""
    replication_lease_s: Annotated[float, Field(ge=3, le=60)] = 60.0
    """How long a consumer that hears nothing more of a session waits before it takes another supplier's."""

    # replication, local changes
    replication_group_changes_max: Annotated[int, Field(ge=1, le=100_000)] = 1_000
    """So many changes of several requests share one transaction."""
    replication_group_wait_ms: Annotated[int, Field(ge=0, le=1_000)] = 5
    """So long a group waits for requests that are being read; one that is alone does not wait."""
    replication_waiting_requests_max: Annotated[int, Field(ge=1)] = 2_000
    replication_waiting_max_bytes: Annotated[int, Field(ge=1024)] = 134_217_728
    """What requests with changes may hold in memory together; more are sent away with 503."""

    # erasure
    erasure_wait_in_job_s: Annotated[float, Field(ge=0)] = 5.0
    """A cycle sleeps so long in its job; for longer waits it gives thread, lease and hands back."""
    erasure_look_again_s: Annotated[float, Field(gt=0)] = 60.0
    """How often a cycle looks whether what stands in its way has passed."""
    erasure_environment_look_s: Annotated[float, Field(gt=0)] = 5.0
    """How often it looks whether an environment that is in use has become free."""
    erasure_tick_s: Annotated[float, Field(gt=0)] = 2.0
    """How often stores are asked whether a cycle is due, or their parameters have changed."""

    @field_validator(
        "labels",
        "cors_origins",
        "allowed_roots",
        "allowed_hosts",
        "proxy_addresses",
        "replication_trusted_suppliers",
        mode="before",
    )
    @classmethod
    def _comma_separated(cls, value: object) -> object:
        return split(value)

    @property
    def effective_metadata_url(self) -> str:
        """The metadata database's SQLAlchemy URL; a SQLite file in the data directory by default."""
        if self.metadata_url is None:
            return f"sqlite:///{(self.data_dir / 'lethe.db').absolute()}"
        return self.metadata_url

    @property
    def executors_are_here(self) -> bool:
        """Whether workers of Spark run on this machine, see its files and what listens on loopback."""
        master = self.spark.master
        return master is None or master.startswith("local") or is_on_loopback(master)

    @property
    def spark_is_encrypted(self) -> bool:
        """Whether driver and executors know each other and encrypt: tasks carry passwords."""
        wanted = self.spark.encryption
        return wanted if wanted is not None else not self.executors_are_here

    @property
    def archives_reach_executors(self) -> bool:
        """Whether what a worker of Spark writes under the archive root can lie where this process looks.

        A data directory is a machine's own: beyond this machine it takes a root that an admin has named.
        """
        return self.executors_are_here or self.archive_root is not None

    @property
    def effective_archive_root(self) -> Path:
        """Where archives lie when an admin names no other root."""
        return self.own_archives if self.archive_root is None else self.archive_root.absolute()

    @property
    def own_archives(self) -> Path:
        """Where archives of this instance lie unless a root is named."""
        return (self.data_dir / "archive").absolute()


def variables_like_settings() -> list[str]:
    """The names of the variables that begin as those of settings do, in capitals."""
    prefix = Settings.model_config["env_prefix"]
    return [name.upper() for name in os.environ if name.upper().startswith(prefix)]

"""Settings of the pooled Spark session."""

from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from app.kit.model import Model
from spark.pool.master import check_master
from spark.pool.refused import check_conf

KUBERNETES_NAME: Final = r"^[a-z0-9]([-a-z0-9]{0,54}[a-z0-9])?$"
"""Of which Spark makes the name of a volume, too."""
ACCOUNT_NAME: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
"""As Kubernetes has them: names with dots between."""
ACCOUNT_NAME_MAX_CHARS: Final = 253


class SparkSettings(Model):
    """The pooled Spark session. Environment: `LETHE_SPARK__` and the name in capitals; no other names."""

    model_config = ConfigDict(extra="forbid")

    enabled: bool = True
    start: Literal["LAZY", "EAGER"] = "LAZY"
    master: str | None = None
    """Null: on this machine, with `cores`; else `spark://host:port`, which alone makes a cluster of it."""
    python: Path | None = None
    """Interpreter of the workers, the same path on all machines; null: this process's own."""
    cores: Annotated[int | None, Field(ge=1, le=256)] = None
    """Of a local master; null: all of this machine."""
    slots: Annotated[int, Field(ge=1, le=64)] = 4
    queue_max: Annotated[int, Field(ge=1, le=10_000)] = 32
    driver_memory: Annotated[str, Field(pattern=r"^[1-9][0-9]*[kmgKMG]$")] = "2g"
    driver_host: str | None = None
    executor_memory: Annotated[str, Field(pattern=r"^[1-9][0-9]*[kmgKMG]$")] = "1g"
    executor_cores: Annotated[int | None, Field(ge=1)] = None
    cores_max: Annotated[int | None, Field(ge=1)] = None
    executors: Annotated[int | None, Field(ge=1, le=10_000)] = None
    """So many of a cluster, always; null: what it gives, or between `executors_min` and `executors_max`."""
    executors_min: Annotated[int, Field(ge=1, le=10_000)] = 1
    executors_max: Annotated[int | None, Field(ge=1, le=10_000)] = None
    """Named: executors come with the work and go when they are idle, so that others may have them."""
    image: str | None = None
    """Of executors on Kubernetes."""
    namespace: str | None = None
    """Of executors on Kubernetes; null: Spark's own default."""
    service_account: Annotated[str | None, Field(pattern=ACCOUNT_NAME, max_length=ACCOUNT_NAME_MAX_CHARS)] = (
        None
    )
    """Of executors on Kubernetes, which ask its API nothing; null: the namespace's own."""
    archives: list[str] = Field(default=[])
    """Sent to the executors and unpacked there, as `env.tar.gz#environment`; `python` may lie in one."""
    encryption: bool | None = None
    """Authentication and encryption between driver and executors; null: where the master is not here."""
    secret_file: Path | None = None
    """Holds the secret of a standalone master and its workers, or of executors on Kubernetes."""
    secret_name: Annotated[str | None, Field(pattern=KUBERNETES_NAME)] = None
    """Of the secret of Kubernetes with that file; executors get it mounted at the same path."""
    ui: bool = False
    ui_port: Annotated[int, Field(ge=1, le=65_535)] = 4_040
    event_log_dir: Path | None = None
    """Folder of Spark's event logs, for a history server; null: none are written."""
    cds_archive: Path | None = None
    local_dir: Path | None = None
    """For shuffles and our zip; null: `spark` in the data directory. A start removes what the dead left."""
    java_home: Path | None = None
    java_options: list[str] = Field(default=[])
    start_timeout_s: Annotated[float, Field(gt=0)] = 120.0
    stop_timeout_s: Annotated[float, Field(gt=0, le=10)] = 3.0
    max_age_s: Annotated[float, Field(gt=0)] = 86_400.0
    max_jobs: Annotated[int, Field(ge=1)] = 5_000
    conf: dict[str, str] = Field(default={})
    """More of Spark's own configuration, as JSON; never a secret: `ps` shows it."""
    min_rows: Annotated[int, Field(ge=0)] = 100_000
    """AUTO takes Spark from so many rows on; counts where it is named, else AUTO goes by measurement."""
    erase_min_bytes: Annotated[int, Field(ge=0)] = 4 * 1024**3
    """AUTO takes Spark for an erasure from a log of so many bytes on; counts where it is named."""
    window_min_changes: Annotated[int, Field(ge=0)] = 200_000
    """A session's window of so many changes on is read by Spark; counts where it is named."""
    verify_min_bytes: Annotated[int, Field(ge=0)] = 1_000_000_000
    """AUTO has Spark read an archive of so many bytes on again; counts where it is named."""
    task_ms: Annotated[int, Field(ge=10, le=60_000)] = 1_500
    """How much work is sent as one task."""
    units_ahead_max: Annotated[int, Field(ge=1, le=10_000)] = 128

    @field_validator("conf")
    @classmethod
    def _may_be_set(cls, value: dict[str, str]) -> dict[str, str]:
        check_conf(value)
        return value

    @model_validator(mode="after")
    def _executors_in_order(self) -> Self:
        if self.executors_max is None:
            return self
        if self.executors is not None:
            raise ValueError("executors_max lets their number change, executors fixes it: name one of them")
        if self.executors_min > self.executors_max:
            raise ValueError("executors_min is more than executors_max")
        return self

    @field_validator("master", mode="before")
    @classmethod
    def _known_master(cls, value: object) -> object:
        return check_master(value.strip()) if isinstance(value, str) and value.strip() else None

"""The types of a store's fields: names, places, references, each with its rule."""

from datetime import timedelta
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from annotated_types import Ge, Le
from pydantic import AfterValidator, Strict, StringConstraints

from app.kit.durations import Duration
from spark.formats.csn import CSN_CHARS, RID_MAX, RID_MIN
from spark.formats.slony import CLUSTER_MAX_CHARS
from spark.targets.errors import TargetUrlInvalid
from spark.targets.target import validate_place

Label = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$")]
Identifier = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,62}$")]
Prefix = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,29}$")]
ClusterName = Annotated[
    str, StringConstraints(pattern=rf"^[A-Za-z0-9_][A-Za-z0-9_ -]{{0,{CLUSTER_MAX_CHARS - 1}}}$")
]


def _plain_path(path: str) -> str:
    if not path.startswith("/") or "\x00" in path or ".." in path.split("/"):
        raise ValueError("an absolute path without '..'")
    return path


def _short_grace(value: timedelta) -> timedelta:
    if not timedelta(0) <= value <= timedelta(days=365):
        raise ValueError("from PT0S to P365D")
    return value


def _known_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError("not an IANA time zone") from error
    return name


def _openable_url(url: str) -> str:
    try:
        validate_place(url)
    except TargetUrlInvalid as error:
        raise ValueError(error.detail) from error
    return url


TimeZone = Annotated[str, StringConstraints(max_length=64), AfterValidator(_known_zone)]
StoreUrl = Annotated[str, StringConstraints(min_length=1, max_length=1000), AfterValidator(_openable_url)]


EnvironmentPath = Annotated[
    str, StringConstraints(min_length=2, max_length=1000), AfterValidator(_plain_path)
]
Grace = Annotated[Duration, AfterValidator(_short_grace)]
ReplicaId = Annotated[int, Strict(), Ge(RID_MIN), Le(RID_MAX)]
CsnText = Annotated[str, StringConstraints(pattern=rf"^[0-9a-f]{{{CSN_CHARS}}}$")]
DnText = Annotated[
    str, StringConstraints(min_length=3, max_length=1000, pattern=r"^[^\x00-\x1f=]+=[^\x00-\x1f]+$")
]

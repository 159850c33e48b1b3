"""Imports every models module: the metadata that migrations see."""

from sqlmodel import SQLModel

from app.archives import models as archives
from app.auth import models as auth
from app.backups import models as backups
from app.erase import models as erase
from app.erase import signing_models as certificates
from app.events import tick_models as events
from app.extinction import models as extinction
from app.jobs import models as jobs
from app.parameters import models as parameters
from app.protection import models as protection
from app.purge import tick_models as purge
from app.replication import discard_rows as discards
from app.replication import rows as replication
from app.secrets import models as secrets
from app.stores import models as stores

metadata = SQLModel.metadata

__all__ = [
    "archives",
    "auth",
    "backups",
    "certificates",
    "discards",
    "erase",
    "events",
    "extinction",
    "jobs",
    "metadata",
    "parameters",
    "protection",
    "purge",
    "replication",
    "secrets",
    "stores",
]

"""Imports every models module: the metadata that migrations see."""

from sqlmodel import SQLModel

from app.archives import models as archives
from app.auth import models as auth
from app.backups import models as backups
from app.erase import rows as erase
from app.erase.certificates import rows as certificates
from app.events.cleanup import rows as events
from app.extinction import rows as extinction
from app.jobs import models as jobs
from app.parameters import models as parameters
from app.protection import models as protection
from app.purge import rows as purge
from app.replication import rows as replication
from app.replication.consumer import rows as discards
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

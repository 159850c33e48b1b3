"""Imports every rows module: the metadata that migrations see."""

from sqlmodel import SQLModel

from app.archives import rows as archives
from app.auth import rows as auth
from app.backups import rows as backups
from app.erase import rows as erase
from app.erase.certificates import rows as certificates
from app.events import rows as events
from app.extinction import rows as extinction
from app.feed import rows as feed
from app.figures import rows as figures
from app.jobs import rows as jobs
from app.outbox import rows as outbox
from app.parameters import rows as parameters
from app.protection import rows as protection
from app.purge.backlog import rows as backlog
from app.replication import rows as replication
from app.replication.consumer.discards import rows as discards
from app.schedules import rows as schedules
from app.schedules.windows import rows as windows
from app.secrets import rows as secrets
from app.stores import rows as stores
from app.stores.checks import rows as checks
from app.sweeps import rows as sweeps

metadata = SQLModel.metadata

__all__ = [
    "archives",
    "auth",
    "backlog",
    "backups",
    "certificates",
    "checks",
    "discards",
    "erase",
    "events",
    "extinction",
    "feed",
    "figures",
    "jobs",
    "metadata",
    "outbox",
    "parameters",
    "protection",
    "replication",
    "schedules",
    "secrets",
    "stores",
    "sweeps",
    "windows",
]

"""The recurring purge of tombstones."""

from functools import partial
from typing import Final

from app.replication.purges.recurring import recurring_purge
from app.replication.tombstones.service import unseen
from app.sweeps.purging import TOMBSTONES
from app.sweeps.tick import submit_due

TOMBSTONE_INTERVAL: Final = "nsds5ReplicaTombstonePurgeInterval"
BURIALS: Final = recurring_purge(TOMBSTONES, parameter=TOMBSTONE_INTERVAL, unseen=unseen)
tombstone_tick_once = partial(submit_due, BURIALS)

"""The kinds of purges, each a value."""

from collections.abc import Mapping

from app.purge.kinds.data_gap import DATA_GAP
from app.purge.kinds.incoming import INCOMING
from app.purge.kinds.kind import Kind
from app.purge.kinds.outgoing import OUTGOING
from app.purge.kinds.upkeep import UPKEEP
from app.purge.models import PurgeKind

KINDS: Mapping[PurgeKind, Kind] = {kind.kind: kind for kind in (OUTGOING, INCOMING, DATA_GAP, *UPKEEP)}

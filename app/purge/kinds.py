"""The kinds of purges, each a value."""

from collections.abc import Mapping

from app.purge.data_gap import DATA_GAP
from app.purge.incoming import INCOMING
from app.purge.kind import Kind
from app.purge.models import PurgeKind
from app.purge.outgoing import OUTGOING

KINDS: Mapping[PurgeKind, Kind] = {kind.kind: kind for kind in (OUTGOING, INCOMING, DATA_GAP)}

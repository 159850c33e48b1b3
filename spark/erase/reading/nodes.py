"""Which versions of tree nodes are old."""

import numpy as np

from spark.erase.reading.log import Entries, Mask, Nodes, mark
from spark.formats.je.log import EntryType


def find_old_nodes(entries: Entries, nodes: Nodes, *, first_active: int) -> Mask:
    """Find the nodes before the checkpoint that nothing keeps.

    Kept are: per (database, node) the newest version before the checkpoint; the full BIN that a kept delta
    completes; the full BIN of every delta at or behind the checkpoint's first active LSN.
    """
    lsn = entries.lsn[nodes.entry]
    before = lsn < first_active
    rows = np.flatnonzero(before)
    order = rows[np.lexsort((nodes.node[rows], nodes.db[rows]))]
    ends = np.ones(len(order), dtype=bool)
    ends[:-1] = (nodes.db[order][1:] != nodes.db[order][:-1]) | (
        nodes.node[order][1:] != nodes.node[order][:-1]
    )
    kept = np.zeros(len(lsn), dtype=bool)
    kept[order[ends]] = True
    is_delta = entries.type[nodes.entry] == EntryType.BIN_DELTA
    needed = nodes.last_full[is_delta & (kept | ~before)]
    kept |= mark(lsn, needed)
    return before & ~kept

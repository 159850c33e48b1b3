"""Who supplies whom among the replicas of a suffix, and how far each is behind. Pure.

Lag of a consumer in the changes of one replica lies between two ages: the newest change that it lacks is so
old at least, and it has been behind at most since the newest change that it has. The RUVs tell no more.
Where that one is ahead of the clock, its age counts from the newest of all: else nobody would lag before the
clock is there.
"""

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Final
from urllib.parse import urlsplit

from spark.formats.csn import Csn
from spark.replication.ds389.records import Agreement, Edge, Lag, Reading, Readings, Role

Places = dict[str, tuple[str, int]]
"""Host and port of each store."""
LOCAL: Final = frozenset({"localhost", "127.0.0.1", "::1", "localhost.localdomain"})


def edges_of(readings: Readings, places: Places) -> list[Edge]:
    """All agreements of the servers that answered, with who the consumer is."""
    return [
        _edge(store, agreement, readings, places)
        for store, reading in sorted(readings.items())
        for agreement in reading.agreements
    ]


def _edge(store: str, agreement: Agreement, readings: Readings, places: Places) -> Edge:
    consumer = consumer_of(agreement, store, readings, places)
    theirs = None if consumer is None else readings.get(consumer)
    lags = () if theirs is None else tuple(lags_of(readings[store], theirs))
    return Edge(supplier=store, agreement=agreement, consumer=consumer, lags=lags)


def consumer_of(agreement: Agreement, supplier: str, readings: Readings, places: Places) -> str | None:
    """The store that an agreement leads to: by the consumer's RID, else by its address."""
    if agreement.consumer_rid is not None:
        for store, reading in readings.items():
            if reading.rid == agreement.consumer_rid and reading.role is Role.SUPPLIER:
                return store
    wanted = (_host(agreement.host), agreement.port)
    for store, (host, port) in places.items():
        if (_host(host), port) == wanted and store != supplier:
            return store
    for rid in _rids_at(wanted, readings):
        for store, reading in readings.items():
            if reading.rid == rid and store != supplier:
                return store
    near = [store for store, (host, _) in places.items() if _host(host) == wanted[0] and store != supplier]
    return near[0] if len(near) == 1 and wanted[0] not in LOCAL else None


def _rids_at(wanted: tuple[str, int], readings: Readings) -> Iterator[int]:
    """The RIDs that say of themselves, in any RUV, that they are at an address."""
    for reading in readings.values():
        for element in reading.ruv.elements:
            if _place_of(element.purl) == wanted:
                yield element.rid


def _place_of(url: str) -> tuple[str, int] | None:
    """Host and port of a replica's own URL, which may be anything."""
    try:
        parts = urlsplit(url)
        return _host(parts.hostname or ""), parts.port or 389
    except ValueError:
        return None


def _host(host: str) -> str:
    host = host.lower().rstrip(".")
    return "localhost" if host in LOCAL else host


def lags_of(supplier: Reading, consumer: Reading) -> Iterator[Lag]:
    """What the consumer lacks of what the supplier has, by replica; those that are level are left out.

    Both were read at different moments: what the consumer got in between only makes it look better.
    """
    if supplier.ruv.generation != consumer.ruv.generation:
        return
    has = consumer.ruv.maxima
    for rid, csn in sorted(supplier.ruv.maxima.items()):
        seen = has.get(rid)
        if seen is None or seen < csn:
            yield _lag(rid, csn, seen, max(supplier.at, consumer.at))


def rid_lags(readings: Readings) -> dict[str, list[Lag]]:
    """By store: how far it is behind the best of all in the changes of each replica."""
    best: dict[int, Csn] = {}
    for reading in readings.values():
        for rid, csn in reading.ruv.maxima.items():
            best[rid] = max(best.get(rid, csn), csn)
    latest = max((reading.at for reading in readings.values()), default=None)
    found: dict[str, list[Lag]] = {}
    for store, reading in readings.items():
        assert latest is not None, "there is a reading"
        has = reading.ruv.maxima
        behind = {rid: csn for rid, csn in best.items() if rid not in has or has[rid] < csn}
        found[store] = [_lag(rid, csn, has.get(rid), latest) for rid, csn in sorted(behind.items())]
    return found


def _lag(rid: int, best: Csn, seen: Csn | None, now: datetime) -> Lag:
    now_s = now.timestamp()
    seen_s = now_s if seen is None else seen.timestamp
    return Lag(
        rid=rid,
        supplier_csn=best,
        consumer_csn=seen,
        at_least_s=max(0.0, now_s - best.timestamp),
        at_most_s=None if seen is None else float(now_s if seen_s <= now_s else best.timestamp) - seen_s,
    )


def unreached(readings: Readings, edges: list[Edge]) -> dict[str, set[str]]:
    """By store: the servers whose changes never come to it by enabled agreements, on any way."""
    ways: dict[str, set[str]] = {store: set() for store in readings}
    for edge in edges:
        if edge.consumer is not None and edge.agreement.is_enabled:
            ways.setdefault(edge.supplier, set()).add(edge.consumer)
    reached = {store: _reachable(store, lambda each: ways.get(each, set())) for store in readings}
    return {
        store: {
            other
            for other, reading in readings.items()
            if other != store and reading.role is Role.SUPPLIER and store not in reached[other]
        }
        for store in readings
    }


def _reachable(start: str, following: Callable[[str], set[str]]) -> set[str]:
    found, open_ = {start}, [start]
    while open_:
        for each in following(open_.pop()) - found:
            found.add(each)
            open_.append(each)
    return found

"""From what was seen to what clients get."""

from datetime import timedelta

from app.kit.durations import duration_of
from app.replication.ds389.looking import Look
from app.replication.ds389.models import (
    Ds389AgreementRead,
    Ds389FindingRead,
    Ds389HealthRead,
    Ds389LagRead,
    Ds389Role,
    Ds389RuvRead,
    Ds389ServerRead,
    Ds389Status,
    Ds389TopologyRead,
)
from app.stores.rows import Store
from spark.replication.ds389.judge import worst
from spark.replication.ds389.records import Edge, HealthFinding, Lag, Reading
from spark.replication.ds389.topology import rid_lags


def shown_health(seen: Look) -> Ds389HealthRead:
    """The findings, and the servers."""
    return Ds389HealthRead(
        suffix=seen.suffix,
        status=Ds389Status(worst(seen.found).value),
        servers=shown_servers(seen),
        findings=[shown_finding(each) for each in seen.found],
    )


def shown_topology(seen: Look) -> Ds389TopologyRead:
    """The servers, and who supplies whom."""
    return Ds389TopologyRead(
        suffix=seen.suffix,
        servers=shown_servers(seen),
        agreements=[_agreement(each) for each in seen.edges],
    )


def shown_servers(seen: Look) -> list[Ds389ServerRead]:
    """Each server that was to be asked."""
    lags = rid_lags(seen.readings)
    rids = {each.store.id: each.rid for each in seen.unasked}
    return [
        _server(seen, store, seen.readings[store.id], lags[store.id])
        if store.id in seen.readings
        else _nothing(seen, store, rids.get(store.id))
        for store in seen.stores
    ]


def shown_finding(one: HealthFinding) -> Ds389FindingRead:
    """One finding."""
    return Ds389FindingRead.model_validate(
        {
            "code": one.code,
            "severity": Ds389Status(one.severity.value),
            "servers": list(one.servers),
            "rid": one.rid,
            "agreement": one.agreement,
            "detail": one.detail,
            "advice": one.advice,
            "measured": one.measured,
            "limit": one.limit,
        }
    )


def _status(seen: Look, store: str) -> Ds389Status:
    return Ds389Status(worst([each for each in seen.found if store in each.servers]).value)


def _server(seen: Look, store: Store, reading: Reading, lags: list[Lag]) -> Ds389ServerRead:
    return Ds389ServerRead(
        store=store.id,
        rid=reading.rid,
        role=Ds389Role(reading.role.value),
        status=_status(seen, store.id),
        as_of=reading.at,
        clock_difference=None if reading.clock is None else abs(reading.clock - reading.at),
        generation=None if reading.ruv.generation is None else str(reading.ruv.generation),
        version=reading.version,
        changes=reading.changelog_entries,
        ruv=[
            Ds389RuvRead(rid=each.rid, url=each.purl, min_csn=each.min_csn, max_csn=each.max_csn)
            for each in reading.ruv.elements
        ],
        lags=[_lag(each) for each in lags],
    )


def _nothing(seen: Look, store: Store, rid: int | None) -> Ds389ServerRead:
    return Ds389ServerRead(
        store=store.id,
        rid=rid,
        role=None,
        status=_status(seen, store.id),
        as_of=None,
        clock_difference=None,
        generation=None,
        version="",
        changes=None,
        ruv=[],
        lags=[],
    )


def _agreement(edge: Edge) -> Ds389AgreementRead:
    one = edge.agreement
    return Ds389AgreementRead(
        supplier=edge.supplier,
        name=one.name,
        consumer=edge.consumer,
        host=one.host,
        port=one.port,
        enabled=one.is_enabled,
        updating=one.is_updating,
        initialising=one.is_initialising,
        state=one.state,
        status=one.status,
        init_status=one.init_status,
        started_at=one.started_at,
        ended_at=one.ended_at,
        sent=one.sent,
        skipped=one.skipped,
        lags=[_lag(each) for each in edge.lags],
    )


def _lag(one: Lag) -> Ds389LagRead:
    at_least = duration_of(one.at_least_s)
    assert at_least is not None, "a number has a duration"
    return Ds389LagRead(
        rid=one.rid,
        supplier_csn=one.supplier_csn,
        consumer_csn=one.consumer_csn,
        at_least=at_least,
        at_most=_span(one.at_most_s),
    )


def _span(seconds: float | None) -> timedelta | None:
    return None if seconds is None else duration_of(seconds)

"""Signs that SymmetricDS purges by itself, now or later, beside Lethe."""

from collections.abc import Mapping

from spark.purge.reading.inspect import Inspection

START_2X = "start.purge.job"
START_OUTGOING = "start.purge.outgoing.job"
START_INCOMING = "start.purge.incoming.job"
SWAPPED = (
    "since 3.8 SymmetricDS has the names of its two switches swapped in places: turn off both, "
    f"{START_OUTGOING} and {START_INCOMING}"
)


def conflicts(inspection: Inspection) -> list[str]:
    """Each sign in a sentence: what runs now, and what is switched on in the target's own parameters."""
    is_3x = inspection.layout.version == "3.x"
    own = inspection.sym_parameter
    switched = [_on(own, name) for name in (START_2X, START_OUTGOING, START_INCOMING) if _is_on(own, name)]
    if is_3x and switched:
        switched.append(f"no row of sym_lock stops SymmetricDS's purge on 3.x; {SWAPPED}")
    elif is_3x and not {START_OUTGOING, START_INCOMING} <= own.keys() and not _is_off(own, START_2X):
        missing = " and ".join(name for name in (START_OUTGOING, START_INCOMING) if name not in own)
        switched.append(
            f"not set in sym_parameter, so on by default: {missing}; on 3.x no row of sym_lock "
            f"shows or stops it; {SWAPPED}"
        )
    elif not is_3x and switched:
        switched.append(
            "Lethe takes SymmetricDS's row of sym_lock while it purges; SymmetricDS looks at it only where "
            "cluster.lock.enabled is true"
        )
    return [*inspection.own_purge_running, *switched]


def _on(own: Mapping[str, str | None], name: str) -> str:
    return f"{name} is {own[name]} in sym_parameter"


def _is_on(own: Mapping[str, str | None], name: str) -> bool:
    return str(own.get(name) or "").strip().lower() in ("true", "1")


def _is_off(own: Mapping[str, str | None], name: str) -> bool:
    return str(own.get(name) or "").strip().lower() in ("false", "0")

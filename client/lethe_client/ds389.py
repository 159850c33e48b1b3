"""Replicas of 389 Directory Server: health, topology, lost changes."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from lethe_client.decoding import decode
from lethe_client.ds389_results import Ds389Health, Ds389Lost, Ds389Topology
from lethe_client.paths import resource
from lethe_client.transport import Call, Transport

# All servers of a suffix are asked, twice where something seems to be stuck.
SUFFIX_TIMEOUT_S: Final = 120.0


class Ds389:
    """What can be asked of stores of kind DS389."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def health(self, store_id: str) -> Ds389Health:
        """Whether a server is well; one that cannot be asked is named, and no error."""
        path = resource("stores", store_id, "ds389-health")
        call = Call(method="GET", path=path, repeatable=True, timeout_s=SUFFIX_TIMEOUT_S)
        return decode(Ds389Health, self._transport.request(call).body)

    def suffix_health(self, suffix: str) -> Ds389Health:
        """Whether all registered servers of a suffix are well.

        Raises: NotFound: SUFFIX_NOT_FOUND.
        """
        return decode(Ds389Health, self._of_suffix("/v1/ds389/health", suffix))

    def topology(self, suffix: str) -> Ds389Topology:
        """Who supplies whom, and how far behind everybody is.

        Raises: NotFound: SUFFIX_NOT_FOUND.
        """
        return decode(Ds389Topology, self._of_suffix("/v1/ds389/topology", suffix))

    def find_lost(
        self,
        *,
        changelogs: Sequence[Mapping[str, Any]] = (),
        sessions: Sequence[Mapping[str, Any]] = (),
        results: Sequence[Mapping[str, Any]] = (),
    ) -> Ds389Lost:
        """Whether any change was lost, by what servers have left; no server is asked.

        Args:
            changelogs: server (its RID), purged, maxima, csns.
            sessions: agreement, start, consumer_ruv, supplier_ruv, sent, end.
            results: server (its RID), results (CSN to LDAP result).
        """
        body = {"changelogs": list(changelogs), "sessions": list(sessions), "results": list(results)}
        call = Call(method="POST", path="/v1/ds389:find-lost", json=body, repeatable=True)
        return decode(Ds389Lost, self._transport.request(call).body)

    def _of_suffix(self, path: str, suffix: str) -> Any:
        call = Call(
            method="GET",
            path=path,
            params={"suffix": suffix},
            repeatable=True,
            timeout_s=SUFFIX_TIMEOUT_S,
        )
        return self._transport.request(call).body

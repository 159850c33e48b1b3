"""Secrets: where passwords and tokens lie, and who may use them. Their values never come here."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from lethe_client import pages
from lethe_client.decoding import decode
from lethe_client.paths import collection, resource
from lethe_client.results import Result
from lethe_client.transport import Answer, Call, Transport


@dataclass(frozen=True, kw_only=True)
class Secret(Result):
    """A registered secret; `problem`: why it cannot be read now. `etag` is what update and remove send."""

    name: str
    reference: str = ""
    stores: tuple[str, ...] = ()
    labels: Mapping[str, Any] = field(default_factory=dict)
    hosts: tuple[str, ...] = ()
    clear_text_on_loopback: bool = False
    problem: str | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None
    etag: str = field(default="", repr=False, compare=False)


def _secret(answer: Answer) -> Secret:
    return replace(decode(Secret, answer.body), etag=answer.etag)


class Secrets:
    """`/v1/secrets`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(
        self,
        name: str,
        reference: str,
        *,
        hosts: Sequence[str],
        stores: Sequence[str] = (),
        labels: Mapping[str, str] | None = None,
        clear_text_on_loopback: bool = False,
        idempotency_key: str | None = None,
    ) -> Secret:
        """Register where a secret lies; stores and agreements name it `secret:NAME`.

        Args:
            reference: `env:LETHE_SECRET_NAME`, `file:PATH` below the service's LETHE_SECRETS_DIR, `exec:NAME`
                of its LETHE_EXEC_SECRETS, or `vault:MOUNT/PATH#FIELD` of its Vault.
            hosts: who it may be shown to: `db.example:5432`, an address, a network, a socket's directory.
            stores, labels: who may use it.
            clear_text_on_loopback: it may be told as it is on the service's own machine.
        """
        body: dict[str, Any] = {
            "name": name,
            "reference": reference,
            "hosts": [*hosts],
            "stores": [*stores],
            "labels": dict(labels or {}),
            "clear_text_on_loopback": clear_text_on_loopback,
        }
        path = collection("secrets")
        call = Call(method="POST", path=path, json=body, creates=True, idempotency_key=idempotency_key)
        return _secret(self._transport.request(call))

    def get(self, name: str) -> Secret:
        path = resource("secrets", name)
        return _secret(self._transport.request(Call(method="GET", path=path, repeatable=True)))

    def list(self) -> Iterator[Secret]:
        return pages.items(self._transport, collection("secrets"), Secret)

    def update(self, secret: Secret, changes: Mapping[str, Any]) -> Secret:
        """Change the secret as it was read by `get`.

        Raises: PreconditionFailed: somebody changed it since.
        """
        headers = {"If-Match": secret.etag}
        call = Call(
            method="PATCH", path=resource("secrets", secret.name), json=dict(changes), headers=headers
        )
        return _secret(self._transport.request(call))

    def remove(self, secret: Secret) -> None:
        """Forget the secret as it was read by `get`; its file or variable stays.

        Raises: PreconditionFailed: somebody changed it since. Conflict: SECRET_IN_USE.
        """
        path = resource("secrets", secret.name)
        self._transport.request(Call(method="DELETE", path=path, headers={"If-Match": secret.etag}))

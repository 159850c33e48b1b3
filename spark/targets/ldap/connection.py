"""A connection to a directory server: to an address that was judged, over TLS that was verified, for reading.

Rules:
- a password is told only over verified TLS, or on this machine itself where an admin allows it
  (`clear_text_on_loopback` of the secret);
- nothing but searches is ever sent after the bind; referrals are not followed;
- every wait has its end: connecting, an answer, a search at the server; and a connection as a whole, which
  a server may feed for ever;
- whatever a server answers, its reader gets a TargetError.
"""

import socket
import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from spark.extras import LDAP
from spark.targets.errors import (
    TargetAuthFailed,
    TargetCertificateInvalid,
    TargetError,
    TargetIsAnother,
    TargetReadOnly,
    TargetUnreachable,
)
from spark.targets.hosts import allowed_addresses, are_loopback
from spark.targets.ldap.url import LdapPlace, Tls, ldap_place
from spark.targets.target import Renewal

if TYPE_CHECKING:
    import ldap3

SEARCH_S: Final = 10
ENTRIES_MAX: Final = 10_000
CONNECTION_MAX_S: Final = 30.0
Entry = dict[str, list[bytes]]
"""Attributes by their names in small letters."""


class LdapNotInstalled(TargetError):
    """The extra `ldap` is not installed in this process."""

    code = "LDAP_NOT_INSTALLED"


@dataclass(frozen=True, slots=True)
class LdapTarget:
    """One suffix of a directory server, and how it is reached.

    Attributes:
        hosts: lists of hosts (spark.targets.hosts), each of which must allow a connection; none: any host.
        tells_loopback: an admin's word that the password may be told in clear text on this machine itself.
        bound_to: what the server must say that it is; None: anything.
    """

    url: str
    bind_dn: str
    suffix: str
    password: str | None = field(default=None, repr=False)
    hosts: tuple[tuple[str, ...], ...] = ()
    tells_loopback: bool = False
    bound_to: str | None = None
    renewal: Renewal | None = field(default=None, repr=False, compare=False)


class Directory:
    """An open, bound connection that only searches."""

    def __init__(self, target: LdapTarget, raw: "ldap3.Connection") -> None:
        self.target = target
        self._raw = raw

    def search(
        self, base: str, condition: str, attributes: Sequence[str], *, is_base: bool = False
    ) -> list[tuple[str, Entry]]:
        """Entries by DN, with the named attributes; a base that is not there, or not shown, has none.

        Raises: TargetError.
        """
        import ldap3
        from ldap3.core.exceptions import LDAPException, LDAPNoSuchObjectResult

        scope = ldap3.BASE if is_base else ldap3.SUBTREE
        try:
            self._raw.search(
                base,
                condition,
                scope,
                attributes=list(attributes),
                time_limit=SEARCH_S,
                size_limit=ENTRIES_MAX,
            )
        except LDAPNoSuchObjectResult:
            return []
        except LDAPException as error:
            raise _read_error(error) from error
        except Exception as error:  # the library raises anything at a wrong answer
            raise _no_ldap(error) from error
        found = [one for one in self._raw.response or () if one["type"] == "searchResEntry"]
        return [(one["dn"], _lowered(one["raw_attributes"])) for one in found]


@contextmanager
def opened_directory(target: LdapTarget, *, connect_timeout_s: int) -> Iterator[Directory]:
    """Connect, begin TLS, bind.

    Raises: TargetError: TargetHostNotAllowed, TargetUnreachable, TargetCertificateInvalid, TargetAuthFailed,
        TargetIsAnother; LdapNotInstalled.
    """
    if not LDAP.is_installed:
        raise LdapNotInstalled(f"ldap3 is not installed here: {LDAP.command}")
    place = ldap_place(target.url)
    addresses = allowed_addresses(target.hosts, place.host, place.port)
    _refuse_clear_text(target, place, addresses)
    raw, alarm = _connected(target, place, addresses, connect_timeout_s)
    try:
        found = Directory(target, raw)
        if target.bound_to is not None and target.bound_to != directory_identity(found):
            raise TargetIsAnother("this is not the replica that the store is bound to")
        yield found
    finally:
        alarm.cancel()
        _close(raw)


def directory_identity(directory: Directory) -> str | None:
    """What the replica says that it is: the name that it was given when it was made; None: not shown."""
    entries = directory.search(
        "cn=mapping tree,cn=config",
        f"(&(objectClass=nsds5replica)(nsDS5ReplicaRoot={escaped(directory.target.suffix)}))",
        ["nsDS5ReplicaName"],
    )
    for _, entry in entries:
        for value in entry.get("nsds5replicaname", ()):
            return f"ds389:{value.decode(errors='replace')[:100]}"
    return None


def escaped(text: str) -> str:
    """A text as a value in a filter. Source: RFC 4515, section 3."""
    return "".join(f"\\{ord(char):02x}" if char in "\\*()\0" else char for char in text)


def _refuse_clear_text(target: LdapTarget, place: LdapPlace, addresses: Sequence[str]) -> None:
    if place.tls is not Tls.NONE:
        return
    if not are_loopback(addresses):
        raise TargetAuthFailed(
            "?tls=none is for this machine alone: nobody is bound in clear text over a network. Use ldaps://"
        )
    if target.password is not None and not target.tells_loopback:
        raise TargetAuthFailed(
            "the password would go over this machine in clear text; an admin may allow that"
            " (clear_text_on_loopback of the secret), or use ldaps://"
        )


def _connected(
    target: LdapTarget, place: LdapPlace, addresses: Sequence[str], connect_timeout_s: int
) -> "tuple[ldap3.Connection, threading.Timer]":
    from ldap3.core.exceptions import LDAPException

    fault: TargetError = TargetUnreachable(f"{place.host} has no address")
    for address in addresses:
        raw = _raw(target, place, address, connect_timeout_s)
        alarm = _alarm(raw)
        try:
            _bind(raw, place)
        except Exception as error:  # the library raises anything at a wrong answer
            alarm.cancel()
            _close(raw)
            is_named = isinstance(error, LDAPException | OSError)
            fault = _connect_error(error) if is_named else _no_ldap(error)
            if not isinstance(fault, TargetUnreachable):
                raise fault from error
        else:
            return raw, alarm
    raise fault


def _alarm(raw: "ldap3.Connection") -> threading.Timer:
    """Cuts the connection off when its time is over."""

    def cut() -> None:
        with suppress(OSError, AttributeError):
            raw.socket.shutdown(socket.SHUT_RDWR)

    alarm = threading.Timer(CONNECTION_MAX_S, cut)
    alarm.daemon = True
    alarm.start()
    return alarm


def _raw(target: LdapTarget, place: LdapPlace, address: str, connect_timeout_s: int) -> "ldap3.Connection":
    import ldap3

    tls = None if place.tls is Tls.NONE else _verifying(place)
    server = ldap3.Server(
        address,
        place.port,
        use_ssl=place.tls is Tls.AT_ONCE,
        tls=tls,
        get_info=ldap3.NONE,
        connect_timeout=connect_timeout_s,
    )
    password = target.password if target.renewal is None else target.renewal.now()
    return ldap3.Connection(
        server,
        target.bind_dn,
        password,
        authentication=ldap3.SIMPLE if password else ldap3.ANONYMOUS,
        auto_referrals=False,
        raise_exceptions=True,
        receive_timeout=SEARCH_S + connect_timeout_s,
        read_only=True,
    )


def _verifying(place: LdapPlace) -> "ldap3.Tls":
    """TLS whose certificate and name Python itself looks at; the library has a way of its own.

    Raises: TargetCertificateInvalid: the file of the authority.
    """
    import ldap3

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        if place.authority is not None:
            context.load_verify_locations(place.authority)
        else:
            context.load_default_certs()
    except (OSError, ssl.SSLError) as error:
        raise TargetCertificateInvalid(f"the TLS files cannot be used: {error}") from None

    class Verifying(ldap3.Tls):
        def wrap_socket(self, connection: Any, do_handshake: bool = False) -> None:
            connection.socket = context.wrap_socket(connection.socket, server_hostname=place.host)

    return Verifying(validate=ssl.CERT_REQUIRED)


def _bind(raw: "ldap3.Connection", place: LdapPlace) -> None:
    from ldap3.core.exceptions import LDAPOperationResult, LDAPStartTLSError

    raw.open(read_server_info=False)
    if place.tls is Tls.STARTTLS:
        try:
            raw.start_tls(read_server_info=False)
        except LDAPOperationResult as error:
            raise LDAPStartTLSError(f"the server refuses StartTLS: {error}") from error
    raw.bind(read_server_info=False)


def _close(raw: "ldap3.Connection") -> None:
    """Say goodbye, and close the socket, which the library leaves open where it could not connect."""
    from ldap3.core.exceptions import LDAPException

    left = raw.socket
    with suppress(LDAPException, OSError):
        raw.unbind()
    if left is not None:
        left.close()


def _connect_error(error: Exception) -> TargetError:
    from ldap3.core import exceptions as ldap

    detail = " ".join(str(error).split())[:300]
    if "certificate" in detail.lower():
        return TargetCertificateInvalid(detail)
    if isinstance(error, ldap.LDAPStartTLSError | ldap.LDAPSSLConfigurationError | ssl.SSLError):
        return TargetCertificateInvalid(f"TLS could not begin: {detail}")
    refused = (
        ldap.LDAPInvalidCredentialsResult,
        ldap.LDAPNoSuchObjectResult,
        ldap.LDAPInappropriateAuthenticationResult,
        ldap.LDAPConfidentialityRequiredResult,
        ldap.LDAPStrongerAuthRequiredResult,
        ldap.LDAPUnwillingToPerformResult,
        ldap.LDAPPasswordIsMandatoryError,
    )
    if isinstance(error, refused):
        return TargetAuthFailed(f"the server does not take bind_dn and its password: {detail}")
    return TargetUnreachable(detail)


def _no_ldap(error: Exception) -> TargetError:
    """What the library itself does not expect of an answer."""
    return TargetUnreachable(f"what the server answers is no LDAP ({type(error).__name__})")


def _read_error(error: Exception) -> TargetError:
    from ldap3.core import exceptions as ldap

    detail = " ".join(str(error).split())[:300]
    if isinstance(error, ldap.LDAPInsufficientAccessRightsResult):
        return TargetReadOnly(f"bind_dn may not read this: {detail}")
    if isinstance(error, ldap.LDAPOperationResult):
        return TargetError(detail)
    return TargetUnreachable(detail)


def _lowered(attributes: Any) -> Entry:
    return {str(name).lower(): [bytes(value) for value in values] for name, values in attributes.items()}

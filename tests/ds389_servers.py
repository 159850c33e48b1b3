"""Real servers of Debian's 389-ds-base: from its own template, without systemd, below one folder.

`dscreate` wants its instances below /etc/dirsrv: here the template is filled by the same names, and suffix,
replica and agreements are added over LDAP as the tools of 389 add them.
"""

from __future__ import annotations

import base64
import hashlib
import os
import select
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ldap3

from tests.ports import free_port

SUFFIX = "dc=example,dc=com"
MANAGER = "cn=Directory Manager"
PASSWORD = "a-secret-of-the-manager"
REPLICATION_DN = "cn=replication manager,cn=config"
READER = "cn=lethe,cn=config"
"""An account that may read what the guide grants, and nothing else."""
WHO = f'allow (read, search, compare) userdn = "ldap:///{READER}";'
ACIS = {
    "cn=mapping tree,cn=config": (
        '(targetattr != "nsDS5ReplicaCredentials || nsDS5ReplicaBootstrapCredentials || aci")'
        f'(version 3.0; acl "Lethe reads replication"; {WHO})'
    ),
    "cn=ldbm database,cn=plugins,cn=config": (
        '(targetattr = "cn || objectClass || nsslapd-suffix || nsslapd-changelogmaxage")'
        f'(version 3.0; acl "Lethe reads ages of changelogs"; {WHO})'
    ),
}
"""As docs/how-to/ds389.md has them."""
PACKAGES = "389-ds-base"
DATA = Path("/usr/share/dirsrv/data")
SCHEMA = Path("/etc/dirsrv/schema")
CONFIG = Path("/etc/dirsrv/config")
START_S = 30.0
FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1"
TREE_DN = "cn=" + SUFFIX.replace("=", "\\=").replace(",", "\\,") + ",cn=mapping tree,cn=config"
REPLICA_DN = f"cn=replica,{TREE_DN}"


def missing() -> str | None:
    """What is not there of it; None: all is."""
    if shutil.which("ns-slapd", path=_path()) is None or not DATA.is_dir():
        return f"389 Directory Server is not installed (Debian: {PACKAGES})"
    if os.geteuid() != 0:
        return "ns-slapd is started as root, and the tests are not run as root"
    return None


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"


def _hashed(password: str) -> str:
    salt = os.urandom(8)
    return "{SSHA}" + base64.b64encode(hashlib.sha1(password.encode() + salt).digest() + salt).decode()


@dataclass
class Server:
    """One instance, which is one replica of the suffix."""

    rid: int
    root: Path
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None
    offset_s: int = 0
    agreements: dict[str, str] = field(default_factory=dict)
    """DNs, by the name of the consumer."""

    @property
    def name(self) -> str:
        return f"s{self.rid}"

    @property
    def url(self) -> str:
        return f"ldap://127.0.0.1:{self.port}?tls=none"

    def create(self) -> None:
        """The files of an instance, from the template of the package."""
        places = {
            name: self.root / name
            for name in ("etc", "db", "lock", "log", "run", "tmp", "ldif", "bak", "inst")
        }
        for place in places.values():
            place.mkdir(parents=True)
        shutil.copytree(SCHEMA, places["etc"] / "schema")
        for name in ("slapd-collations.conf", "certmap.conf"):
            shutil.copy(CONFIG / name, places["etc"] / name)
        values = {
            "schema_dir": places["etc"] / "schema", "lock_dir": places["lock"], "tmp_dir": places["tmp"],
            "cert_dir": places["etc"], "config_dir": places["etc"], "ldif_dir": places["ldif"],
            "bak_dir": places["bak"], "run_dir": places["run"], "inst_dir": places["inst"],
            "log_dir": places["log"], "db_dir": places["db"], "db_home_dir": places["db"], "db_lib": "bdb",
            "fqdn": "localhost", "ds_port": self.port, "ds_user": "root", "rootdn": MANAGER,
            "ds_passwd": _hashed(PASSWORD), "ds_suffix": SUFFIX, "ldapi_enabled": "off",
            "ldapi_autobind": "off", "ldapi": self.root / "ldapi.socket",
        }  # fmt: skip
        text = (DATA / "template-dse.ldif").read_text()
        for name, value in values.items():
            text = text.replace(f"%{name}%", str(value))
        (places["etc"] / "dse.ldif").write_text(text)

    def start(self, *, offset_s: int | None = None) -> None:
        """Start it, its clock `offset_s` ahead of ours, and wait until it answers."""
        assert self.process is None
        self.offset_s = self.offset_s if offset_s is None else offset_s
        program = shutil.which("ns-slapd", path=_path())
        assert program is not None
        environment = dict(os.environ)
        if self.offset_s:
            environment |= {"LD_PRELOAD": FAKETIME, "FAKETIME": f"+{self.offset_s}s"}
        with (self.root / "output").open("ab") as output:
            self.process = subprocess.Popen(
                [program, "-D", str(self.root / "etc"), "-i", str(self.root / "run/slapd.pid"), "-d", "0"],
                stdout=output, stderr=output, env=environment,
            )  # fmt: skip
        ends = time.monotonic() + START_S
        while True:
            with socket.socket() as tried:
                if tried.connect_ex(("127.0.0.1", self.port)) == 0:
                    break
            assert self.process.poll() is None, (self.root / "output").read_text()
            assert time.monotonic() < ends, "the server does not answer"
            time.sleep(0.1)
        self.connection().unbind()

    def stop(self, sent: int = signal.SIGTERM) -> None:
        if self.process is not None:
            self.process.send_signal(sent)
            self.process.wait(timeout=60)
            self.process = None

    def connection(self) -> ldap3.Connection:
        """As the manager."""
        server = ldap3.Server("127.0.0.1", self.port, get_info=ldap3.NONE, connect_timeout=2)
        return ldap3.Connection(
            server, MANAGER, PASSWORD, auto_bind=True, raise_exceptions=True, receive_timeout=20
        )

    @contextmanager
    def open(self) -> Iterator[ldap3.Connection]:
        found = self.connection()
        try:
            yield found
        finally:
            found.unbind()

    def set_up(self) -> None:
        """The suffix, the entry that replication binds as, the replica."""
        with self.open() as conn:
            backend = "cn=userRoot,cn=ldbm database,cn=plugins,cn=config"
            conn.add(backend, ["top", "extensibleObject", "nsBackendInstance"], {"nsslapd-suffix": SUFFIX})
            conn.add(
                TREE_DN,
                ["top", "extensibleObject", "nsMappingTree"],
                {"cn": SUFFIX, "nsslapd-state": "backend", "nsslapd-backend": "userRoot"},
            )
            person = {"sn": "manager", "userPassword": PASSWORD}
            conn.add(REPLICATION_DN, ["top", "netscapeServer", "person"], person)
            conn.add(READER, ["top", "person"], {"sn": "lethe", "userPassword": PASSWORD})
            for dn, aci in ACIS.items():
                conn.modify(dn, {"aci": [(ldap3.MODIFY_ADD, [aci])]})
            if self.rid == 1:
                conn.add(SUFFIX, ["top", "domain"], {"dc": "example"})
            conn.add(
                REPLICA_DN,
                ["top", "nsds5Replica", "extensibleObject"],
                {
                    "nsDS5ReplicaRoot": SUFFIX, "nsDS5Flags": "1", "nsDS5ReplicaType": "3",
                    "nsDS5ReplicaId": str(self.rid), "nsDS5ReplicaBindDN": REPLICATION_DN,
                    "nsds5ReplicaBackoffMin": "1", "nsds5ReplicaBackoffMax": "2",
                },
            )  # fmt: skip

    def agree(self, consumer: Server, *, init: bool = False) -> str:
        """An agreement to a consumer; returns its DN."""
        dn = f"cn={self.name}-to-{consumer.name},{REPLICA_DN}"
        values: dict[str, Any] = {
            "nsDS5ReplicaHost": "127.0.0.1", "nsDS5ReplicaPort": str(consumer.port),
            "nsDS5ReplicaBindDN": REPLICATION_DN, "nsDS5ReplicaCredentials": PASSWORD,
            "nsDS5ReplicaBindMethod": "SIMPLE", "nsDS5ReplicaTransportInfo": "LDAP",
            "nsDS5ReplicaRoot": SUFFIX, "description": f"{self.name} to {consumer.name}",
        }  # fmt: skip
        if init:
            values["nsds5BeginReplicaRefresh"] = "start"
        with self.open() as conn:
            conn.add(dn, ["top", "nsds5ReplicationAgreement"], values)
        self.agreements[consumer.name] = dn
        return dn

    def wait_for_init(self, agreement: str) -> None:
        """Until the total update is through."""
        ends = time.monotonic() + START_S
        while True:
            found = self.read(agreement, ["nsds5BeginReplicaRefresh", "nsds5replicaLastInitStatus"])
            if not found["nsds5BeginReplicaRefresh"]:
                assert "succeeded" in str(found["nsds5replicaLastInitStatus"]), found
                return
            assert time.monotonic() < ends, found
            time.sleep(0.1)

    def read(self, dn: str, attributes: Sequence[str]) -> dict[str, Any]:
        with self.open() as conn:
            conn.search(dn, "(objectClass=*)", ldap3.BASE, attributes=list(attributes))
            return dict(conn.response[0]["attributes"])

    def modify(self, dn: str, **changes: str) -> None:
        with self.open() as conn:
            conn.modify(dn, {name: [(ldap3.MODIFY_REPLACE, [value])] for name, value in changes.items()})

    def write(self, *names: str) -> None:
        """Add people."""
        with self.open() as conn:
            for name in names:
                conn.add(f"uid={name},{SUFFIX}", ["top", "inetOrgPerson"], {"cn": name, "sn": name})

    def people(self) -> set[str]:
        with self.open() as conn:
            conn.search(SUFFIX, "(uid=*)", ldap3.SUBTREE, attributes=["uid"])
            return {str(one["attributes"]["uid"][0]) for one in conn.response if "attributes" in one}

    def back_up(self, into: Path) -> None:
        """The files of a stopped server."""
        assert self.process is None
        shutil.copytree(self.root / "db", into)

    def put_back(self, kept: Path) -> None:
        assert self.process is None
        shutil.rmtree(self.root / "db")
        shutil.copytree(kept, self.root / "db")


@contextmanager
def servers(root: Path, count: int, *, ring: bool = True) -> Iterator[list[Server]]:
    """Replicas 1 to `count`, each supplying its neighbours."""
    found = [Server(rid, root / f"s{rid}") for rid in range(1, count + 1)]
    try:
        for each in found:
            each.create()
            each.start()
            each.set_up()
        for each in found[1:]:
            found[0].wait_for_init(found[0].agree(each, init=True))
        pairs = {(a, (a + 1) % count) for a in range(count)} if ring else set()
        for a, b in sorted(pairs | {(b, a) for a, b in pairs}):
            if a != b and a != 0:
                found[a].agree(found[b])
        yield found
    finally:
        for each in found:
            each.stop(signal.SIGKILL)


@contextmanager
def tls_front(port: int, certificate: Path, key: Path) -> Iterator[int]:
    """A port that takes TLS and passes it on to a server of this machine in clear text."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    listening = socket.create_server(("127.0.0.1", 0))
    front = int(listening.getsockname()[1])

    def serve() -> None:
        while True:
            try:
                raw, _ = listening.accept()
            except OSError:
                return
            with (
                raw,
                suppress(OSError),
                context.wrap_socket(raw, server_side=True) as inner,
                socket.create_connection(("127.0.0.1", port)) as outer,
            ):
                _pass_on(inner, outer)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield front
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()


def _pass_on(inner: ssl.SSLSocket, outer: socket.socket) -> None:
    """Both ways, one connection at a time, until one of them ends."""
    ends = {inner: outer, outer: inner}
    while True:
        ready = [inner] if inner.pending() else select.select(list(ends), [], [])[0]
        for each in ready:
            data = each.recv(65_536)
            if not data:
                return
            ends[each].sendall(data)

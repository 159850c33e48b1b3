"""Servers that speak enough of a database's protocol to ask for a password, and write down what they hear."""

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator

PG_CLEAR = struct.pack("!i", 3)
PG_MD5 = struct.pack("!i", 5) + b"salt"
PG_WISH_TLS, PG_WISH_GSS = struct.pack("!i", 80877103), struct.pack("!i", 80877104)
MYSQL_SALT = b"12345678abcdefghijkl"
FULL_AUTHENTICATION = b"\x01\x04"


class Heard:
    """What a server was sent, over all connections."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.connections = 0
        self.bytes = b""


def _postgresql(
    connection: socket.socket, heard: Heard, request: bytes, tls: ssl.SSLContext | None = None
) -> None:
    while True:
        size = struct.unpack("!i", connection.recv(4))[0]
        body = connection.recv(size - 4)
        if body[:4] == PG_WISH_TLS and tls is not None:
            connection.sendall(b"S")
            with tls.wrap_socket(connection, server_side=True) as wrapped:
                _postgresql(wrapped, heard, request)
            return
        if body[:4] in (PG_WISH_TLS, PG_WISH_GSS):
            connection.sendall(b"N")
            continue
        heard.bytes += body
        break
    connection.sendall(b"R" + struct.pack("!i", len(request) + 4) + request)
    while part := connection.recv(4096):
        heard.bytes += part


def _packet(number: int, payload: bytes) -> bytes:
    return struct.pack("<i", len(payload))[:3] + bytes([number]) + payload


def _mysql(
    connection: socket.socket,
    heard: Heard,
    *,
    plugin: bytes,
    switch: bytes | None,
    tls: ssl.SSLContext | None,
) -> None:
    capabilities = 0x000FA20F | 0x00200000 | (0x800 if tls else 0)
    greeting = b"\x0a8.0.36\0" + struct.pack("<i", 7) + MYSQL_SALT[:8] + b"\0"
    greeting += struct.pack("<H", capabilities & 0xFFFF) + b"\x21" + struct.pack("<H", 2)
    greeting += struct.pack("<H", capabilities >> 16) + bytes([21]) + bytes(10) + MYSQL_SALT[8:] + b"\0"
    connection.sendall(_packet(0, greeting + plugin + b"\0"))
    if tls is None:
        _mysql_login(connection, heard, switch, number=2)
    elif connection.recv(36):  # the wish for TLS: a header, and the first 32 bytes of a login
        with tls.wrap_socket(connection, server_side=True) as wrapped:
            _mysql_login(wrapped, heard, switch, number=3)


def _mysql_login(connection: socket.socket, heard: Heard, switch: bytes | None, *, number: int) -> None:
    heard.bytes += connection.recv(4096)
    if switch is not None:
        connection.sendall(_packet(number, b"\xfe" + switch + b"\0" + MYSQL_SALT + b"\0"))
        heard.bytes += connection.recv(4096)
        number += 2
    connection.sendall(_packet(number, FULL_AUTHENTICATION))
    while part := connection.recv(4096):
        heard.bytes += part


@contextlib.contextmanager
def serving(talk: Callable[[socket.socket, Heard], None]) -> Iterator[Heard]:
    """A server on loopback that talks to each connection in turn."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        heard = Heard(listener.getsockname()[1])

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                heard.connections += 1
                with connection, contextlib.suppress(OSError, struct.error):
                    connection.settimeout(5)
                    talk(connection, heard)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield heard
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(10)


def asking_postgresql(
    request: bytes, *, tls: ssl.SSLContext | None = None
) -> contextlib.AbstractContextManager[Heard]:
    """A PostgreSQL server that asks for the password in one way."""
    return serving(lambda connection, heard: _postgresql(connection, heard, request, tls))


def asking_mysql(
    plugin: bytes, *, switch: bytes | None = None, tls: ssl.SSLContext | None = None
) -> contextlib.AbstractContextManager[Heard]:
    """A MySQL server of one default plugin, which may switch to another, and then asks for all of it."""
    return serving(lambda connection, heard: _mysql(connection, heard, plugin=plugin, switch=switch, tls=tls))

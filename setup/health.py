"""Ask the service of this machine whether it lives: exit code 0 for yes. Docker's health check.

It reads the same environment as the service (LETHE_HOST, LETHE_PORT, LETHE_TLS_CERT), so a service that is
configured through the environment is found wherever it listens.
"""

import http.client
import os
import ssl
import sys

TIMEOUT_S = 2.5
ANY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104


def main() -> int:
    """Return 0 if /livez answers 200 within the timeout."""
    host = os.environ.get("LETHE_HOST", "127.0.0.1")
    if host in ANY_ADDRESS:
        host = "127.0.0.1"
    port = int(os.environ.get("LETHE_PORT", "8765"))
    connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
    if "LETHE_TLS_CERT" in os.environ:
        # The certificate names the service, not this loopback address; nothing secret is sent.
        unverified = ssl._create_unverified_context()  # noqa: S323
        connection = http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=unverified)
    try:
        connection.request("GET", "/livez")
        return 0 if connection.getresponse().status == 200 else 1
    except (OSError, http.client.HTTPException) as error:
        print(f"no answer from {host}:{port}: {error}", file=sys.stderr)
        return 1
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(main())

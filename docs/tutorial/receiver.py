"""A receiver of webhooks for trying them: python3 receiver.py PORT FILE writes what comes to FILE.

It checks no signature: one that others reach must (docs/how-to/webhooks.md).
"""

import http.server
import sys
from pathlib import Path

FILE = Path(sys.argv[2])


class Receiver(http.server.BaseHTTPRequestHandler):
    """Takes each POST, and keeps its body."""

    def do_POST(self) -> None:
        """Append the body to the file; 204 says that it was taken."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with FILE.open("ab") as file:
            file.write(body + b"\n")
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing of each request."""


http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Receiver).serve_forever()

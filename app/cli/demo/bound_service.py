"""`lethe serve` that ends with whoever started it, also after kill -9: it reads its stdin to the end.

Rules:
- the write end of its stdin is open in the starting process alone; when that ends, however it ends, this one
  gets SIGTERM, and stops in order.
"""

import os
import signal
import sys
import threading

from app.cli.main import main


def _end_with_the_starter() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=_end_with_the_starter, name="starter-watch", daemon=True).start()
    sys.exit(main(["serve", *sys.argv[1:]]))

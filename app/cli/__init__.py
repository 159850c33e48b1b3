"""The `lethe` command; whoever ends a service that still starts is obeyed, and that is no failure."""

import signal
import sys

if {"serve", "worker"}.intersection(sys.argv[1:]) and sys.argv[0].endswith("lethe"):
    # Imports take a second or two; the service takes the signal itself as soon as it can drain.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(0))

"""The `lethe` command; whoever ends a service that still starts is obeyed, and that is no failure."""

import os
import signal
import sys

if {"serve", "worker"}.intersection(sys.argv[1:]) and sys.argv[0].endswith("lethe"):
    # Imports take a second or two; the service takes the signal itself as soon as it can drain. Until then it
    # ends as by kill -9, which loses nothing: an exception would be swallowed where a callback runs.
    signal.signal(signal.SIGTERM, lambda _number, _frame: os._exit(0))

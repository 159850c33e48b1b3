#!/usr/bin/env bash
# Print the path of a Python that may run Lethe (3.11 or newer): $PYTHON if set, else python3.11, else python3.
set -euo pipefail

for name in ${PYTHON:-} python3.11 python3; do
  # Asked, not just looked up: a shim of a version manager is on PATH even where its version is not installed.
  if found=$("$name" -c 'import sys; assert sys.version_info >= (3, 11); print(sys.executable)' 2>/dev/null); then
    echo "$found"
    exit 0
  fi
done
echo "Lethe needs Python 3.11 or newer. On Debian 12: apt-get install python3 python3-venv" >&2
exit 69

#!/usr/bin/env bash
# Install Debian packages where that is allowed: as root, or through sudo that asks for no password.
# Usage: setup/debian-packages.sh PACKAGE...    Exit code 77: not allowed here; nothing was changed.
set -euo pipefail

as_root=()
if ! command -v apt-get >/dev/null; then
  exit 77
elif [ "$(id -u)" -ne 0 ]; then
  sudo -n true 2>/dev/null || exit 77
  as_root=(sudo -n)
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! {
  "${as_root[@]}" apt-get update -qq &&
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
} </dev/null >"$log" 2>&1; then
  tail -n 20 "$log" >&2
  exit 1
fi

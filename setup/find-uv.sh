#!/usr/bin/env bash
# Print the path of a uv that reads uv.lock: the one on PATH where it is new enough, else our own below .tools/,
# which is installed from PyPI the first time.
set -euo pipefail
cd "$(dirname "$0")/.."
. setup/step.sh

readonly UV_VERSION=0.13.8 # the version that wrote uv.lock
readonly OWN=.tools/bin/uv

is_new_enough() {
  local version
  version=$("$1" --version 2>/dev/null | awk '{ print $2 }') || return 1
  [ -n "$version" ] && printf '%s\n' "$UV_VERSION" "$version" | sort --version-sort --check=quiet
}

if found=$(command -v uv) && is_new_enough "$found"; then
  echo "$found"
  exit 0
fi
if ! is_new_enough "$OWN"; then
  python=$(setup/find-python.sh)
  # Debian ships venv's pip as a package of its own.
  if ! "$python" -c 'import ensurepip, venv' 2>/dev/null && ! setup/debian-packages.sh python3-venv; then
    echo "Python's venv module is missing and may not be installed from here. As root: apt-get install python3-venv" >&2
    exit 69
  fi
  install_uv() {
    "$python" -m venv .tools >&2
    .tools/bin/python -m pip install --quiet --disable-pip-version-check "uv==$UV_VERSION" >&2
  }
  step "uv $UV_VERSION into .tools" install_uv
fi
echo "$PWD/$OWN"

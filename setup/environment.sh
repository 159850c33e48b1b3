#!/usr/bin/env bash
# Bring .venv to exactly what uv.lock says, development tools included.
set -euo pipefail
cd "$(dirname "$0")/.."
. setup/step.sh

uv=$(setup/find-uv.sh)
interpreter=()
# An existing environment keeps its interpreter: naming another would make uv throw it away.
if ! .venv/bin/python -c 'import sys; assert sys.version_info >= (3, 11)' 2>/dev/null; then
  python=$(setup/find-python.sh)
  echo "setup: $python runs Lethe (PYTHON=... names another)" >&2
  interpreter=(--python "$python")
fi
export UV_PROJECT_ENVIRONMENT=.venv UV_PYTHON_DOWNLOADS=never
unset VIRTUAL_ENV
# Byte code is written now, as a machine may be told never to write any: a start would compile 1,500 modules.
step "the packages of uv.lock into .venv (1.4 GB; minutes, the first time)" \
  "$uv" sync --quiet --frozen --compile-bytecode "${interpreter[@]}"

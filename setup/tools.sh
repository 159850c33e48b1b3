#!/usr/bin/env bash
# Bring the environment of a group of tools (audit, deploy, docs of pyproject.toml) to what uv.lock says, and print
# the path of its programs: setup/tools.sh GROUP. They lie in .tools/GROUP: the code's own environment has none of them.
set -euo pipefail
cd "$(dirname "$0")/.."
. setup/step.sh

group=$1
place=$PWD/.tools/$group
stamp=$place/.synced
if ! [ "$stamp" -nt uv.lock ] || ! [ "$stamp" -nt pyproject.toml ]; then
  uv=$(setup/find-uv.sh)
  unset VIRTUAL_ENV
  export UV_PROJECT_ENVIRONMENT=$place UV_PYTHON_DOWNLOADS=never
  step "the tools of the group $group into .tools/$group" \
    "$uv" sync --quiet --frozen --only-group "$group" --python "$(setup/find-python.sh)"
  touch "$stamp"
fi
echo "$place/bin"

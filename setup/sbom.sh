#!/usr/bin/env bash
# Write what an installation with all extras consists of, in the format of CycloneDX: setup/sbom.sh [FILE].
set -euo pipefail
cd "$(dirname "$0")/.."

file=${1:-dist/lethe.cdx.json}
programs=$(setup/tools.sh audit)
uv=$(setup/find-uv.sh)
mkdir -p "$(dirname "$file")"
requirements=$(mktemp)
trap 'rm -f "$requirements"' EXIT
# From the lock, with hashes: the same whatever this machine has installed.
"$uv" export --quiet --frozen --no-dev --all-extras --no-emit-workspace --output-file "$requirements" >/dev/null
PYTHONWARNINGS=ignore "$programs/cyclonedx-py" requirements --pyproject pyproject.toml --mc-type application --output-reproducible \
  --output-format JSON --output-file "$file" "$requirements"
count=$(.venv/bin/python -c 'import json, sys; print(len(json.load(open(sys.argv[1]))["components"]))' "$file")
[ "$count" -gt 20 ] || { echo "sbom: only $count packages in $file" >&2 && exit 1; }
echo "sbom: $count packages in $file"

#!/usr/bin/env bash
# Build the wheels, install them into environments of their own from an empty folder, use them, and say how large
# they are: setup/wheels.sh [FOLDER]. The wheels stay in FOLDER (dist).
#
# First without extras: a purge runs inline, Spark and JE are refused with what to install. Then with all of them: the demo.
# Last the sources with the client alone: they read an environment, without anything of the service.
set -euo pipefail
cd "$(dirname "$0")/.."
. setup/step.sh

readonly INLINE_MB_MAX=400 # what an installation without extras may take
readonly START_TIMEOUT_S=60
readonly CUTOFF=2026-11-01T10:00:00Z
folder=$(realpath -m "${1:-dist}")
sample=$PWD/tests/data/symmetricds/small_3x.sqlite
environment=$PWD/tests/data/je/closed.tar.xz
uv=$(setup/find-uv.sh)
python=$(setup/find-python.sh)
scratch=$(mktemp -d)
service=
trap '[ -z "$service" ] || kill "$service" 2>/dev/null; rm -rf "$scratch"' EXIT
unset VIRTUAL_ENV LETHE_URL LETHE_TOKEN
export UV_PYTHON_DOWNLOADS=never

fail() { echo "wheels: $*" >&2 && exit 1; }

build() {
  rm -f "$folder"/lethe_control_plane*.whl
  "$uv" build --quiet --all-packages --wheel --out-dir "$folder"
  service_wheel=$(echo "$folder"/lethe_control_plane-*.whl)
  client_wheel=$(echo "$folder"/lethe_control_plane_client-*.whl)
  sources_wheel=$(echo "$folder"/lethe_control_plane_sources-*.whl)
}

# The versions of uv.lock: what is tested is what the image has.
install() { # NAME [EXTRA]
  "$uv" export --quiet --frozen --no-dev --no-emit-workspace ${2:+--extra "$2"} --output-file "$scratch/$1.txt" >/dev/null
  "$uv" venv --quiet --python "$python" "$scratch/$1"
  # Both wheels at once: the service must not look for the client's name on PyPI.
  "$uv" pip install --quiet --python "$scratch/$1/bin/python" --compile-bytecode --require-hashes --requirements "$scratch/$1.txt"
  "$uv" pip install --quiet --python "$scratch/$1/bin/python" --compile-bytecode --no-deps "$service_wheel" "$client_wheel"
}

install_sources() {
  "$uv" export --quiet --frozen --no-dev --no-emit-workspace --package lethe-control-plane-sources --output-file "$scratch/sources.txt" >/dev/null
  "$uv" venv --quiet --python "$python" "$scratch/sources"
  "$uv" pip install --quiet --python "$scratch/sources/bin/python" --require-hashes --requirements "$scratch/sources.txt"
  "$uv" pip install --quiet --python "$scratch/sources/bin/python" --no-deps "$sources_wheel" "$client_wheel"
}

# Without Spark's JVM, which not every machine has: the reader that its workers run.
read_sources() {
  "$scratch/sources/bin/python" - "$scratch/orders" >"$scratch/said" 2>&1 <<'PROGRAM' || fail "the sources: $(cat "$scratch/said")"
import importlib.util, sys

import lethe_spark, lethe_spark.queries

assert importlib.util.find_spec("app") is None
source = lethe_spark.JeSource({"path": sys.argv[1]})
reader = source.reader(source.schema())
rows = sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part))
assert rows > 1000, rows
PROGRAM
}

megabytes() { du --summarize --block-size=1M "$scratch/$1" | cut -f1; }

# What came of a command that must fail: its exit code, and a code in what it said.
refused() { # EXIT-CODE CODE COMMAND...
  local wanted=$1 code=$2 status=0
  shift 2
  "$@" >"$scratch/said" 2>&1 || status=$?
  [ "$status" -eq "$wanted" ] || fail "exit code $status and not $wanted of: $* ($(tail -n 3 "$scratch/said"))"
  grep -q "$code" "$scratch/said" || fail "no $code in what it said: $* ($(cat "$scratch/said"))"
}

serve() { # NAME
  "$scratch/$1/bin/lethe" serve --data-dir "$scratch/data" --port "$port" 2>"$scratch/log" &
  service=$!
  local deadline=$((SECONDS + START_TIMEOUT_S))
  until curl --silent --fail --output /dev/null "http://127.0.0.1:$port/readyz"; do
    [ "$SECONDS" -lt "$deadline" ] && kill -0 "$service" || fail "it does not start: $(tail "$scratch/log")"
    sleep 0.2
  done
  export LETHE_URL=http://127.0.0.1:$port LETHE_TOKEN
  LETHE_TOKEN=$(cat "$scratch/data/admin.token")
}

without_extras() {
  local lethe=$scratch/inline/bin/lethe
  cp "$sample" "$scratch/shop.sqlite"
  mkdir "$scratch/orders" && tar -xJf "$environment" -C "$scratch/orders" --strip-components=1
  port=$("$scratch/inline/bin/python" -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])')
  [ -s "$("$scratch/inline/bin/python" -c 'import app; print(app.__path__[0])')/../openapi/openapi.json" ] || fail "the wheel has no openapi.json"
  serve inline
  "$lethe" store add shop "sqlite:///$scratch/shop.sqlite" >/dev/null
  "$lethe" purge run shop --cutoff "$CUTOFF" --archive --json >"$scratch/purge.json" 2>"$scratch/said" ||
    fail "a purge without extras: $(cat "$scratch/said")"
  grep -q '"engine": *"INLINE"' "$scratch/purge.json" || fail "the purge did not run inline: $(cat "$scratch/purge.json")"
  refused 1 SPARK_NOT_INSTALLED "$lethe" purge run shop --cutoff "$CUTOFF" --engine SPARK
  "$lethe" store add-environment orders "$scratch/orders" >/dev/null
  refused 1 JE_NOT_INSTALLED "$lethe" erasure plan orders --min-file-age PT0S --duration PT0S
  refused 78 JE_NOT_INSTALLED "$lethe" je stat "$scratch/orders"
  kill "$service" && wait "$service" || fail "it ended with $?"
  service=
}

step "the wheels into $folder" build
# Away from the checkout: what runs must come from the wheels.
mkdir "$scratch/empty"
step "an environment without extras" install inline
step "an environment with all extras" install all all
step "an environment with the sources" install_sources
inline_mb=$(megabytes inline) all_mb=$(megabytes all)
cd "$scratch/empty"
without_extras
step "the sources of the wheel" read_sources
step "the demo of the wheel, with all extras" env TMPDIR="$scratch" "$scratch/all/bin/lethe" demo >"$scratch/demo" || fail "$(tail "$scratch/demo")"

echo "wheels: $(du -h --apparent-size "$service_wheel" | cut -f1) service, $(du -h --apparent-size "$client_wheel" | cut -f1) client, $(du -h --apparent-size "$sources_wheel" | cut -f1) sources"
echo "wheels: $inline_mb MB installed without extras (at most $INLINE_MB_MAX), $all_mb MB with all of them"
[ "$inline_mb" -le "$INLINE_MB_MAX" ] || fail "an installation without extras has grown to $inline_mb MB"

#!/usr/bin/env bash
# The steps of the container image. The Dockerfile runs them, and .ci/run runs `app` and `smoke` without Docker.
#
#   setup/image.sh system          Java, the account of the service and its data directory (root, Debian)
#   setup/image.sh app PREFIX      the locked packages with all extras, nothing for development, into PREFIX
#   setup/image.sh classes PREFIX  Spark's class archive into PREFIX, for the Java that is here
#   setup/image.sh smoke PREFIX    start what lies in PREFIX, ask /livez, end it with SIGTERM
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

readonly ACCOUNT_ID=10001 # a number, so that Kubernetes can see that it is not root
readonly DATA_DIR=/var/lib/lethe
readonly ARCHIVE_DIR=/var/lib/lethe-archive # where several instances share one: a volume of its own
readonly START_TIMEOUT_S=60
readonly CLASSES_TIMEOUT_S=300
readonly STOP_TIMEOUT_S=15 # what the service promises for SIGTERM

system() {
  # Slim images leave this folder out, and the Java package cannot be configured without it.
  mkdir -p /usr/share/man/man1
  "$here/debian-packages.sh" openjdk-17-jre-headless
  rm -rf /var/lib/apt/lists/*
  groupadd --gid "$ACCOUNT_ID" lethe
  useradd --uid "$ACCOUNT_ID" --gid lethe --home-dir "$DATA_DIR" --no-create-home --shell /usr/sbin/nologin lethe
  refuse_compilers
  install --directory --owner=lethe --group=lethe --mode=0700 "$DATA_DIR" "$ARCHIVE_DIR"
}

app() {
  local prefix=$1 uv python
  uv=$("$here/find-uv.sh")
  python=$("$here/find-python.sh")
  # Byte code is written now: the account of the service may not write into the prefix later.
  (
    cd "$here/.."
    unset VIRTUAL_ENV
    UV_PROJECT_ENVIRONMENT=$prefix UV_PYTHON_DOWNLOADS=never \
      "$uv" sync --quiet --frozen --no-dev --all-extras --no-editable --compile-bytecode --python "$python"
  )
  install -D --mode=0644 "$here/health.py" "$prefix/share/lethe/health.py"
}

# It halves the start of Spark, and holds for one Java and one place of the jars: made where both are final.
classes() {
  local prefix=$1 archive
  archive=$("$prefix/bin/python" -c 'from spark.pool.options import default_cds_archive; print(default_cds_archive())')
  timeout "$CLASSES_TIMEOUT_S" "$prefix/bin/python" -m spark.pool.class_archive
  chmod a+r "$archive"
  echo "image classes: $(du --block-size=1M "$archive" | cut -f1) MB at $archive"
}

# What runs jobs builds nothing: a compiler would only serve whoever breaks in.
refuse_compilers() {
  local name
  for name in cc gcc g++ clang javac go rustc; do
    ! command -v "$name" || { echo "image: there is a compiler: $name" >&2 && exit 1; }
  done
}

free_port() {
  "$1/bin/python" -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

await() { # SECONDS COMMAND...: repeats the command until it succeeds
  local deadline=$((SECONDS + $1))
  shift
  until "$@" 2>/dev/null; do
    [ "$SECONDS" -lt "$deadline" ] || return 1
    sleep 0.2
  done
}

is_gone() { ! kill -0 "$1" 2>/dev/null; }

fail() { # LOG MESSAGE
  echo "image smoke: $2. Its log:" >&2
  tail -n 50 "$1" >&2
  exit 1
}

# What runs here runs as another account than root, as in the image; root itself where that account cannot reach it.
find_account() { # PREFIX: sets `as_account`
  as_account=()
  [ "$(id -u)" -eq 0 ] || return 0
  local other=(setpriv "--reuid=$ACCOUNT_ID" "--regid=$ACCOUNT_ID" --clear-groups)
  if "${other[@]}" "$1/bin/python" -c "" 2>/dev/null; then
    as_account=("${other[@]}")
    chown "$ACCOUNT_ID:$ACCOUNT_ID" "$scratch"
  else
    echo "image smoke: account $ACCOUNT_ID cannot run $1/bin/python; this runs as root" >&2
  fi
}

smoke() {
  local prefix=$1 status=0
  # Not local: the trap runs when the function has already been left.
  scratch=$(mktemp -d)
  service=
  trap '[ -z "$service" ] || kill -KILL "$service" 2>/dev/null; rm -rf "$scratch"' EXIT

  # Away from the checkout: what runs must come from the prefix.
  cd "$scratch"
  find_account "$prefix"
  "${as_account[@]}" "$prefix/bin/lethe" --help >/dev/null
  export LETHE_DATA_DIR=$scratch/data LETHE_HOST=127.0.0.1 LETHE_PORT
  LETHE_PORT=$(free_port "$prefix")
  "${as_account[@]}" "$prefix/bin/lethe" serve >"$scratch/log" 2>&1 &
  service=$!
  if ! await "$START_TIMEOUT_S" eval 'is_gone "$service" || "$prefix/bin/python" "$prefix/share/lethe/health.py"'; then
    fail "$scratch/log" "no answer from /livez within $START_TIMEOUT_S s"
  fi
  is_gone "$service" && fail "$scratch/log" "lethe serve ended by itself"
  kill -TERM "$service"
  await "$STOP_TIMEOUT_S" is_gone "$service" || fail "$scratch/log" "still there $STOP_TIMEOUT_S s after SIGTERM"
  wait "$service" || status=$?
  service=
  [ "$status" -eq 0 ] || fail "$scratch/log" "SIGTERM ended it with exit code $status"
  echo "image smoke: started, alive, stopped with exit code 0"
}

case "${1:-} $#" in
  "system 1") system ;;
  "app 2") app "$(realpath -m "$2")" ;;
  "classes 2") classes "$(realpath "$2")" ;;
  "smoke 2") smoke "$(realpath "$2")" ;;
  *) sed -n '2,7p' "$0" >&2 && exit 64 ;;
esac

#!/usr/bin/env bash
# Run the tests without those marked long, in two runs of pytest: setup/run-tests.sh WORKERS [--fast] [ARGUMENT...]
# First side by side, then those marked alone, which measure time and want the machine for themselves.
# With --fast only what needs no server, no service and no JVM, and takes no seconds, in one run.
# Exit code 0 if all passed. One run may find nothing to do (-k, -m, paths); it is 5 if neither found any.
set -uo pipefail
cd "$(dirname "$0")/.."

readonly PYTEST=.venv/bin/pytest
readonly FAILED=1 NOTHING_RAN=5
# What they need with four workers, files alone (4.4 GB) and with all servers, services and JVMs (13 GB), and some more.
readonly FILES_KIB=$((8 * 1024 * 1024)) MEMORY_KIB=$((16 * 1024 * 1024))
workers=$1
shift

fast=0
named=0 # whether tests are asked for by their names or paths
wanted="not long" # what -m says in its place, as pytest itself takes the last one
paths=()
arguments=()
while [ "$#" -gt 0 ]; do
  case $1 in
    --fast) fast=1 wanted="not long and not served and not slow" ;;
    -m) wanted=$2 && shift ;;
    -m?*) wanted=${1#-m} ;;
    -k*) named=1 arguments+=("$1") ;;
    *)
      [ ! -e "${1%%::*}" ] || paths+=("$1") named=1
      arguments+=("$1")
      ;;
  esac
  shift
done

# Files, databases and servers of the tests lie in memory where there is enough: on a disk they wait for each fsync.
# Processes are killed here, the power is never cut, so what a file holds then is the same.
in_memory() {
  local free available
  [ -z "${TMPDIR:-}" ] && [ -w /dev/shm ] || return 1
  free=$(df --output=avail /dev/shm | tail -n 1)
  available=$(awk '$1 == "MemAvailable:" { print $2 }' /proc/meminfo)
  [ "$free" -ge "$FILES_KIB" ] && [ "$available" -ge "$MEMORY_KIB" ]
}
place=${TMPDIR:-/tmp}
if in_memory; then
  place=$(mktemp -d -p /dev/shm lethe-tests-XXXXXX)
  trap 'rm -rf "$place"' EXIT
  chmod 1777 "$place" # as /tmp: servers run under accounts of their own, with temporary files of theirs
fi

# Which of the tests that cost much are run (tests/rotation.py): one share of them, drawn by the commit.
# Who names tests gets all that are so named; so does who has no repository.
if [ -z "${LETHE_TEST_TURN:-}" ]; then
  LETHE_TEST_TURN=all
  if [ "$named" -eq 0 ] && commit=$(git rev-parse --short=8 HEAD 2>/dev/null); then
    turns=$(sed -n 's/^TURNS = //p' tests/rotation.py)
    LETHE_TEST_TURN=$((16#${commit:0:8} % turns))
  fi
fi
export LETHE_TEST_TURN

# The rules of the house take more than a minute, and make check has run them.
[ "${#paths[@]}" -gt 0 ] || arguments+=(--ignore=tests/style)
# Folders of which all is marked served: to collect them would take longer than to run many others.
if [ "$fast" -eq 1 ]; then
  for folder in benchmarks chaos deploy http journeys migrations pages regressions seeds; do
    arguments+=("--ignore=tests/$folder")
  done
fi

# Files in the order of tests/conftest.py, not by their number of tests.
side_by_side=(-n "$workers" --dist loadfile --no-loadscope-reorder)
beside=0
TMPDIR=$place "$PYTEST" -m "($wanted) and not alone" "${side_by_side[@]}" ${arguments[@]+"${arguments[@]}"} || beside=$?
[ "$fast" -eq 0 ] || exit "$beside"
# After a failure the rest is run too; not so after Ctrl-C, -x, or arguments that pytest does not take.
case $beside in
  0 | "$FAILED" | "$NOTHING_RAN") ;;
  *) exit "$beside" ;;
esac

# Where no path was asked for, the files that have such a test are enough: collecting all others takes half a minute.
if [ "${#paths[@]}" -eq 0 ]; then
  mapfile -t files < <(grep -rlE 'mark\.alone' --include='test_*.py' tests | sort)
  arguments+=(${files[@]+"${files[@]}"})
fi
alone=0
"$PYTEST" -m "($wanted) and alone" ${arguments[@]+"${arguments[@]}"} -n 0 || alone=$?

case $beside/$alone in
  "0/$NOTHING_RAN" | "$NOTHING_RAN/0") exit 0 ;;
  "$NOTHING_RAN/$NOTHING_RAN") exit "$NOTHING_RAN" ;;
esac
[ "$beside" -ne 0 ] && [ "$beside" -ne "$NOTHING_RAN" ] && exit "$beside"
exit "$alone"

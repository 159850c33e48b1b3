# Sourced by the steps of the set-up: say what begins, that it lasts, and how long it took. All of it on stderr.
#
#   step TEXT COMMAND...        the exit code is the command's

readonly STEP_SAYS_EACH_S=10

# Beside the command, not around it: Ctrl-C must reach the command itself.
step_clock() { # BEGAN OWNER
  while sleep "$STEP_SAYS_EACH_S" </dev/null >/dev/null 2>&1 && kill -0 "$2" 2>/dev/null; do
    echo "    $((SECONDS - $1)) s so far" >&2
  done
}

step() {
  local text=$1 began=$SECONDS status=0 clock
  shift
  echo "setup: $text" >&2
  step_clock "$began" "$$" &
  clock=$!
  "$@" || status=$?
  kill "$clock" 2>/dev/null || true
  wait "$clock" 2>/dev/null || true
  [ "$status" -eq 0 ] && echo "    done in $((SECONDS - began)) s" >&2
  return "$status"
}

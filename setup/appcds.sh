#!/usr/bin/env bash
# Make the class data archive that halves the start of Spark, where the service looks for it:
# .venv/share/lethe/spark-classes.jsa. Java ignores one that does not fit, so a stale archive does no harm.
# Always exits 0: it saves seconds, nothing depends on it.
set -euo pipefail
cd "$(dirname "$0")/.."
. setup/step.sh

readonly PYTHON=.venv/bin/python
readonly PATIENCE_S=300

java_identity() {
  local java=java
  [ -z "${JAVA_HOME:-}" ] || java=$JAVA_HOME/bin/java
  "$java" -version 2>&1
}

identity=$(java_identity) || exit 0
archive=$("$PYTHON" -c 'from spark.pool.options import default_cds_archive; print(default_cds_archive())') || exit 0
jars=$("$PYTHON" -c 'from spark.pool.jvm import spark_home; print(spark_home() / "jars")') || exit 0

if [ -f "$archive" ] && [ "$archive" -nt "$jars" ] && [ "$identity" = "$(cat "$archive.java" 2>/dev/null)" ]; then
  exit 0
fi
if step "the class data archive of Spark (about a minute, once)" \
  timeout "$PATIENCE_S" "$PYTHON" -m spark.pool.class_archive; then
  printf '%s\n' "$identity" > "$archive.java"
else
  echo "No class data archive: Spark starts without it, in about twice the time." >&2
fi

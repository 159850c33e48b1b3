#!/usr/bin/env bash
# See that Java 17 or newer is there, and install it from Debian where that is allowed.
# Always exits 0: only the Spark engine needs Java, jobs run inline without it.
set -euo pipefail
cd "$(dirname "$0")/.."
. setup/step.sh

readonly OLDEST=17

java_version() { # prints the major version: 17 of "17.0.15", 8 of "1.8.0_412"
  local java=java
  [ -z "${JAVA_HOME:-}" ] || java=$JAVA_HOME/bin/java
  "$java" -version 2>&1 | sed -nE 's/.* version "(1\.)?([0-9]+).*/\2/p' | head -n 1
}

has_java() {
  local version
  version=$(java_version) || return 1
  [ "${version:-0}" -ge "$OLDEST" ]
}

has_java && exit 0
# Debian 12 has 17; later releases have dropped it for a newer default.
for package in openjdk-17-jre-headless default-jre-headless; do
  if step "Java: Debian's $package" setup/debian-packages.sh "$package" && has_java; then
    exit 0
  fi
done
cat >&2 <<'END'
Java 17 or newer is missing and could not be installed from here. Lethe works without it, except for the Spark
engine. As root: apt-get install openjdk-17-jre-headless    (or set JAVA_HOME to a Java 17+ of your own)
END

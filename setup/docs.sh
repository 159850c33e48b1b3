#!/usr/bin/env bash
# Build the documentation as a site, into dist/docs. A broken link or anchor, a page that the navigation lacks, and
# anything that a reader's browser would ask of somebody else, is an error.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly SITE=dist/docs
programs=$(setup/tools.sh docs)
# Not --quiet: it would count no warning.
if ! said=$(NO_MKDOCS_2_WARNING=1 DISABLE_MKDOCS_2_WARNING=true "$programs/mkdocs" build --strict --clean 2>&1); then
  grep -vE '^INFO' <<<"$said" >&2
  exit 1
fi
# What a page loads by itself; what it only links to is the reader's choice.
readonly ASKED='<(script|img|iframe)[^>]* src="https?:|<link[^>]* rel="(stylesheet|preconnect|icon)"[^>]* href="https?:'
if foreign=$(grep -rlE "$ASKED" "$SITE" --include='*.html'); then
  echo "docs: these pages ask somebody else: $foreign" >&2
  exit 1
fi
echo "docs: $(find "$SITE" -name '*.html' | wc -l) pages in $SITE"

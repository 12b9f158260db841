#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The documentation as a site of files, for any web server:
#   scripts/build_site.sh [FOLDER]     default: build/site
# A warning, as of a link that leads nowhere, is an error. Needs the network once, for tools/site/requirements.txt.
source "$(dirname "$0")/common.sh"

out=$(realpath -m "${1:-build/site}")
environment=build/site_environment
if ! cmp -s tools/site/requirements.txt "$environment/requirements.txt"; then
  python3 -m venv "$environment" || exit 1
  if ! "$environment/bin/pip" install -q --retries 1 --timeout 10 -r tools/site/requirements.txt; then
    echo "The site is not built: what tools/site/requirements.txt names cannot be installed" >&2
    exit $skipped
  fi
  cp tools/site/requirements.txt "$environment/"
fi
# With --quiet it would not count warnings, and `strict` would refuse none.
NO_MKDOCS_2_WARNING=1 "$environment/bin/mkdocs" build -f tools/site/mkdocs.yml -d "$out" || exit 1
echo "$out/index.html"

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
  python3 -m venv "$environment" && "$environment/bin/pip" install -q -r tools/site/requirements.txt || exit 1
  cp tools/site/requirements.txt "$environment/"
fi
# With --quiet it would not count warnings, and `strict` would refuse none.
NO_MKDOCS_2_WARNING=1 "$environment/bin/mkdocs" build -f tools/site/mkdocs.yml -d "$out" || exit 1
echo "$out/index.html"

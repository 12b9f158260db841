#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Serves the MovieLens model by gRPC and HTTP (KServe v2), on a fresh Debian or Ubuntu machine too: installs what is missing,
# builds, and says how to call it. Ctrl-C stops it.
#   scripts/serve.sh [option of the server...]      scripts/serve.sh --help lists them; docs/SERVER.md explains them
set -euo pipefail
source "$(dirname "$0")/common.sh"

scripts/install_deps.sh server

log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "Building the server (a few minutes the first time)"
if ! { cmake --preset cpu -B build/serve -D WARPRANK_BUILD_TESTS=OFF -D WARPRANK_BUILD_BENCHMARKS=OFF \
         -D WARPRANK_WITH_SERVER=ON &&
       cmake --build build/serve --target server; } >"$log" 2>&1; then
  cat "$log" >&2
  exit 1
fi
rm -f "$log"

cat <<TEXT

To call it, from another terminal:
  python3 -m venv build/client && build/client/bin/pip install -q 'tritonclient[grpc]'
  build/client/bin/python tools/client/rank.py
  curl http://localhost:8000/v2/models/din_mmoe
  curl http://localhost:8002/metrics

TEXT
exec build/serve/examples/server "$@"

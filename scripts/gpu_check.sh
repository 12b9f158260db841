#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Everything that needs a GPU, in one go and without a network: tests on the card, and the T4's code on it as PTX for
# compute_75; whole models, PyTorch beside them, ops, latency under load; the tests under compute-sanitizer; sweeps.
#   scripts/gpu_check.sh OUTDIR [--quick] [--minutes N]
# It builds a bundle as scripts/package_benchmarks.sh does, for this card alone, and runs it. It ends within 10 minutes,
# with --quick within 4; a machine of few cores needs more to build, and gets them by --minutes, or what was built
# elsewhere. What there is no time or no tool for is left out, said, and done by the next run in OUTDIR, which gets
# report.md, gpu.json (for tools/performance.py --add), pictures and logs. So it is when it is ended from outside. Fails
# when something failed, no test passed, no report could be written, or there is no GPU.
#
# Libraries that are not installed are taken from .deps/ (scripts/fetch_deps.sh).
# WARPRANK_COMMIT  what the report calls the commit, where this is not a git repository
set -euo pipefail
folder=$(cd "$(dirname "$0")/.." && pwd)
for tool in cmake c++ nvcc python3; do
  if ! PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin command -v $tool >/dev/null; then
    echo "$0: $tool is not installed" >&2
    exit 1
  fi
done
exec python3 "$folder/scripts/gpu_check.py" "$@"

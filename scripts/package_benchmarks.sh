#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Everything that a card is to run, built here and packed into one archive, for a machine with a driver and Python 3.8:
#   scripts/package_benchmarks.sh OUT.tar.xz [--debian11 FOLDER] [--only REGEX] [--architectures LIST]
#                                 [--cuda FOLDER] [--without-cublaslt]
# There:
#   tar xf OUT.tar.xz && warprank-lab-*/run OUTDIR [--minutes N] [--quick]      as scripts/gpu_check.sh, without building
#
# It has tests for the card's code and as PTX for compute_75, benchmarks, models_run_model, the load generator, the
# tools that make the report, their data, and every library but glibc's, the driver and cuBLASLt, which is looked for at
# run time. Programs have code for sm_75, sm_80 (which sm_86 and sm_89 run) and sm_90, and PTX for what comes later.
#   --cuda FOLDER         as scripts/fetch_cuda.sh makes it, in place of the nvcc on PATH. What CUDA 12 builds runs with
#                         drivers from 525.60.13 on, but for the PTX, which needs one as new as the compiler: 550 for
#                         12.4; what CUDA 13 builds needs 580.65.06
#   --debian11 FOLDER     as scripts/fetch_debian11.sh makes it: programs then need glibc 2.31 and nothing else, so that
#                         they run on Debian 11, Ubuntu 20.04 and newer; else what this system's glibc is, or newer
#   --only REGEX          the programs whose names match, for a trial
#   --architectures LIST  in place of "75-real;80-real;90"
#   --without-cublaslt    for machines without it: no program needs it, or measures beside it
# WARPRANK_BUILD  where it is built (default: build); the machine needs what a build with CUDA and benchmarks needs
source "$(dirname "$0")/common.sh"
exec python3 scripts/package_benchmarks.py "$@"

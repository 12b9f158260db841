#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Registers, spills, shared memory, occupancy and tensor instructions of every kernel on every architecture, held
# against the budgets in tests/resources; and what kernels execute and move, counted by the tests of the preset cpu where
# they are built. Needs nvcc and no GPU. What the tables say: scripts/kernel_report.py.
#   scripts/kernel_report.sh [OP...]
source "$(dirname "$0")/common.sh"
exec python3 scripts/kernel_report.py --tests build/cpu/tests "$@"

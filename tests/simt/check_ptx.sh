#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Checks that the vocabulary means the instructions that it names, one for each call:
#   check_ptx.sh NVCC SOURCE_DIR
set -euo pipefail
ptx=$("$1" -std=c++17 -O3 -arch=sm_80 -I "$2/include" -I "$2/tests" -ptx "$2/tests/simt/kernels.cu" -o -)

expected=(
  'ld\.global\.v4' 'st\.global\.v4' 'st\.global\.v2'                       # vectors
  'ld\.global\.nc'                                                         # read-only loads
  'ld\.acquire\.gpu\.b32' 'ld\.relaxed\.gpu\.b64' 'st\.release\.gpu\.b32'  # order and scope
  'atom\.acq_rel\.gpu\.inc\.u32' 'atom\.relaxed\.gpu\.cas\.b64'            # atomics
  'bar\.sync'                                                              # barriers
  'cp\.async\.cg\.shared\.global' 'cp\.async\.wait_group 0'                # copies
  'ldmatrix\.sync\.aligned\.m8n8\.x4\.shared' 'ldmatrix\.sync\.aligned\.m8n8\.x2\.trans\.shared'
  'mma\.sync\.aligned\.m16n8k8' 'mma\.sync\.aligned\.m16n8k16'
)
failed=0
for instruction in "${expected[@]}"; do
  if ! grep -qE "$instruction" <<<"$ptx"; then
    echo "missing: $instruction"
    failed=1
  fi
done
# A copy of a vector through its bytes would be many loads.
if grep -nE '(ld|st)\.global\.u8' <<<"$ptx"; then
  echo "global memory is accessed byte by byte"
  failed=1
fi
exit $failed

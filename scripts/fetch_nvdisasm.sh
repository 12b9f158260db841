#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Puts CUDA 13's nvdisasm into a folder, from PyPI, for a machine whose toolkit has none:
#   scripts/fetch_nvdisasm.sh FOLDER    FOLDER/bin/nvdisasm; tools/t4/run finds build/nvdisasm by itself
# Does nothing where it is there. 5 MB.
source "$(dirname "$0")/common.sh"
set -e

if (($# != 1)) || [[ $1 == -* ]]; then
  echo "usage: $0 FOLDER" >&2
  exit 2
fi
mkdir -p "$1/bin"
folder=$(realpath "$1")
[[ ! -x $folder/bin/nvdisasm ]] || exit 0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m pip download -q --no-deps -d "$work" "nvidia-cuda-nvdisasm==13.*" >"$work/log" 2>&1 ||
  { tail -n 5 "$work/log" >&2; exit 1; }
python3 -m zipfile -e "$work"/*.whl "$work/wheel"
program=$(find "$work/wheel" -name nvdisasm -type f)
if [[ -z $program ]]; then
  echo "The package nvidia-cuda-nvdisasm has no nvdisasm: $(cd "$work" && ls ./*.whl)" >&2
  exit 1
fi
install -m 755 "$program" "$folder/bin/nvdisasm.new"
mv "$folder/bin/nvdisasm.new" "$folder/bin/nvdisasm"
"$folder/bin/nvdisasm" --version | sed -n 's/.*release \([^,]*\).*/nvdisasm \1/p'

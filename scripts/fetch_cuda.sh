#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Puts a CUDA 12 toolkit into a folder, beside whatever else is installed, on a Debian with a network:
#   scripts/fetch_cuda.sh FOLDER [RUNTIME]
#     FOLDER   bin/nvcc, include, lib64 of CUDA 12.4, which Debian 13 packs; nothing is installed
#     RUNTIME  for example 12.2: its headers of the runtime in their place, from PyPI, to see which calls it has. For
#              objects: a program would still be linked with the runtime of 12.4
# PyPI's packages of CUDA 12 have the headers, but no nvcc; those of 13 have. Takes 1 GB of downloads, keeps 200 MB. Does
# nothing where the folder is complete. To build with it:
#   cmake --preset t4-cuda12                  where FOLDER is build/cuda12
#   scripts/package_benchmarks.sh ... --cuda FOLDER
source "$(dirname "$0")/common.sh"
set -e

if (($# < 1 || $# > 2)) || [[ $1 == -* ]]; then
  echo "usage: $0 FOLDER [RUNTIME]" >&2
  exit 2
fi
runtime=${2:-}
mkdir -p "$(dirname "$1")"
folder=$(realpath "$1")
[[ ! -f $folder/complete || $(<"$folder/complete") != "$runtime" ]] || exit 0
if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
  echo "This needs apt-get and dpkg-deb, of Debian or Ubuntu." >&2
  exit 1
fi
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
if [[ ! -f $keyring ]]; then
  echo "This needs Debian's keys: apt-get install debian-archive-keyring" >&2
  exit 1
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{lists/partial,cache/archives/partial,packages,root}

# apt with lists of its own, from where the machine has its packages: the machine's lists stay as they are.
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' | sort -u | head -n 1)
if [[ -z $mirror ]]; then
  echo "This needs a mirror of Debian among the sources of apt, got none; or run apt-get update first." >&2
  exit 1
fi
echo "deb [signed-by=$keyring] $mirror trixie main contrib non-free" >"$work/sources.list"
apt=(-q -o "Dir::Etc::SourceList=$work/sources.list" -o Dir::Etc::SourceParts=/dev/null
     -o "Dir::State::Lists=$work/lists" -o "Dir::Cache=$work/cache" -o APT::Sandbox::User=root)
{
  apt-get "${apt[@]}" update
  (cd "$work/packages" && apt-get "${apt[@]}" download nvidia-cuda-toolkit nvidia-cuda-dev libcudart12 libcu++-dev)
} >"$work/log" 2>&1 || { tail -n 20 "$work/log" >&2; exit 1; }

# Of the libraries only the runtime and the stubs: all others, a gigabyte of them, are looked for at run time.
wanted=(./usr/bin/ ./usr/include/ ./usr/lib/nvidia-cuda-toolkit/{bin,libdevice}/ './usr/lib/*/libcudart*'
        './usr/lib/*/libcudadevrt*' './usr/lib/*/libculibos*' './usr/lib/*/stubs/')
for package in "$work"/packages/*.deb; do
  dpkg-deb --fsys-tarfile "$package" | tar -x -C "$work/root" --wildcards "${wanted[@]}" 2>"$work/log" ||
    grep -q 'Not found in archive' "$work/log"  # each has some of these
done

usr=$work/root/usr made=$work/made
mkdir -p "$made"/{bin,lib64,nvvm}
rm -f "$usr/bin/nvcc"  # a script that calls the real one
cp -a "$usr"/bin/{bin2c,cudafe++,cuobjdump,fatbinary,nvdisasm,nvlink,ptxas,__nvcc_device_query} "$made/bin"
cp -a "$usr"/lib/nvidia-cuda-toolkit/bin/{nvcc,cicc,crt} "$made/bin"
cp -a "$usr/include" "$made/include"
cp -a "$usr"/lib/*/{libcud*,libculibos*,stubs} "$made/lib64"
cp -a "$usr/lib/nvidia-cuda-toolkit/libdevice" "$made/nvvm/libdevice"
cat >"$made/bin/nvcc.profile" <<'PROFILE'
TOP              = $(_HERE_)/..
CICC_PATH        = $(TOP)/bin
NVVMIR_LIBRARY_DIR = $(TOP)/nvvm/libdevice
PATH            += $(CICC_PATH):$(_HERE_):
INCLUDES        += "-I$(TOP)/include" $(_SPACE_)
LIBRARIES       =+ $(_SPACE_) "-L$(TOP)/lib64/stubs" "-L$(TOP)/lib64"
PROFILE

if [[ -n $runtime ]]; then
  # crt/ belongs to nvcc.
  pip download -q --no-deps -d "$work/wheel" "nvidia-cuda-runtime-cu12==$runtime.*" >"$work/log" 2>&1 ||
    { tail -n 5 "$work/log" >&2; exit 1; }
  python3 -m zipfile -e "$work"/wheel/*.whl "$work/wheel"
  rm -rf "$work"/wheel/nvidia/cuda_runtime/include/crt
  cp -r "$work"/wheel/nvidia/cuda_runtime/include/. "$made/include"
fi

echo "$runtime" >"$made/complete"
rm -rf "$folder"
mv "$made" "$folder"
"$folder/bin/nvcc" --version | sed -n 's/.*release \([^,]*\).*/nvcc \1/p'
sed -n 's/^#define CUDART_VERSION *\([0-9]*\).*/runtime \1/p' "$folder/include/cuda_runtime_api.h"

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Ranks films for a MovieLens user, on a fresh Debian or Ubuntu machine too: installs what is missing, builds, runs.
#   scripts/demo.sh [--user N] [--data DIR] [--top N] [--engine host|cuda]
# On a GPU where there are one and nvcc; it says which engine ran. The films and ratings are those in --data, else in
# WARPRANK_DATA, else downloaded from their publisher once, else made up.
# Where WARPRANK_HOST_ARCHIVE names the libwarprank_host.a of another build of this tree, that engine is used.
set -euo pipefail

arguments=() engine=()
while (($#)); do
  case $1 in
    --data=*) WARPRANK_DATA=${1#--data=}; shift ;;
    --data)
      if (($# < 2)); then
        echo "$0: --data needs the folder of MovieLens 100K" >&2
        exit 2
      fi
      WARPRANK_DATA=$2
      shift 2
      ;;
    --engine=*) engine=("$1"); arguments+=("$1"); shift ;;
    --engine)
      if (($# < 2)); then
        echo "$0: --engine needs host or cuda" >&2
        exit 2
      fi
      engine=("--engine=$2") arguments+=("--engine=$2")
      shift 2
      ;;
    -h | --help) sed -n '4,8s/^# \?//p' "$0"; exit ;;
    *) arguments+=("$1"); shift ;;
  esac
done
if [[ -n ${WARPRANK_DATA:-} && ! -d $WARPRANK_DATA ]]; then
  echo "$0: expected the folder of MovieLens 100K, got '$WARPRANK_DATA', which is not a folder" >&2
  exit 1
fi
source "$(dirname "$0")/common.sh"

# Puts the publisher's files into build/ml-100k unless they are there, and tells whether they are.
download() {
  local url=https://files.grouplens.org/datasets/movielens/ml-100k.zip
  local sha256=50d2a982c66986937beb9ffb3aa76efe955bf3d5c6b761f4e3a7cd717c6a3229  # 4,924,029 bytes
  [[ -d build/ml-100k ]] && return
  echo "Downloading MovieLens 100K from GroupLens (5 MB; see its README for the terms of use)"
  local folder
  folder=$(mktemp -d)
  curl -fsSL --connect-timeout 10 --max-time 120 --max-filesize 10000000 -o "$folder/ml-100k.zip" "$url" &&
    sha256sum --quiet --check <<<"$sha256  $folder/ml-100k.zip" &&
    unzip -q "$folder/ml-100k.zip" -d "$folder" &&
    mkdir -p build &&
    mv "$folder/ml-100k" build/ml-100k
  local result=$?
  rm -rf "$folder"
  return $result
}

scripts/install_deps.sh demo
if [[ -z ${WARPRANK_DATA:-} ]]; then
  if download; then
    export WARPRANK_DATA=$PWD/build/ml-100k
  else
    echo "That did not work. To use a copy of your own: scripts/demo.sh --data DIR" >&2
  fi
fi

preset=cpu
if command -v nvcc >/dev/null && nvidia-smi -L 2>/dev/null | grep -q '^GPU'; then
  preset=native  # a GPU, and what it takes to build for it
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "Building the example (a minute or two the first time)"
if ! { cmake --preset $preset -B build/demo -D WARPRANK_BUILD_TESTS=OFF -D WARPRANK_BUILD_BENCHMARKS=OFF \
         -D WARPRANK_HOST_ARCHIVE="${WARPRANK_HOST_ARCHIVE:-}" &&
       cmake --build build/demo --target movielens; } >"$log" 2>&1; then
  cat "$log" >&2
  exit 1
fi
echo

example=build/demo/examples/movielens
"$example" "${arguments[@]}"
if [[ -n ${WARPRANK_DATA:-} ]]; then
  echo
  "$example" --evaluate "${engine[@]}"
fi

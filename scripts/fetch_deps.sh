#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Fills .deps/ with what a machine without a network needs beside the CUDA toolkit, a C++ compiler and CMake: Debian or
# Ubuntu packages of Highway, nlohmann-json, CLI11, GoogleTest, Google Benchmark and Ninja, unpacked and not installed.
# Run it on a machine with a network, whose release is not newer than the other's, and carry the whole folder over:
#   scripts/fetch_deps.sh
#   cmake ... -D CMAKE_PREFIX_PATH=$PWD/.deps/usr      there; scripts/gpu_check.sh does so by itself
source "$(dirname "$0")/common.sh"

if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
  echo "This needs apt-get and dpkg-deb, of Debian or Ubuntu." >&2
  exit 1
fi

packages=(libhwy-dev nlohmann-json3-dev libcli11-dev libgtest-dev libgmock-dev libbenchmark-dev ninja-build)
# What they are linked with has another name in each release.
mapfile -t libraries < <(apt-cache depends --important "${packages[@]}" |
  sed -n 's/^ *Depends: \(lib\(hwy\|benchmark\)[0-9][^ ]*\)$/\1/p' | sort -u)

folder=$PWD/.deps
rm -rf "$folder"
mkdir -p "$folder/packages"
if ! (cd "$folder/packages" && apt-get -q -o APT::Sandbox::User=root download "${packages[@]}" "${libraries[@]}"); then
  echo "Downloading failed. If the lists of packages are old or empty: apt-get update" >&2
  exit 1
fi
for package in "$folder"/packages/*.deb; do
  dpkg-deb -x "$package" "$folder"
  dpkg-deb -W --showformat '${Package} ${Version} ${Architecture}\n' "$package"
done | tee "$folder/packages.txt"
rm -rf "$folder/packages" "$folder"/usr/share/{doc,man,lintian}
echo "$folder: $(du -sh "$folder" | cut -f1)"

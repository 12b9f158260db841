#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs the Debian or Ubuntu packages that the library needs, or says which. Says nothing when all are there.
#   scripts/install_deps.sh demo    to build the example
#   scripts/install_deps.sh server  to build the server
#   scripts/install_deps.sh python  to build the Python package
#   scripts/install_deps.sh test    and the tests and benchmarks (the default)
#   scripts/install_deps.sh check   and what scripts/check_all.sh uses besides: clang, clang-format, Abseil, ccache, gRPC,
#                                   cpp-httplib, Redis
set -euo pipefail

packages=(g++ cmake ninja-build libhwy-dev nlohmann-json3-dev libcli11-dev curl ca-certificates unzip)
server=(libgrpc++-dev libprotobuf-dev protobuf-compiler-grpc libcpp-httplib-dev pkg-config)
python=(python3 python3-dev python3-venv)
case "${1:-test}" in
  demo) ;;
  server) packages+=("${server[@]}" python3-venv) ;;
  python) packages+=("${python[@]}" python3-pip) ;;
  test) packages+=(libgtest-dev libgmock-dev libbenchmark-dev "${python[@]}") ;;
  check) packages+=(libgtest-dev libgmock-dev libbenchmark-dev libabsl-dev "${python[@]}" clang libclang-rt-dev clang-format git
                    ccache debootstrap dpkg-dev "${server[@]}" openssl libhiredis-dev redis-server libb64-0d) ;;
  *) echo "usage: $0 [demo|server|python|test|check]" >&2; exit 2 ;;
esac

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  # Not a Debian: CMake will say what is missing. These are the names to look for.
  command -v cmake >/dev/null && command -v ninja >/dev/null && exit 0
  echo "This is not Debian or Ubuntu. Please install what these packages contain: ${packages[*]}" >&2
  exit 1
fi

missing=()
for package in "${packages[@]}"; do
  [[ $(dpkg-query -W -f='${Status}' "$package" 2>/dev/null) == "install ok installed" ]] || missing+=("$package")
done
((${#missing[@]})) || exit 0

install=(apt-get install -y -q --no-install-recommends "${missing[@]}")
if ((EUID == 0)); then
  as_root=(env DEBIAN_FRONTEND=noninteractive)
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
  as_root=(sudo -n env DEBIAN_FRONTEND=noninteractive)
else
  echo "Some packages are missing and this user may not install them. Please run, then try again:" >&2
  echo "  sudo apt-get update && sudo apt-get install -y ${missing[*]}" >&2
  exit 1
fi

echo "Installing ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# The lists of a fresh image are empty, those of an old one name files that are gone: both fail at once, and help is an
# update.
if ! "${as_root[@]}" "${install[@]}" >"$log" 2>&1 &&
   ! { "${as_root[@]}" apt-get update -q && "${as_root[@]}" "${install[@]}"; } >"$log" 2>&1; then
  cat "$log" >&2
  echo "Installing failed. These packages are needed (Debian 12, Ubuntu 24.04 or newer): ${missing[*]}" >&2
  exit 1
fi

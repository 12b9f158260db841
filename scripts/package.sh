#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Makes what a release consists of:
#   scripts/package.sh OUTDIR
#     warprank-VERSION.tar.gz                 the source
#     warprank-headers_VERSION_all.deb        the headers, for CMake and pkg-config
#     libwarprank-dev_VERSION_<machine>.deb   and the compiled host engine
#     warprank-store-headers_VERSION_all.deb  the headers of a companion; likewise ids and serving
# The same tree, compiler and packages give the same bytes. Times within are those of the last commit, or what
# SOURCE_DATE_EPOCH says.
if (($# != 1)) || [[ $1 == -* ]]; then
  echo "usage: $0 OUTDIR" >&2
  exit 2
fi
out=$(realpath -m "$1")
source "$(dirname "$0")/common.sh"
set -e

SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH LC_ALL=C
umask 022
part() { sed -n "s/#define WARPRANK_VERSION_$1 //p" include/warprank/version.hpp; }
version=$(part MAJOR).$(part MINOR).$(part PATCH)
mkdir -p "$out"

git ls-files -z --cached --others --exclude-standard | sort -z |
  tar -c --null -T - --format=gnu --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
    --mode=u+rw,go=rX --transform="s,^,warprank-$version/,S" | gzip -9n >"$out/warprank-$version.tar.gz"

build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
{
  cmake -S . -B "$build" -G Ninja -D CMAKE_BUILD_TYPE=Release -D CMAKE_INSTALL_PREFIX=/usr \
    -D WARPRANK_BUILD_TESTS=OFF -D WARPRANK_BUILD_BENCHMARKS=OFF -D WARPRANK_BUILD_EXAMPLES=OFF
  cmake --build "$build"
  cpack --config "$build/CPackConfig.cmake" -G DEB -B "$build/packages"
} >"$build.log" 2>&1 || { tail -n 30 "$build.log" >&2; exit 1; }
rm "$build.log"
mv "$build"/packages/*.deb "$out"
ls "$out"

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Every way to use the library that docs/INSTALL.md lists: a project of a user's builds and runs the quickstart by it. And
# that packages have the same bytes each time, and one version.
#   scripts/check_packages.sh
# Installs nothing: packages are unpacked, Conan is put into build/conan. Highway and nlohmann-json are the system's: for
# Conan made into packages as ConanCenter has them, by tests/packages/conan_center. vcpkg itself is not needed, the port's
# steps are run by tests/packages/vcpkg_like.cmake.
source "$(dirname "$0")/common.sh"

root=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
part() { sed -n "s/#define WARPRANK_VERSION_$1 //p" include/warprank/version.hpp; }
version=$(part MAJOR).$(part MINOR).$(part PATCH)
quiet() { "$@" >"$work/log" 2>&1 || { tail -n 40 "$work/log" >&2; return 1; }; }

# Whether a file has the scores of the quickstart.
has_scores() { [[ $(grep -cE '^0\.[0-9]{4}$' "$1") -ge 2 ]]; }
ranks() { "$1" >"$work/scores" && has_scores "$work/scores"; }

# consume NAME [cmake option...]: the quickstart by CMake.
consume() {
  local name=$1
  shift
  quiet cmake -S tests/packages -B "$work/$name" -G Ninja -D CMAKE_BUILD_TYPE=Release "$@" &&
    quiet cmake --build "$work/$name" && ranks "$work/$name/quickstart"
}

# by_pkg_config NAME PACKAGE [compiler option...]
by_pkg_config() {
  local flags
  flags=$(PKG_CONFIG_PATH=$work/deb/usr/share/pkgconfig:$(echo "$work"/deb/usr/lib/*/pkgconfig) \
    pkg-config --cflags --libs "$2") || return 1
  # shellcheck disable=SC2086
  quiet c++ -std=c++20 "${@:3}" examples/quickstart/main.cpp $flags -o "$work/$1" && ranks "$work/$1"
}

one_version() {
  grep -q "\"version-semver\": \"$version\"" packaging/vcpkg/warprank/vcpkg.json &&
    grep -q "^## $version\b" CHANGELOG.md || { echo "vcpkg.json and CHANGELOG.md are not about $version" >&2; return 1; }
}

make_packages() { scripts/package.sh "$work/packages" && umask 077 && scripts/package.sh "$work/again" >"$work/log"; }

same_bytes() {
  local file
  for file in "$work"/packages/*; do
    cmp "$file" "$work/again/${file##*/}" || return 1
  done
}

# That they could be installed, and what is in them.
unpack_debs() {
  quiet apt-get install --simulate -y "$work"/packages/*.deb &&
    for file in "$work"/packages/*.deb; do dpkg-deb -x "$file" "$work/deb"; done &&
    for package in libwarprank-dev warprank-store-headers warprank-ids-headers warprank-serving-headers; do
      [[ $(dpkg-deb -f "$work"/packages/${package}_*.deb Depends) == "warprank-headers (= $version)" ]] || return 1
    done
}

by_plain_include() {
  quiet c++ -std=c++20 -O0 -I include examples/quickstart/main.cpp -lhwy -pthread -o "$work/plain" && ranks "$work/plain"
}

# configures PREFIX COMPANION: whether warprank::COMPANION of an installed package can be linked.
configures() { cmake -S tests/packages -B "$work/$2_in_${1##*/}" -G Ninja -D CMAKE_PREFIX_PATH="$1" -D WITH="$2"; }
# Likewise warprank::redis, where hiredis is.
has_redis() { [[ ! -f /usr/include/hiredis/hiredis.h ]] || quiet configures "$1" redis; }

by_component() {  # the headers alone, without compiling anything
  quiet cmake -S . -B "$work/configured" -G Ninja -D WARPRANK_BUILD_TESTS=OFF -D WARPRANK_BUILD_BENCHMARKS=OFF \
    -D WARPRANK_BUILD_EXAMPLES=OFF &&
    quiet cmake --install "$work/configured" --prefix "$work/headers" --component headers &&
    [[ -z $(find "$work/headers" -name '*.a' -o -name store -o -name ids -o -name 'serving*') ]] &&
    quiet cmake -S tests/packages -B "$work/with_headers" -G Ninja -D CMAKE_PREFIX_PATH="$work/headers" -D WITH=warprank &&
    ! configures "$work/headers" store >"$work/log" 2>&1 && grep -q 'warprank::store' "$work/log" &&
    for companion in store ids serving; do
      quiet cmake --install "$work/configured" --prefix "$work/headers" --component "$companion" &&
        quiet configures "$work/headers" "$companion" || return 1
    done &&
    has_redis "$work/headers" &&
    ! cmake -S tests/packages -B "$work/without_host" -G Ninja -D CMAKE_PREFIX_PATH="$work/headers" >"$work/log" 2>&1 &&
    grep -q 'warprank::host' "$work/log"
}

by_vcpkg() {
  local features="core;store;ids;serving"
  [[ ! -f /usr/include/hiredis/hiredis.h ]] || features+=";redis"
  quiet cmake -D CURRENT_PACKAGES_DIR="$work/vcpkg" -D BUILD_DIR="$work/vcpkg_build" -D FEATURES="$features" \
    -P tests/packages/vcpkg_like.cmake &&
    consume by_vcpkg -D CMAKE_PREFIX_PATH="$work/vcpkg" &&
    has_redis "$work/vcpkg" && grep -q '"hiredis"' packaging/vcpkg/warprank/vcpkg.json &&
    [[ -f $work/vcpkg/share/warprank/copyright && -f $work/vcpkg/share/warprank/usage ]]
}

# in_conan PACKAGE DEBIAN_PACKAGE: makes the package of ConanCenter's shape of the one that the system has.
in_conan() {
  local version
  version=$(dpkg-query -W -f='${Version}' "$2")
  quiet build/conan/bin/conan create "tests/packages/conan_center/$1.py" --version "${version%%-*}"
}

# Whether Conan's Highway was taken, not the system's, for the package and for the program of who uses it.
has_conans_highway() {
  grep -q "^hwy_DIR:PATH=$CONAN_HOME/" "$CONAN_HOME"/p/b/warpr*/b/build/*/CMakeCache.txt &&
    ldd "$work"/conan_test/*/quickstart | grep -q "libhwy\.so.* => $CONAN_HOME/" ||
    { echo "the system's Highway was taken, not Conan's" >&2; return 1; }
}

# The same package with hiredis, where that is: nothing is compiled again.
has_redis_by_conan() {
  [[ ! -f /usr/include/hiredis/hiredis.h ]] ||
    { in_conan hiredis libhiredis-dev &&
      quiet build/conan/bin/conan install --requires "warprank/$version" -o "warprank/*:redis=True" -g CMakeDeps \
        -g CMakeToolchain -of "$work/conan_redis" &&
      quiet cmake -S tests/packages -B "$work/redis_by_conan" -G Ninja -D CMAKE_BUILD_TYPE=Release -D WITH=redis \
        -D CMAKE_TOOLCHAIN_FILE="$work/conan_redis/conan_toolchain.cmake"; }
}

by_conan() {
  if [[ ! -x build/conan/bin/conan ]]; then
    quiet python3 -m venv build/conan && quiet build/conan/bin/pip install "conan>=2.4,<3" || return 1
  fi
  export CONAN_HOME=$work/conan_home
  quiet build/conan/bin/conan profile detect || return 1
  cat >>"$CONAN_HOME/profiles/default" <<PROFILE
[conf]
tools.cmake.cmaketoolchain:generator=Ninja
tools.cmake.cmake_layout:test_folder=$work/conan_test
PROFILE
  in_conan highway libhwy-dev && in_conan nlohmann_json nlohmann-json3-dev &&
    quiet build/conan/bin/conan create packaging/conan && has_scores "$work/log" && has_conans_highway &&
    has_redis_by_conan
}

step "one version" one_version || true
step "packages" make_packages && {
  step "the same bytes" same_bytes || true
  step "Debian's packages" unpack_debs && {
    step "by find_package" consume by_deb -D CMAKE_PREFIX_PATH="$work/deb/usr" || true
    step "by pkg-config, compiled" by_pkg_config pc_host warprank-host || true
    step "by pkg-config, headers" by_pkg_config pc_headers warprank -O0 || true
  }
  step "by FetchContent" consume by_fetch_content -D WARPRANK_ARCHIVE="$work/packages/warprank-$version.tar.gz" \
    -D WITH=warprank -D CMAKE_BUILD_TYPE=Debug || true
}
step "by add_subdirectory" consume by_subdirectory -D WARPRANK_SOURCE_DIR="$root" || true
step "by components" by_component || true
step "by -I" by_plain_include || true
step "by vcpkg's port" by_vcpkg || true
step "by Conan" by_conan || true
summary

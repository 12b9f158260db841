#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What packing programs for old systems needs, on a Debian with a network, as root:
#   scripts/fetch_debian11.sh FOLDER
#     FOLDER/root    Debian 11 with Python: its C library, 2.31, is what programs are linked against and tried with
#     FOLDER/static  Highway and Google Benchmark as static libraries, built from this system's source packages
# Does nothing where both are there.
source "$(dirname "$0")/common.sh"

if (($# != 1)) || [[ $1 == -* ]]; then
  echo "usage: $0 FOLDER" >&2
  exit 2
fi
mkdir -p "$1"
folder=$(realpath "$1")

fetch_root() {
  if ((EUID != 0)) || ! command -v debootstrap >/dev/null; then
    echo "This needs root and debootstrap, of Debian or Ubuntu." >&2
    return 1
  fi
  rm -rf "$folder/root" "$folder/root.part"
  debootstrap --variant=minbase --include=libc6-dev,python3 bullseye "$folder/root.part" &&
    rm -rf "$folder"/root.part/var/{cache,lib}/apt && mkdir -p "$folder"/root.part/var/{cache,lib}/apt || return 1
  # A linker outside follows links as it finds them: absolute ones would lead it to the libraries of this system.
  local link
  find "$folder"/root.part/usr/lib* -type l -lname '/*' -print0 | while IFS= read -r -d '' link; do
    ln -sfnr "$folder/root.part$(readlink "$link")" "$link"
  done
  mv "$folder/root.part" "$folder/root"
}

# The sources that belong to the packages that apt knows; its own lists stay as they are.
fetch_sources() {
  local apt=(-q -o Dir::Etc::SourceList="$PWD/sources.list" -o Dir::Etc::SourceParts=/dev/null
             -o Dir::State::Lists="$PWD/lists" -o APT::Sandbox::User=root)
  mkdir -p lists/partial
  apt-get indextargets --format 'deb-src $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
    sort -u >sources.list
  apt-get "${apt[@]}" update && apt-get "${apt[@]}" source "$@"
}

build_static() {
  local work name
  work=$(mktemp -d)
  # GIT_VERSION of 0.0.0: the version that its CMakeLists.txt says, as there is no git.
  (cd "$work" && fetch_sources highway benchmark) || return 1
  rm -rf "$folder/static.part"
  for name in highway benchmark; do
    cmake -S "$work/$name"-*/ -B "$work/build/$name" -G Ninja -D CMAKE_BUILD_TYPE=Release -D BUILD_SHARED_LIBS=OFF \
      -D BUILD_TESTING=OFF -D HWY_ENABLE_EXAMPLES=OFF -D HWY_ENABLE_CONTRIB=OFF -D BENCHMARK_ENABLE_TESTING=OFF \
      -D GIT_VERSION=0.0.0 -D CMAKE_INSTALL_PREFIX="$folder/static.part" --no-warn-unused-cli &&
      cmake --build "$work/build/$name" --target install || return 1
  done
  rm -rf "$work" "$folder/static"
  mv "$folder/static.part" "$folder/static"
}

log=$folder/log
[[ -d $folder/root ]] || fetch_root >"$log" 2>&1 || { tail -n 20 "$log" >&2; exit 1; }
[[ -d $folder/static ]] || build_static >"$log" 2>&1 || { tail -n 20 "$log" >&2; exit 1; }

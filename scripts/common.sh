# SPDX-License-Identifier: Apache-2.0
#
# For the other scripts to source: they run from the repository's root, whatever folder they are called in.

if [[ -n ${WARPRANK_DATA:-} ]]; then
  WARPRANK_DATA=$(realpath -- "$WARPRANK_DATA")
  export WARPRANK_DATA
fi
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# CMake reads this one itself.
if command -v ccache >/dev/null; then
  export CMAKE_CXX_COMPILER_LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER-ccache}
fi

export CTEST_PARALLEL_LEVEL=${CTEST_PARALLEL_LEVEL:-$(nproc)}

# step NAME COMMAND...: runs the command and notes how it went for `summary`.
steps=()
step() {
  local name=$1 begin=$SECONDS result=ok
  shift
  echo "== $name"
  "$@" || result=FAILED
  steps+=("$(printf '%-7s %5d s  %s' "$result" $((SECONDS - begin)) "$name")")
  [[ $result == ok ]]
}

# Prints one line for each step; fails when one did.
summary() {
  printf '\n== %s\n' "$0"
  printf '%s\n' "${steps[@]}"
  ! printf '%s\n' "${steps[@]}" | grep -q '^FAILED'
}

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Checks the format of every C++ file of the repository, new ones too; with --fix, mends it.
source "$(dirname "$0")/common.sh"
set -e

mode=(--dry-run -Werror)
[[ ${1:-} == --fix ]] && mode=(-i)
git ls-files -z --cached --others --exclude-standard -- '*.hpp' '*.h' '*.cpp' '*.cuh' '*.cu' | xargs -0 clang-format "${mode[@]}"

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs of all checks those that a change can concern, by the paths that it changes (scripts/changed_checks.py):
#   scripts/check_changed.sh [COMMIT]    since where HEAD left COMMIT, by default main, with what is not committed
source "$(dirname "$0")/common.sh"

checks=$(python3 scripts/changed_checks.py "$@") || exit 2
if [[ -z $checks ]]; then
  echo "Nothing is changed."
  exit
fi
echo "Checks: $checks"
# shellcheck disable=SC2086 # names of checks, one word each
exec scripts/check_all.sh $checks

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds exact counts against tests/counts.json: any that differs fails, and whoever means it writes it there.

    scripts/check_counts.py FOLDER             with the results of the tests that count: build/cpu/tests/counts
    scripts/check_counts.py FOLDER --update    writes what they counted to tests/counts.json

Tests count what the executor executes and moves, launches, copies, and bytes of memory (tests/support/counts.hpp);
CTest leaves their results in FOLDER, and runs this behind them. What nvcc makes of kernels is counted by
scripts/kernel_report.py, which has an --update of its own.
"""

import argparse
import glob
import itertools
import json
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FILE = f"{ROOT}/tests/counts.json"


def read():
    with open(FILE, encoding="utf-8") as file:
        return json.load(file)


def dumped(value, depth=0):
    """JSON with a line for each row, so that a change of one count is a change of one line."""
    inner = value.values() if isinstance(value, dict) else value
    if depth > 0 and not any(isinstance(item, (dict, list)) and item for item in inner):
        return json.dumps(value, ensure_ascii=False)
    indent = " " * (depth + 1)
    if isinstance(value, dict):
        lines = [f"{indent}{json.dumps(key)}: {dumped(item, depth + 1)}" for key, item in value.items()]
    else:
        lines = [indent + dumped(item, depth + 1) for item in value]
    begin, end = "{}" if isinstance(value, dict) else "[]"
    return f"{begin}\n" + ",\n".join(lines) + f"\n{' ' * depth}{end}"


def write(counts):
    with open(FILE, "w", encoding="utf-8") as file:
        file.write(dumped(counts) + "\n")


def differences(old, new):
    """Yields what differs of two tables; the first row of each names the columns."""
    if not old:
        yield "is not in tests/counts.json"
        return
    if old[0] != new[0]:
        yield f"the columns were {old[0]}, are {new[0]}"
    elif len(old) != len(new):
        yield from (f"{', '.join(row)}: is no longer counted" for row in old if row not in new)
        yield from (f"{', '.join(row)}: was not counted" for row in new if row not in old)
    else:
        for was, now in zip(old, new):
            cells = list(zip(old[0], was, now))
            begin = ", ".join(f"{column} {a}" for column, a, _ in itertools.takewhile(lambda c: c[1] == c[2], cells))
            yield from (f"{begin}: {column} was {a}, is {b}" for column, a, b in cells if a != b)


def results(folder):
    """{program: {test: table}} of gtest's JSON files."""
    counted = {}
    for path in sorted(glob.glob(f"{folder}/*.json")):
        with open(path, encoding="utf-8") as file:
            suites = json.load(file)["testsuites"]
        tables = {f"{suite['name']}.{test['name']}": [line.split("\t") for line in test["counts"].split("\n")]
                  for suite in suites for test in suite["testsuite"] if "counts" in test}
        if tables:
            counted[os.path.splitext(os.path.basename(path))[0]] = tables
    return counted


def compare(old, new):
    for program in sorted(old.keys() | new.keys()):
        was, now = old.get(program, {}), new.get(program, {})
        for test in sorted(was.keys() | now.keys()):
            if test not in now:
                yield f"{program}: {test} counted nothing; it must run before this"
            elif test not in was:
                yield f"{program}: {test} is not in tests/counts.json"
            else:
                yield from (f"{program}: {test}: {difference}" for difference in differences(was[test], now[test]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--update", action="store_true")
    options = parser.parse_args()

    counts, new = read(), results(options.folder)
    if options.update:
        write({**counts, "tests": new})
        return 0
    problems = list(compare(counts["tests"], new))
    num_rows = sum(len(table) - 1 for tables in new.values() for table in tables.values())
    print(f"{num_rows} rows of counts by {len(new)} programs, {len(problems)} differences")
    if problems:
        print("\n".join(problems), file=sys.stderr)
        print("If this is meant: scripts/check_counts.py "
              f"{os.path.relpath(options.folder, ROOT)} --update, and say in the commit why.", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

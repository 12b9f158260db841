#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What tests and steps of the checks take, from what ctest and scripts/common.sh leave in build/times.

    scripts/test_times.py --preset NAME RESULTS...    names the tests that took more than half of their time limits
    scripts/test_times.py --skipped RESULTS...        names the tests that were skipped
    scripts/test_times.py --update RESULTS...         writes to tests/seconds.json what each took, or the longest known
    scripts/test_times.py --table                     writes the tables in docs/TESTING.md, of the last .ci/run here

RESULTS are files of ctest --output-junit. tests/seconds.json is what cmake/time_limits.cmake makes time limits of: the
tests are to have run beside others, on a machine that is busy. To begin anew, empty it.
"""

import argparse
import glob
import json
import math
import os
import re
import subprocess
import sys
import xml.etree.ElementTree

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SECONDS = f"{ROOT}/tests/seconds.json"
TIMES = f"{ROOT}/build/times"
DOCUMENT = f"{ROOT}/docs/TESTING.md"
BEGIN, END = "<!-- scripts/test_times.py --table -->\n", "<!-- end of scripts/test_times.py --table -->\n"
LONGEST = 12  # tests in the table


def seconds_of(path):
    """{name: seconds} of the tests that ran."""
    cases = xml.etree.ElementTree.parse(path).getroot().iter("testcase")
    return {case.get("name"): float(case.get("time")) for case in cases if case.get("status") in ("run", "fail")}


def skipped_in(path):
    """The names of tests that said that they cannot run here."""
    cases = xml.etree.ElementTree.parse(path).getroot().iter("testcase")
    return [case.get("name") for case in cases if case.find("skipped") is not None]


def limits_of(listing):
    """{name: seconds} from what ctest --show-only=json-v1 prints."""
    return {test["name"]: next((p["value"] for p in test.get("properties", ()) if p["name"] == "TIMEOUT"), math.inf)
            for test in json.loads(listing)["tests"]}


def near_their_limits(seconds, limits):
    """Yields a line for each test that took more than half of its limit."""
    for name, taken in sorted(seconds.items()):
        if taken > limits.get(name, math.inf) / 2:
            yield f"{name} took {taken:.0f} s, more than half of its limit of {limits[name]:.0f} s"


def updated(known, seconds):
    """What tests/seconds.json is to have: whole seconds, the longest of each."""
    for name, taken in seconds.items():
        known[name] = max(known.get(name, 0), math.ceil(taken))
    return dict(sorted(known.items()))


def last_of_each_step(lines):
    """{step: (seconds, seconds of processors)}; a step that ran again counts once."""
    steps = {}
    for line in lines:
        name, seconds, processor, result = line.rstrip("\n").split("\t")
        steps.pop(name, None)
        if result == "ok":
            steps[name] = int(seconds), int(processor)
    return steps


def tables(steps, tests):
    """Markdown."""
    rows = ["| Step | Seconds | of processors |", "|---|---|---|",
            *(f"| {name} | {seconds} | {processor} |" for name, (seconds, processor) in steps.items()),
            f"| in all | {sum(s for s, _ in steps.values())} | {sum(p for _, p in steps.values())} |", "",
            "| The longest tests | Step | Seconds |", "|---|---|---|"]
    longest = sorted(((seconds, name, step) for step, all_of_step in tests.items()
                      for name, seconds in all_of_step.items()), reverse=True)[:LONGEST]
    return "\n".join([*rows, *(f"| {name} | {step} | {seconds:.0f} |" for seconds, name, step in longest)]) + "\n"


def write_tables():
    with open(f"{TIMES}/steps.tsv", encoding="utf-8") as file:
        steps = last_of_each_step(file)
    tests = {}
    for path in sorted(glob.glob(f"{TIMES}/*.xml")):  # later ones behind
        tests.setdefault(os.path.basename(path).rpartition("-")[0], {}).update(seconds_of(path))
    with open(DOCUMENT, encoding="utf-8") as file:
        text = file.read()
    pattern = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.S)
    if not pattern.search(text):
        sys.exit(f"{DOCUMENT}: expected the line {BEGIN.strip()}, and the one that ends what is between, got none")
    with open(DOCUMENT, "w", encoding="utf-8") as file:
        file.write(pattern.sub(lambda _: BEGIN + "\n" + tables(steps, tests) + "\n" + END, text))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="*")
    parser.add_argument("--preset")
    parser.add_argument("--skipped", action="store_true")
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()

    seconds = {}
    for path in options.results:
        try:
            seconds.update(seconds_of(path))
        except (OSError, xml.etree.ElementTree.ParseError) as error:
            sys.exit(f"{path}: expected what ctest --output-junit writes, got: {error}")
    if options.skipped:
        for path in options.results:
            for name in skipped_in(path):
                print(name)
    if options.preset:
        listing = subprocess.run(["ctest", "--preset", options.preset, "--show-only=json-v1"], cwd=ROOT, check=True,
                                 capture_output=True, text=True).stdout
        for line in near_their_limits(seconds, limits_of(listing)):
            print(line)
    if options.update:
        with open(SECONDS, encoding="utf-8") as file:
            known = json.load(file)
        with open(SECONDS, "w", encoding="utf-8") as file:
            json.dump(updated(known, seconds), file, indent=0)
            file.write("\n")
    if options.table:
        write_tables()


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""That scripts/test_times.py reads what ctest and steps leave, and that steps end, fail and are named as they should."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, f"{ROOT}/scripts")
import test_times  # noqa: E402

RESULTS = """<?xml version="1.0"?>
<testsuite name="x" tests="4">
  <testcase name="quick" classname="quick" time="0.2" status="run"/>
  <testcase name="slow" classname="slow" time="31.4" status="run"><system-out>text</system-out></testcase>
  <testcase name="late" classname="late" time="70.1" status="fail"><failure message=""/></testcase>
  <testcase name="absent" classname="absent" time="0" status="notrun"><skipped message="77"/></testcase>
</testsuite>
"""


class Folder(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = temporary.name

    def write(self, name, text):
        path = f"{self.folder}/{name}"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, 0o755)
        return path


class Times(Folder):
    def test_are_those_of_tests_that_ran(self):
        self.assertEqual(test_times.seconds_of(self.write("x.xml", RESULTS)),
                         {"quick": 0.2, "slow": 31.4, "late": 70.1})

    def test_that_were_skipped_are_named(self):
        path = self.write("x.xml", RESULTS)
        done = subprocess.run([sys.executable, f"{ROOT}/scripts/test_times.py", "--skipped", path],
                              capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout, "absent\n")

    def test_near_a_limit_are_named(self):
        listing = json.dumps({"tests": [
            {"name": "slow", "properties": [{"name": "TIMEOUT", "value": 60.0}, {"name": "LABELS", "value": ["x"]}]},
            {"name": "late", "properties": [{"name": "TIMEOUT", "value": 300.0}]}, {"name": "quick"}]})
        lines = list(test_times.near_their_limits({"quick": 0.2, "slow": 31.4, "late": 70.1},
                                                  test_times.limits_of(listing)))
        self.assertEqual(lines, ["slow took 31 s, more than half of its limit of 60 s"])

    def test_known_keep_the_longest(self):
        self.assertEqual(test_times.updated({"slow": 40, "gone": 3}, {"slow": 31.4, "late": 70.1}),
                         {"gone": 3, "late": 71, "slow": 40})

    def test_of_steps_that_ran_again_are_the_last(self):
        steps = test_times.last_of_each_step(["test\t500\t900\tFAILED\n", "docs\t20\t30\tok\n", "test\t400\t800\tok\n"])
        self.assertEqual(steps, {"docs": (20, 30), "test": (400, 800)})
        table = test_times.tables(steps, {"test": {"slow": 31.4, "quick": 0.2}})
        self.assertIn("| test | 400 | 800 |\n| in all | 420 | 830 |\n", table)
        self.assertIn("| slow | test | 31 |\n| quick | test | 0 |\n", table)

    def test_are_refused_where_they_are_none(self):
        done = subprocess.run([sys.executable, f"{ROOT}/scripts/test_times.py", self.write("x.xml", "none")],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("x.xml: expected what ctest --output-junit writes, got: ", done.stderr)


class Run(Folder):
    """.ci/run, with stand-ins for what it checks."""

    def setUp(self):
        super().setUp()
        for name in (".ci/run", "scripts/common.sh"):
            self.write(name, "")
            shutil.copy(f"{ROOT}/{name}", f"{self.folder}/{name}")
        self.write("scripts/install_deps.sh", "#!/bin/bash\n")
        self.write("scripts/demo.sh", "#!/bin/bash\n")
        names = ("test", "wide", "resources", "race", "asan", "nvcc", "format", "docs", "site")
        self.write("scripts/checks.sh", "cannot_build=3\nbuild() { :; }\n" + "".join(
            f"check_{name}() {{ echo runs: {name}; [[ $FAILS != {name} ]] || failed_tests+=('{name}: a_test'); "
            f"[[ $FAILS != {name} ]] || return 1; [[ $SKIPS != {name} ]] || return $skipped; "
            f"[[ $UNBUILT != {name} ]] || return $cannot_build; }}\n"
            for name in names))

    def run_it(self, *steps, fails="", unbuilt="", skips=""):
        done = subprocess.run([f"{self.folder}/.ci/run", *steps], capture_output=True, text=True, check=False,
                              env={**os.environ, "FAILS": fails, "UNBUILT": unbuilt, "SKIPS": skips})
        ran = [line[6:] for line in done.stdout.splitlines() if line.startswith("runs: ")]
        return done.returncode, ran, done.stdout + done.stderr

    def test_runs_everything_and_goes_on_where_tests_fail(self):
        status, ran, _ = self.run_it()
        self.assertEqual((status, ran[0], ran[-1], len(ran)), (0, "format", "site", 9))
        status, again, text = self.run_it(fails="race")
        self.assertEqual((status, again), (1, ran))
        self.assertRegex(text, r"(?s)ok +\d+ s  site\nFAILED +\d+ s  race\n  race: a_test\n$")

    def test_says_what_is_skipped(self):
        status, ran, text = self.run_it(skips="site")
        self.assertEqual((status, len(ran)), (0, 9))
        self.assertRegex(text, r"skipped +\d+ s  site\n$")

    def test_ends_at_what_cannot_be_built(self):
        status, ran, text = self.run_it(unbuilt="wide")
        self.assertEqual((status, ran), (1, ["format", "test", "wide"]))
        self.assertRegex(text, r"wide cannot be built: .*\n(.*\n)*FAILED +\d+ s  wide\n$")

    def test_runs_the_steps_that_are_named(self):
        self.assertEqual(self.run_it("asan", "docs")[:2], (0, ["asan", "docs"]))
        status, ran, text = self.run_it("asam")
        self.assertEqual((status, ran), (2, []))
        self.assertIn("expected the name of a check, got 'asam'", text)

    def test_notes_what_steps_took(self):
        self.run_it("asan")
        with open(f"{self.folder}/build/times/steps.tsv", encoding="utf-8") as file:
            self.assertEqual([line.split("\t")[0] for line in file], ["packages", "asan"])


if __name__ == "__main__":
    unittest.main()

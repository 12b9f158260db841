#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What tools/performance.py --add takes and refuses."""

import copy
import datetime
import glob
import json
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, f"{ROOT}/tools")
import record_check  # noqa: E402

LINEAR = "ops_linear_bench_gpu"


class RecordCheck(unittest.TestCase):
    def setUp(self):
        with open(f"{ROOT}/benchmarks/results/h100-80gb/gpu.json", encoding="utf-8") as file:
            self.record = json.load(file)
        self.first = self.record["benchmarks"][LINEAR][0]

    def found(self, name="gpu.json"):
        return "\n".join(record_check.problems(self.record, name))

    def test_takes_what_was_taken(self):
        for path in glob.glob(f"{ROOT}/benchmarks/results/*/*.json"):
            found = [line for line in record_check.problems_of_file(path)
                     if not line.startswith("commit: this repository")]  # a clone may be shallow
            self.assertEqual(found, [], path)

    def test_knows_the_cards(self):
        self.assertEqual(record_check.card_peaks()["T4"], (320e9, 65e12))
        self.assertEqual(len(record_check.card_peaks()), 6)

    def test_refuses_another_form(self):
        good = self.record
        for key, value, text in (("machine", [], "machine: expected dict, got list"),
                                 ("latency", None, "latency: expected list"), ("benchmarks", {"a b": []}, "'a b'"),
                                 ("benchmarks", {"a": [{}]}, "a: expected measurements with a name"),
                                 ("benchmarks", {"a": [{"name": "x", "y": None}]}, "a, x: expected numbers and texts"),
                                 ("latency", ["x"], "latency: expected rows")):
            self.record = {**good, key: value}
            self.assertIn(text, self.found())
        self.assertEqual(record_check.problems([], "gpu.json"), ["expected a JSON object"])
        self.assertIn("host.json or gpu.json", self.found("t4.json"))

    def test_refuses_what_says_nothing_of_its_origin(self):
        good = copy.deepcopy(self.record)
        tomorrow = (datetime.date.today() + datetime.timedelta(days=3)).isoformat()
        for key, value, text in (("commit", "67a724e-dirty", "had changes"), ("commit", "unknown", "got 'unknown'"),
                                 ("commit", "0123456789abcdef", "has no 0123456789abcdef"),
                                 ("date", "yesterday", "got 'yesterday'"), ("date", tomorrow, "is to come"),
                                 ("command", "/home/somebody/run OUT", "names a folder")):
            self.record = {**good, key: value}
            self.assertIn(text, self.found())
        for key, value, text in (("compute capability", "7.0", "7.5 or more, got '7.0'"),
                                 ("note", "root@host", "names a folder, a user or a host")):
            self.record = {**good, "machine": {**good["machine"], key: value}}
            self.assertIn(text, self.found())
        self.record = {**good, "machine": {"processor": "x"}}
        self.assertIn("expected a card", self.found())
        self.record = {**good, "benchmarks": {}, "latency": []}
        self.assertIn("expected measurements, got none", self.found())

    def test_refuses_what_cannot_be(self):
        for change, text in (({"min_us": float("nan")}, "a number is not finite"), ({"time_unit": "h"}, "got 'h'"),
                             ({"min_us": -1.0}, "min_us of -1"),
                             ({"GB/s": 3000.0}, "3000 GB/s, where bytes and min_us make 32.02"),
                             ({"GB/s": 9000.0, "bytes": 9e6, "min_us": 1.0}, "9000 GB/s, where the card has 3350"),
                             ({"copy_GB/s": 9000.0}, "9000 GB/s, where the card has 3350"),
                             ({"flops": 1e12}, "TFLOP/s, where the card has 989"),
                             ({"tensor_TFLOP/s": 2000.0}, "2000 TFLOP/s, where the card has 989")):
            before = dict(self.first)
            self.first.update(change)
            self.assertIn(f"{LINEAR}, {before['name']}: ", self.found())
            self.assertIn(text, self.found())
            self.first.clear()
            self.first.update(before)
        self.record["benchmarks"]["models_plan_bench_gpu"][0]["planned_p99_us"] = 1.0
        self.assertIn("planned_p99_us below planned_p50_us", self.found())

    def test_what_is_refused_is_not_added(self):
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/gpu.json"
            self.record["date"] = "never"
            with open(path, "w", encoding="utf-8") as file:
                json.dump(self.record, file)
            for machine, file, text in (("t4-test", path, "got 'never'"), ("T4 / test", path, "small letters"),
                                        ("t4-test", "/nowhere/gpu.json", "No such file")):
                done = subprocess.run([sys.executable, f"{ROOT}/tools/performance.py", "--add", machine, file],
                                      capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, 1)
                self.assertIn(text, done.stderr)
                self.assertFalse(os.path.exists(f"{ROOT}/benchmarks/results/{machine}"))


if __name__ == "__main__":
    unittest.main()

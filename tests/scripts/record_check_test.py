#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What tools/performance.py --add takes, refuses and writes."""

import copy
import datetime
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, f"{ROOT}/tools")
import performance  # noqa: E402
import policies  # noqa: E402
import record_check  # noqa: E402
import records  # noqa: E402

LINEAR, PLANS = "ops_linear_bench_gpu", "models_plan_bench_gpu"


def record_of(name):
    return performance.read_record(f"{ROOT}/benchmarks/results/{name}.json")


def small_record():
    """With something of everything that pages are made of."""
    record, prototypes = record_of("h100-80gb/gpu"), record_of("h100-80gb-prototypes/gpu")
    record["benchmarks"] = {PLANS: record["benchmarks"][PLANS][:1], LINEAR: record["benchmarks"][LINEAR][:1],
                            **prototypes["benchmarks"]}
    record["contexts"] = {"torch": {"load_avg": [1.5], "torch": "2.11"}}
    record["machine"] = {name: record["machine"][name] for name in ("processor", "cores", "card", "compute capability",
                                                                    "driver")}
    record["latency"][1]["variant"] = "full swaps"
    record["doubts"] = record["skipped"] = ["x: y"]
    return record


def places(value, path=()):
    """Of everything in a record but what repeats: of lists the first item, of the ways of a sweep the first."""
    yield path
    if isinstance(value, dict):
        ways = [name for name in value if name.startswith("us ")]
        for name, item in value.items():
            if name not in ways[1:]:
                yield from places(item, (*path, name))
    elif isinstance(value, list) and value:
        yield from places(value[0], (*path, 0))


def changed(record, path, *value):
    """A copy in which another value stands there, or none."""
    if not path:
        return value[0] if value else None
    record = copy.deepcopy(record)
    *way, last = path
    within = record
    for step in way:
        within = within[step]
    if value:
        within[last] = value[0]
    else:
        del within[last]
    return record


class RecordCheck(unittest.TestCase):
    def setUp(self):
        self.record = record_of("h100-80gb/gpu")
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
        good = small_record()
        first = ("benchmarks", LINEAR, 0)
        for path, value, text in (
                ((), [], "record: expected an object, got []"),
                (("machine",), [], "record.machine: expected an object, got []"),
                (("machine", "cores"), 2, "record.machine.cores: expected a text of one line, got 2"),
                (("commit",), None, "record.commit: expected a text of one line, got null"),
                (("latency",), None, "record.latency: expected a list, got null"),
                (("latency", 0), "x", "record.latency[0]: expected an object, got \"x\""),
                (("latency", 0), {}, "record.latency[0]: expected 'p50_ms' in it, got none"),
                (("latency", 0, "p50_ms"), "-5", "p50_ms: expected the text of a number of 0 or more, or nan, got"),
                (("latency", 0, "served"), "many", "served: expected the text of a number of 0 or more, got \"many\""),
                (("latency", 0, "asked"), "0", "asked: expected the text of a number above 0"),
                (("latency", 0, "refused"), "1.5", "refused: expected the text of a whole number"),
                (("skipped", 0), 7, "record.skipped[0]: expected a text, got 7"),
                (("doubts",), [{}], "record.doubts[0]: expected a text, got {}"),
                (("steps",), "x", "record.steps: expected a list"),
                (("steps",), [["card"]], "record.steps[0]: expected build, step, result, tests and seconds, got"),
                (("contexts", "torch"), [1], "record.contexts.torch: expected an object, got [1]"),
                (("contexts", "torch", "torch"), None, "record.contexts.torch.torch: expected a text, a finite number"),
                (("benchmarks", "a"), {}, "record.benchmarks.a: expected a list of one or more, got {}"),
                (("benchmarks", "a\n"), [], "a name in record.benchmarks: expected a text of one line"),
                ((*first, "name"), 1, f"record.benchmarks.{LINEAR}[0].name: expected a text of one line, got 1"),
                ((*first, "min_us"), "fast", "min_us: expected a finite number of 0 or more, got \"fast\""),
                ((*first, "min_us"), float("nan"), "min_us: expected a finite number of 0 or more, got NaN"),
                ((*first, "min_us"), -1.0, "min_us: expected a finite number of 0 or more, got -1.0"),
                ((*first, "min_us"), 10**400, "min_us: expected a finite number of 0 or more, got 1000"),
                ((*first, "some_cost"), float("inf"), "some_cost: expected a finite number, got Infinity"),
                ((*first, "time_unit"), "h", "time_unit: expected one of ns, us, ms, s, got \"h\""),
                ((*first, "error_occurred"), 1, "error_occurred: expected true or false, got 1"),
                ((*first, "us way"), 0, "us way: expected a finite number above 0, got 0"),
                (("benchmarks", "prototypes", 0, "min_us"), 0, "expected min_us above 0"),
                (("benchmarks", policies.LINEAR_SWEEP, 0), {"name": "x", "us cublaslt": 1}, "a way beside cublaslt"),
                ((*first, "name"), "policy/x/warm", ""), ((*first, "some_cost"), -1.0, ""),
                ((*first, "error_occurred"), True, "")):
            self.record = changed(good, path, value)
            if text:
                self.assertIn(text, self.found())
            else:
                self.assertEqual(self.found(), "")
        for policy, way, text in (("x", "many", "expected whole numbers as ways, got many"),
                                  ("din_items_of_one_block", "1", "expected requests and items in its name")):
            self.record = changed(good, first, {"name": f"policy/{policy}/warm", f"us {way}": 1.0})
            self.assertIn(text, self.found())
        self.assertIn("host.json or gpu.json", self.found("t4.json"))

    @unittest.mock.patch.object(record_check, "is_known_commit", lambda commit: True)  # asks git each time
    def test_makes_pages_of_all_that_it_takes(self):
        good, others = small_record(), [("h100-80gb-prototypes/gpu", record_of("h100-80gb-prototypes/gpu"))]
        values = [(), (None,), (-1,), (0,), ("",), ("x",), ("\ud800",), ([],), ({},), ({"x": 1},), (float("nan"),)]
        num_taken = 0
        for path in places(good):
            for value in values:
                self.record = changed(good, path, *value)
                if not self.found():
                    num_taken += 1
                    with self.subTest(path=path, value=value):
                        for text in performance.outputs([("t4-test/gpu", self.record), *others]).values():
                            text.encode()
        self.assertGreater(num_taken, 50)

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
        made = self.first["bytes"] / self.first["min_us"] / 1e3
        for change, text in (({"GB/s": 3000.0}, f"3000 GB/s, where bytes and min_us make {made:.4g}"),
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
        row = self.record["latency"][2]
        row["p99_ms"] = "0.001"
        self.assertIn(f"latency[2]: p99_ms of 0.001 below p90_ms of {row['p90_ms']}", self.found())

    def test_refuses_batches_that_are_quicker_than_a_card_can_be(self):
        batch = self.record["benchmarks"][PLANS][0]
        batch["planned_p99_us"] = 1.0
        self.assertIn("planned_p99_us below planned_p50_us", self.found())
        predicted = record_check.predicted_us(batch["name"], "H100", performance.plan_counts())
        for us, is_taken in ((1e-9, False), (0.3 * predicted, False), (0.4 * predicted, True)):
            batch["planned_p50_us"] = us
            self.assertEqual("less than a third of that is an error" not in self.found(), is_taken, us)

    def test_takes_the_prediction_of_a_size_that_is_not_greater(self):
        counts = [{"model": model, "requests": requests, "items": items, "T4": us} for model, requests, items, us in
                  (("a", "1", "100", "30"), ("a", "16", "200", "90"), ("a", "1", "900", "200"), ("b", "1", "9", "20"))]
        for name, us in (("a/requests:1/items:100", 30), ("a/requests:2/items:400", 30), ("a/requests:16/items:20", 90),
                         ("a/requests:1/items:10", 20), ("c/requests:1/items:100", 20), ("c", 20)):
            self.assertEqual(record_check.predicted_us(f"plan/{name}/iterations:20", "T4", counts), us, name)

    def test_refuses_cards_whose_limits_nobody_knows(self):
        self.record["machine"]["card"] = "NVIDIA Unheard Of 9000"
        self.assertIn("expected one of the cards of include/warprank/plan/cards.hpp (T4, A10, L4, A100, H100, H200), "
                      "whose peaks figures are held against, got 'NVIDIA Unheard Of 9000'", self.found())
        self.assertIn(f"expected {LINEAR} in gpu.json, with its card", self.found("host.json"))
        self.record["benchmarks"] = {}
        self.assertEqual(self.found("host.json"), "")  # a host that has such a card

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



class Added(unittest.TestCase):
    """In a repository of its own, with what pages are made from."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root, self.sent = f"{folder.name}/repository", f"{folder.name}/gpu.json"
        for path in ("tools", "benchmarks/results", "docs/performance", "include/warprank/ops"):
            shutil.copytree(f"{ROOT}/{path}", f"{self.root}/{path}", ignore=shutil.ignore_patterns("__pycache__"))
        os.makedirs(f"{self.root}/tests")
        os.makedirs(f"{self.root}/include/warprank/plan")
        for path in ("README.md", "docs/PERFORMANCE.md", "tests/counts.json", "tests/cycles.json", "tests/t4_model.json",
                     "tests/t4_prototypes.json", record_check.CARDS):
            shutil.copy(f"{ROOT}/{path}", f"{self.root}/{path}")
        self.git("init", "--quiet")
        self.git("add", ".")
        self.git("commit", "--quiet", "--message", "first")
        self.commit = self.git("rev-parse", "--short", "HEAD")
        self.record = record_of("h100-80gb-whole-models/gpu")
        # The newest of all records, also on the day when one was taken: figures are those of the newest.
        date = datetime.date.today() + datetime.timedelta(days=1)
        self.record.update(commit=self.commit, date=date.isoformat())

    def git(self, *arguments):
        who = ["-c", "user.name=test", "-c", "user.email=test", "-c", "commit.gpgsign=false", "-c", "tag.gpgsign=false"]
        done = subprocess.run(["git", "-C", self.root, *who, *arguments], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def run_tool(self, *arguments):
        return subprocess.run([sys.executable, "-B", f"{self.root}/tools/performance.py", *arguments],
                              capture_output=True, text=True, check=False)

    def add(self):
        with open(self.sent, "w", encoding="utf-8") as file:
            json.dump(self.record, file)
        return self.run_tool("--add", "h100-test", self.sent)

    def read(self, path):
        with open(f"{self.root}/{path}", encoding="utf-8") as file:
            return file.read()

    def test_a_good_record_is_kept_and_seen_in_the_pages(self):
        self.assertEqual(self.run_tool("--check").stderr, "")
        for us in (71.2, 74.4):  # the second in place of the first
            batch = self.record["benchmarks"][PLANS][0]
            batch["planned_p50_us"] = us
            done = self.add()
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertEqual(json.loads(self.read("benchmarks/results/h100-test/gpu.json")), self.record)
            self.assertIn("README.md\n", done.stdout)
            for path, text in (("README.md", f"| On a GPU: wide_deep, 1 request of 100 items | {us:.0f} us |"),
                               ("README.md", "[h100-test/gpu](benchmarks/results/h100-test/gpu.json)"),
                               ("docs/PERFORMANCE.md", "## h100-test/gpu"),
                               ("docs/PERFORMANCE.md", f"| commit | {self.commit} |"),
                               ("docs/PERFORMANCE.md", f" | {us:.1f} | ")):
                self.assertIn(text, self.read(path))
            self.assertTrue(os.path.exists(f"{self.root}/docs/performance/h100-test_gpu_speedups.svg"))
            self.assertEqual(self.run_tool("--check").stderr, "")

    def test_what_is_simulated_does_not_stand_among_what_was_measured(self):
        self.record["machine"] = records.simulated_machine(f"{ROOT}/tools/t4/cards/t4.card")
        name = self.record["benchmarks"][PLANS][0]["name"]
        self.record["benchmarks"] = {PLANS: [{"name": name, "planned_p50_us": 98765.4}]}
        done = self.add()
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertNotIn("h100-test", self.read("README.md"))
        document = self.read("docs/PERFORMANCE.md")
        self.assertIn(f"- [h100-test/gpu](#h100-testgpu): T4, commit {self.commit}, simulated\n", document)
        self.assertLess(document.index("## Simulated, not measured"), document.index("### h100-test/gpu"))
        self.assertIn("| simulated | by tools/t4 with tools/t4/cards/t4.card, not measured |", document)
        self.assertEqual(len(re.findall("98765", document)), 1)  # in its own table

    def test_nothing_is_written_when_pages_cannot_be_made(self):
        self.record["benchmarks"]["prototypes"] = [{"name": "x", "min_us": 1.0}]
        done = self.add()
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr, "nothing was written: prototypes: expected 6 measurements or more that were "
                                      "counted, got 0\n")
        self.assertEqual(self.git("status", "--porcelain"), "")

    def test_records_name_their_commit_where_there_are_tags(self):
        self.git("tag", "--annotate", "v0.1.0", "--message", "a release")
        self.git("commit", "--quiet", "--allow-empty", "--message", "second")
        command = [sys.executable, "-B", "-c", "import records; print(records.commit())"]
        for is_changed in (False, True):
            if is_changed:
                os.remove(f"{self.root}/README.md")
            named = subprocess.run(command, cwd=f"{self.root}/tools", capture_output=True, text=True, check=True).stdout
            self.assertEqual(named.strip(), self.git("rev-parse", "--short", "HEAD") + ("-dirty" if is_changed else ""))


if __name__ == "__main__":
    unittest.main()

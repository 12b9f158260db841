#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""That scripts/check_changed.sh finds what a change concerns, and that nothing is checked by nobody."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, f"{ROOT}/scripts")
import changed_checks  # noqa: E402


def text_of(path):
    with open(f"{ROOT}/{path}", encoding="utf-8") as file:
        return file.read()


def tracked():
    if shutil.which("git") is None:
        return []
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                            capture_output=True, text=True, check=False)
    return [path for path in listed.stdout.split("\0") if path]


class Rules(unittest.TestCase):
    def test_a_document_concerns_documents(self):
        self.assertEqual(changed_checks.checks_of(["docs/TIERS.md"]), ["docs", "site"])

    def test_a_kernel_concerns_every_build_of_kernels(self):
        for path in ("include/warprank/ops/detail/fm/kernel.cuh", "include/warprank/device/memory.hpp"):
            checks = changed_checks.checks_of([path])
            for check in "format test race nvcc resources_all cuda cuda12 asan_all clang headers".split():
                self.assertIn(check, checks, path)
            for check in ("redis", "torch", "site", "soak", "packages"):
                self.assertNotIn(check, checks, path)

    def test_an_op_of_the_host_concerns_no_kernel(self):
        checks = changed_checks.checks_of(["include/warprank/ops/host/linear.hpp"])
        self.assertTrue({"test", "asan_all", "seeds", "bench", "clang"} <= set(checks))
        self.assertFalse({"race", "cuda", "nvcc", "resources"} & set(checks))

    def test_stores_servers_and_python_concern_their_own(self):
        for path, concerns in (("include/warprank/store/redis/cluster.hpp", {"redis", "stress", "asan"}),
                               ("examples/server/main.cpp", {"soak", "stress", "fuzz", "wide", "perf_analyzer"}),
                               ("include/warprank/serving/service.hpp", {"soak", "stress", "headers"}),
                               ("python/warprank/layers.py", {"wide", "torch", "tensorflow"}),
                               ("tests/python/onnx/test_ops.py", {"wide", "torch"}),
                               ("benchmarks/ops/fm_bench.cu", {"benchmarks", "cuda", "cuda12"}),
                               ("tests/weights/safetensors_fuzz.cpp", {"fuzz", "asan", "test"}),
                               ("packaging/conan/conanfile.py", {"packages"}),
                               ("CMakeLists.txt", {"cuda", "packages", *changed_checks.ON_EVERY_CHANGE.split()})):
            self.assertLessEqual(concerns, set(changed_checks.checks_of([path])), path)

    def test_what_nobody_knows_concerns_everything(self):
        self.assertEqual(changed_checks.checks_of(["a/new/thing.zig"]), changed_checks.CHECKS)
        self.assertEqual(changed_checks.checks_of([]), [])

    def test_changes_add_up_in_the_order_of_the_checks(self):
        self.assertEqual(changed_checks.checks_of(["docs/TIERS.md", "scripts/demo.sh", ".clang-format"]),
                         ["format", "docs", "site", "demo"])


class Names(unittest.TestCase):
    def test_are_those_of_check_all(self):
        default = re.search(r"checks=\((test[^)]*)\)", text_of("scripts/check_all.sh"))[1].split()
        self.assertEqual(sorted(default), sorted(changed_checks.CHECKS))
        defined = re.findall(r"^check_(\w+)\(\)", text_of("scripts/checks.sh"), re.M)
        self.assertEqual(sorted(defined), sorted(changed_checks.CHECKS))

    def test_those_of_every_change_are_those_of_ci(self):
        default = re.search(r"checks=\((format[^)]*)\)", text_of(".ci/run"))[1].split()
        self.assertEqual(sorted(default), sorted(changed_checks.ON_EVERY_CHANGE.split()))

    def test_say_why_they_are_not_run_on_every_change(self):
        reasons = text_of("scripts/check_all.sh").partition("why each is not there")[2].partition("\n#\n")[0]
        for check in set(changed_checks.CHECKS) - set(changed_checks.ON_EVERY_CHANGE.split()):
            self.assertRegex(reasons, rf"\b{check}\b")

    def test_each_is_concerned_by_some_file_of_the_repository(self):
        paths = tracked()
        if not paths:
            self.skipTest("this is no clone")
        self.assertEqual(changed_checks.checks_of(paths), changed_checks.CHECKS)

    def test_every_file_of_the_repository_has_a_rule(self):
        unknown = [path for path in tracked()
                   if not any(re.fullmatch(pattern, path) for pattern, _ in changed_checks.RULES)]
        self.assertEqual(unknown, [])

    def test_every_rule_has_a_file(self):
        paths = tracked()
        if not paths:
            self.skipTest("this is no clone")
        for pattern, _ in changed_checks.RULES:
            self.assertTrue(any(re.fullmatch(pattern, path) for path in paths), pattern)


@unittest.skipIf(shutil.which("git") is None, "git is not installed")
class Repository(unittest.TestCase):
    """The script, in a repository of its own, with a stand-in for check_all.sh."""

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = temporary.name
        os.makedirs(f"{self.folder}/scripts")
        os.makedirs(f"{self.folder}/docs")
        for name in ("check_changed.sh", "changed_checks.py", "common.sh"):
            self.write(f"scripts/{name}", text_of(f"scripts/{name}"))
        self.write("scripts/check_all.sh", "#!/bin/bash\necho runs: $*\n")
        self.write("docs/A.md", "a")
        self.git("init", "-q", "-b", "main")
        self.commit()

    def write(self, name, text):
        with open(f"{self.folder}/{name}", "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(file.name, 0o755)

    def git(self, *arguments):
        subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x@example.org", *arguments], cwd=self.folder,
                       check=True, capture_output=True)

    def commit(self):
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "x")

    def run_it(self, *arguments):
        return subprocess.run([f"{self.folder}/scripts/check_changed.sh", *arguments], capture_output=True, text=True,
                              check=False)

    def test_runs_what_commits_and_uncommitted_files_concern(self):
        self.assertEqual(self.run_it().stdout, "Nothing is changed.\n")
        self.git("checkout", "-q", "-b", "work")
        self.write("docs/A.md", "b")
        self.assertIn("runs: docs site\n", self.run_it().stdout)
        self.commit()
        self.write("scripts/demo.sh", "")
        self.assertIn("runs: docs site demo\n", self.run_it().stdout)
        self.assertIn("runs: demo\n", self.run_it("HEAD").stdout)
        os.remove(f"{self.folder}/docs/A.md")
        os.remove(f"{self.folder}/scripts/demo.sh")
        self.assertIn("runs: docs site\n", self.run_it("HEAD").stdout)

    def test_names_a_commit_that_is_none(self):
        done = self.run_it("nowhere")
        self.assertEqual(done.returncode, 2)
        self.assertIn("nowhere", done.stderr)


if __name__ == "__main__":
    unittest.main()

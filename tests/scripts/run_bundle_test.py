#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the ./run of a bundle makes of good and bad luck."""

import contextlib
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest

from machine_with_a_card import ROOT, MachineWithACard
import gpu_programs
import package_benchmarks
import records
import time_plan


class RunBundle(MachineWithACard):
    def setUp(self):
        super().setUp()
        bundle = f"{self.folder}/bundle"
        for folder in ("scripts", "tools"):
            shutil.copytree(f"{ROOT}/{folder}", f"{bundle}/{folder}", ignore=shutil.ignore_patterns("__pycache__"))
        for path in package_benchmarks.DRIVER_DATA:
            os.makedirs(os.path.dirname(f"{bundle}/{path}"), exist_ok=True)
            shutil.copy(f"{ROOT}/{path}", f"{bundle}/{path}")
        tests, others = gpu_programs.test_programs(), gpu_programs.measuring_programs()
        programs = {"card": tests + others, "t4": tests}
        for build, names in programs.items():
            os.makedirs(f"{bundle}/bin/{build}")
            for name in names:
                shutil.copy(f"{self.folder}/bin/program", f"{bundle}/bin/{build}/{name}")
        with open(f"{bundle}/bundle.json", "w", encoding="utf-8") as file:
            json.dump({"commit": "abcdef1", "id": "1", "cuda": "13.0", "programs": programs, "needs": ["libnowhere.so.9"]}, file)
        self.program = [sys.executable, f"{bundle}/scripts/run_bundle.py"]

    # What is about building does not apply.
    test_fails_for_a_test_that_fails_and_one_that_was_not_built = None
    test_leaves_out_what_it_cannot_build_benchmarks_with = None
    test_ends_in_time = None

    def test_reports_everything_in_few_files(self):
        status, report = self.check()
        self.assertEqual(status, 0, report)
        for text in ("0 steps failed", "NVIDIA H200", "580.95.05", "1980 MHz", "13.0.88", "| card | ops_fm_kernel_test_gpu | ok | 3 |",
                     "| t4 | ops_fm_kernel_test_gpu | ok | 3 |", "| card | racecheck: gpu_two_libraries | ok | 3 |",
                     "| card | sweeps_linear_bench_gpu | ok |", "roofline.svg", "speedups.svg", "latency.svg", "fm/items:100/cold"):
            self.assertIn(text, report)
        self.assertNotIn("secret", report)
        self.assertIn("| fm_rows_per_warp, fm | 2 | 2.50 | 2 | 2.50 |", report)
        files = os.listdir(self.out)  # with raw/, for the next run
        self.assertLessEqual(len(files), 10, files)
        with open(f"{self.out}/gpu.json", encoding="utf-8") as file:
            record = json.load(file)
        self.assertEqual(record["machine"]["card"], "NVIDIA H200")
        with open(f"{self.out}/roofline.svg", encoding="utf-8") as file:
            roofline = file.read()
        self.assertIn("items:100/cold", roofline)
        self.assertNotIn("warm", roofline)
        self.assertEqual([row.get("variant") for row in record["latency"]],
                         [None, None, "full swaps", "waits by block", "waits by spin", None])

    def test_leaves_out_what_is_not_there(self):
        self.card = "NVIDIA Unheard Of 9000, 9.0, 580.95.05, 8000 MiB, 70 W"
        status, report = self.check("no-sanitizer", "small:ops_fm_kernel_test_gpu")
        self.assertEqual(status, 0, report)
        for text in ("predictions: NVIDIA Unheard Of 9000 is not among the cards", "PyTorch: it is not installed",
                     "compute-sanitizer: this machine does not",
                     "| card | ops_fm_kernel_test_gpu | left out: too little memory |"):
            self.assertIn(text, report)

    def test_tells_errors_of_compute_sanitizer_from_those_that_it_finds(self):
        status, report = self.check("lost:ops_fm_kernel_test_gpu", "lost-and-found:ops_dot_kernel_test_gpu")
        self.assertEqual(status, 1, report)
        for text in ("| card | racecheck: ops_fm_kernel_test_gpu | left out: compute-sanitizer could not follow it",
                     "| card | racecheck: ops_dot_kernel_test_gpu | FAILED (1)"):
            self.assertIn(text, report)

    def test_keeps_what_was_written_and_says_that_it_is_incomplete(self):
        program, other = gpu_programs.benchmark_programs()[:2]
        status, report = self.check(f"cut:{program}", f"none:{other}", "cut:embed_in_service", options=["--quick"])
        self.assertEqual(status, 1, report)
        for text in (f"| card | {program} | FAILED: raw/{program}.json is incomplete |", f"| card | {other} | ok |",
                     "| card | latency with 2 contexts | FAILED: raw/latency_cuda_2.csv is incomplete |",
                     "2 steps failed"):
            self.assertIn(text, report)
        with open(f"{self.out}/gpu.json", encoding="utf-8") as file:
            names = [m["name"] for m in json.load(file)["benchmarks"][program]]
        self.assertEqual([name.split("/iterations")[0] for name in names], ["fm/items:100/cold", "fm/items:100/warm"])

    def test_says_what_was_not_run_without_a_gpu_and_fails(self):
        status, report = self.check("no-gpu", options=["--quick"])
        self.assertEqual(status, 1)
        for text in ("There is no GPU that programs can use (no driver)", "0 steps failed",
                     "- whole models: nvidia-smi names no GPU", "- PyTorch: --quick", "- ops: nvidia-smi names no GPU",
                     "- latency: nvidia-smi names no GPU"):
            self.assertIn(text, report)

    def test_says_that_the_driver_is_too_old_and_fails(self):
        status, report = self.check("old-driver")
        self.assertEqual(status, 1)
        self.assertIn("There is no GPU that programs can use (driver is too old)", report)
        self.assertIn("0 steps failed", report)
        self.assertNotIn("models_plan_bench_gpu", report)
        self.assertIn("- whole models: no program of tests passed", report)

    def test_refuses_in_one_line_a_folder_that_it_cannot_write_to(self):
        path = f"{self.folder}/a_file"
        with open(path, "w", encoding="utf-8"):
            pass
        os.makedirs(f"{self.folder}/out")
        shutil.copy(path, f"{self.folder}/out/raw")
        for out, line in ((path, f"{path}: File exists\n"), (f"{path}/out", f"{path}/out: Not a directory\n"),
                          (f"{self.folder}/out", f"{self.folder}/out/raw: File exists\n")):
            done = subprocess.run([*self.program, out], env=self.environment([]), capture_output=True, text=True,
                                  check=False)
            self.assertEqual((done.returncode, done.stderr), (1, line))

    def mount_small_disk(self):
        if os.geteuid() != 0:
            self.skipTest("a small disk needs root")
        os.makedirs(f"{self.folder}/out")
        small = ["mount", "-t", "tmpfs", "-o", "size=70m", "tmpfs", f"{self.folder}/out"]
        if subprocess.run(small, stderr=subprocess.DEVNULL, check=False).returncode != 0:
            self.skipTest("a small disk cannot be mounted")
        self.addCleanup(subprocess.run, ["umount", f"{self.folder}/out"], check=True)

    def test_refuses_in_one_line_a_folder_that_is_there_and_cannot_be_written(self):
        self.mount_small_disk()
        os.makedirs(f"{self.folder}/out/raw")
        subprocess.run(["mount", "-o", "remount,ro", f"{self.folder}/out"], check=True)
        done = subprocess.run([*self.program, f"{self.folder}/out"], env=self.environment([]), capture_output=True,
                              text=True, check=False)
        self.assertEqual((done.returncode, done.stdout, done.stderr),
                         (1, "", f"{self.folder}/out: Read-only file system\n"))

    def test_fails_without_a_report(self):
        os.makedirs(f"{self.folder}/out/gpu.json")
        done = subprocess.run([*self.program, f"{self.folder}/out", "--quick"], env=self.environment([]),
                              capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (1, ""))
        self.assertIn("no report: Is a directory", done.stdout)
        self.assertNotIn("report.md", done.stdout)

    def test_ends_with_what_there_is_when_the_disk_gets_full(self):
        self.mount_small_disk()
        with open(f"{self.folder}/out/gpu.json", "w", encoding="utf-8") as file:
            file.write("of an earlier run")
        done = subprocess.run([*self.program, f"{self.folder}/out", "--quick"],
                              env=self.environment(["fills:ops_fm_kernel_test_gpu"]), capture_output=True, text=True,
                              check=False)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertEqual(done.stderr, "")
        self.assertIn("card | ops_mix_kernel_test_gpu | ok", done.stdout)
        self.assertIn("what is done is not kept for the next run: No space left on device", done.stdout)
        self.assertIn("all of tests.log: No space left on device", done.stdout)
        self.assertIn("no report: No space left on device", done.stdout)
        self.assertNotIn("report.md", done.stdout)
        with open(f"{self.folder}/out/gpu.json", encoding="utf-8") as file:
            self.assertEqual(file.read(), "of an earlier run")
        os.remove(f"{self.folder}/out/filling")
        with open(f"{self.folder}/out/in_use", "wb") as file:
            file.write(bytes(10 << 20))
        done = subprocess.run([*self.program, f"{self.folder}/out"], env=self.environment([]), capture_output=True,
                              text=True, check=False)
        self.assertEqual((done.returncode, done.stderr),
                         (1, f"{self.folder}/out: expected 64 MiB of free space, got less\n"))

    def test_names_its_commit_and_what_the_machine_lacks(self):
        status, report = self.check("lacks:ops_fm_kernel_test_gpu", "lacks:ops_fm_bench_gpu")
        self.assertEqual(status, 0, report)
        for text in ("| commit | abcdef1 |", "programs that need libnowhere.so.9: it is not on this machine",
                     "| card | ops_fm_kernel_test_gpu | left out: this machine has no libx.so.1 |",
                     "| card | ops_fm_bench_gpu | left out: this machine has no libx.so.1 |"):
            self.assertIn(text, report)

    def test_runs_nothing_on_a_card_that_is_too_old(self):
        self.card = "Tesla V100, 7.0, 580.95.05, 16384 MiB, 300 W"
        status, report = self.check()
        self.assertEqual(status, 1)
        self.assertIn("everything: expected a card of compute capability 7.5 or more, got 7.0; a T4 or a newer card "
                      "would do", report)
        self.assertIn("0 steps failed, 0 programs of tests passed", report)

    def test_says_which_driver_or_bundle_would_do(self):
        for driver, remedy in (("535.104.05", "a newer one, or a bundle that CUDA 12 built, would do"),
                               ("470.82.01", "a newer one would do")):
            self.card = f"Tesla T4, 7.5, {driver}, 15360 MiB, 70 W"
            status, report = self.check(options=["--quick"])
            self.assertEqual(status, 1)
            self.assertIn(f"expected driver 580.65.06 or newer, as CUDA 13.0 built this, got {driver}; {remedy}", report)
            self.assertIn("0 steps failed, 0 programs of tests passed", report)

    def test_an_old_driver_leaves_out_what_is_ptx(self):
        status, report = self.check("old-ptx:ops_fm_kernel_test_gpu", options=["--quick"])
        self.assertEqual(status, 0, report)
        self.assertIn("| ops_fm_kernel_test_gpu | left out: the driver is older than the CUDA 13.0 of its PTX |", report)

    def test_goes_on_with_what_is_missing(self):
        status, _ = self.check("fails:ops_fm_kernel_test_gpu", "fails:ops_dot_bench_gpu")
        self.assertEqual(status, 1)
        status, report = self.check()
        self.assertEqual(status, 0, report)
        self.assertIn("steps are done already: this run goes on", self.printed)
        self.assertIn("card | ops_fm_kernel_test_gpu | ok", self.printed)
        self.assertIn("card | ops_dot_bench_gpu | ok", self.printed)
        self.assertNotIn("card | ops_mix_kernel_test_gpu | ok", self.printed)  # only in the report
        self.assertIn("| card | ops_mix_kernel_test_gpu | ok |", report)
        self.assertIn("0 steps failed", report)
        self.card = "NVIDIA L4, 8.9, 580.95.05, 23034 MiB, 72 W"
        _, report = self.check()
        self.assertIn("what this folder had before: it is of another commit, card or kind of run", report)
        self.assertIn("card | ops_mix_kernel_test_gpu | ok", self.printed)

    # Waits for most of a minute: CTest runs it by itself, among what is wide.
    @unittest.skipUnless("WARPRANK_TEST_HANGING" in os.environ, "a test of its own")
    def test_every_part_has_its_share_when_everything_hangs_but_tests(self):
        begin = time.monotonic()
        hanging = [f"hangs:{name}" for name in gpu_programs.measuring_programs()]
        status, report = self.check(*hanging, options=["--minutes", "0.7"])
        self.assertLess(time.monotonic() - begin, 300)  # one that hangs would take 600 seconds
        self.assertEqual(status, 0, report)
        for text in ("| card | models_plan_bench_gpu | left out: cut off |",
                     "| card | latency with 2 contexts | left out: cut off |",
                     "| card | memcheck: gpu_two_libraries | ok |"):
            self.assertIn(text, report)
        # Of the alternatives some: how many fit depends on how long this machine takes for what does not hang.
        self.assertRegex(report, r"\| card \| (sweeps|policies)_\w+ \| left out: cut off \|")

    def runs(self, program):
        """Whether the program of the bundle does now."""
        for path in glob.glob("/proc/[0-9]*/cmdline"):
            with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
                if f"{self.folder}/bundle/bin/card/{program}" in file.read():
                    return True
        return False

    @contextlib.contextmanager
    def run_that_hangs(self, *programs, before=(), status=0):
        """A run that has come to the first of them; and its exit status in the end."""
        with subprocess.Popen([*before, *self.program, f"{self.folder}/out"],
                              env=self.environment(f"hangs:{program}" for program in programs), stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True) as process:
            for _ in range(2400):
                if self.runs(programs[0]):
                    break
                time.sleep(0.1)
            yield process
        self.assertFalse(self.runs(programs[0]))
        self.assertEqual(process.returncode, status)

    def report(self):
        with open(f"{self.folder}/out/report.md", encoding="utf-8") as file:
            return file.read()

    def test_reports_what_is_missing_when_it_is_killed(self):
        with self.run_that_hangs("models_plan_bench_gpu") as process:
            process.terminate()
            printed = process.communicate(timeout=240)[0]
        self.assertIn("models_plan_bench_gpu | left out: the run was ended", printed)
        report = self.report()
        for text in ("The run was ended from outside", "| card | ops_fm_kernel_test_gpu | ok | 3 |",
                     *(f"| card | {name} | left out: the run was ended |"
                       for name in ("models_plan_bench_gpu", "machine_bench_gpu")),
                     *(f"- {part}: the run was ended"
                       for part in ("PyTorch", "ops", "latency", "compute-sanitizer", "alternatives"))):
            self.assertIn(text, report)

    def test_reports_what_is_missing_when_its_terminal_is_gone(self):
        tests = gpu_programs.test_programs()
        with self.run_that_hangs(*tests, status=1) as process:  # none passed
            process.stdout.close()
            process.send_signal(signal.SIGHUP)
            process.wait(timeout=240)
        report = self.report()
        for text in ("- whole models: the run was ended",
                     *(f"| {build} | {name} | left out: the run was ended |"
                       for build in ("card", "t4") for name in tests)):
            self.assertIn(text, report)

    def test_reports_what_earlier_runs_did_when_building_was_ended(self):
        _, report = self.check(options=["--quick"])
        passed = re.search(r"\d\d+ programs of tests passed", report)[0]
        path = f"{self.folder}/bundle/bundle.json"
        with open(path, encoding="utf-8") as file:
            says = json.load(file)
        with open(path, "w", encoding="utf-8") as file:
            json.dump({**says, "programs": {}}, file)
        status, report = self.check(options=["--quick", "--ended"])
        self.assertEqual(status, 0)
        for text in (passed, "| card | ops_fm_kernel_test_gpu | ok | 3 |", "- tests: the run was ended",
                     "- ops: the run was ended"):
            self.assertIn(text, report)

    def test_goes_on_under_nohup_when_its_terminal_is_gone(self):
        with self.run_that_hangs("models_plan_bench_gpu", before=["nohup"]) as process:
            process.send_signal(signal.SIGHUP)
            time.sleep(0.5)
            self.assertTrue(self.runs("models_plan_bench_gpu"))
            process.terminate()
            process.communicate(timeout=240)

    def test_doubts_a_card_that_is_hot_or_shared(self):
        _, report = self.check("hot", "shared", options=["--quick"])
        self.assertIn("the card was slowed down (hardware thermal slowdown)", report)
        self.assertIn("1 other processes were on the card", report)
        self.assertIn("| ECC | Enabled |", report)


class Doubts(unittest.TestCase):
    def test_name_figures_that_are_far_from_their_shortest(self):
        copy = {"name": "machine/copy/bytes:1/iterations:20", "time_unit": "us", "min_us": 10.0}
        batch = {"name": "plan/dlrm/requests:1/iterations:20", "planned_p50_us": 50.0}
        record = {"machine": {}, "benchmarks": {
            "machine_bench_gpu": [{**copy, "real_time": 10.9}, {**copy, "real_time": 12.5}],
            "models_plan_bench_gpu": [{**batch, "planned_p99_us": 149.0}, {**batch, "planned_p99_us": 160.0}]}}
        self.assertEqual(records.doubts(record),
                         ["machine/copy/bytes:1: on average 1.25x the shortest time: something else used the memory",
                          "plan/dlrm/requests:1: p99 is 3.2x p50"])

    def test_know_why_clocks_are_low(self):
        self.assertEqual(records.throttling("1200 MHz, 3201 MHz, 88, 300 W, 0x0000000000000068"),
                         ["hardware slowdown", "software thermal slowdown", "hardware thermal slowdown"])
        self.assertEqual(records.throttling("1980 MHz, 3201 MHz, 40, 100 W, 0x0000000000000001"), [])


class TimePlan(unittest.TestCase):
    def setUp(self):
        self.now = 0.0
        self.plan = time_plan.TimePlan(100, {"a": 50, "b": 30, "c": 20}, lambda: self.now)

    def test_each_part_has_its_share(self):
        self.plan.begin("a")
        self.assertAlmostEqual(self.plan.left(), 50)
        self.now = 50
        self.plan.begin("b")
        self.assertAlmostEqual(self.plan.left(), 30)
        self.now = 80
        self.plan.begin("c")
        self.assertAlmostEqual(self.plan.left(), 20)

    def test_what_a_part_leaves_goes_to_those_behind_it(self):
        self.now = 10  # a took 10 of its 50
        self.plan.begin("b")
        self.assertAlmostEqual(self.plan.left(), 90 * 30 / 50)

    def test_what_a_part_takes_beyond_its_share_all_others_lack(self):
        self.now = 60
        self.plan.begin("b")
        self.assertAlmostEqual(self.plan.left(), 24)
        self.now = 110
        self.plan.begin("c")
        self.assertAlmostEqual(self.plan.left(), 0)

    def test_a_step_takes_not_much_more_than_its_share(self):
        self.plan.begin("a")
        self.assertAlmostEqual(self.plan.for_step(10), 7.5)
        self.assertAlmostEqual(self.plan.for_step(2), 37.5)
        self.assertAlmostEqual(self.plan.for_step(1), 50)
        self.assertAlmostEqual(self.plan.for_step(0), 50)


if __name__ == "__main__":
    unittest.main()

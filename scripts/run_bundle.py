#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the ./run of a bundle does, which scripts/package_benchmarks.sh describes: all that its programs can check and
measure on the card of this machine.

The parts of PARTS run one after another, alone on the card; each gets its share of the time that is left
(time_plan.py). What was cut off or failed is tried again by the next run in the same folder (gpu_progress.py).
"""

import argparse
import json
import os
import platform
import queue
import re
import shutil
import sys
import tempfile
import threading
import time

SCRIPTS = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [SCRIPTS, f"{os.path.dirname(SCRIPTS)}/tools"]
import gpu_progress  # noqa: E402
from gpu_programs import BUNDLE, ROOT, benchmark_programs, find_library, test_programs  # noqa: E402
from gpu_runner import ENDED, Runner, say  # noqa: E402
import performance  # noqa: E402
import records  # noqa: E402
import time_plan  # noqa: E402

MINUTES, QUICK_MINUTES = 9.5, 3.8
# By value, with their weights.
PARTS = {"tests": 25, "models": 15, "torch": 15, "ops": 15, "latency": 10, "sanitizer": 20, "alternatives": 8}
NOT_QUICK = ("torch", "sanitizer", "alternatives")
TITLES = {"models": "whole models", "torch": "PyTorch", "sanitizer": "compute-sanitizer"}  # of parts, as reports say it
TEST_S, SANITIZED_TEST_S = 120, 90  # what a program gets at most
SKIPPED = 77  # exit status of a test without a GPU
LEAST_CAPABILITY = 75
SMALL_CARD_MIB = 14 << 10  # where a test that runs out of memory is no failure
LEAST_FREE_BYTES = 64 << 20
RATES, CONTEXTS = ("500", "1000", "2000", "4000", "8000", "16000"), ("1", "2", "4")
# Programs that have benchmarks of policies (benchmarks/policies.cuh) among others.
WITH_POLICIES = ("ops_attention_bench_gpu", "ops_din_attention_bench_gpu", "ops_dot_bench_gpu",
                 "ops_embedding_bag_bench_gpu", "ops_fm_bench_gpu", "ops_hash_table_bench_gpu",
                 "ops_row_programs_bench_gpu", "ops_segment_reduce_bench_gpu")
CAPACITIES = ("1", "100", "16", "1600", "64", "6400")  # of the layers that are tuned


def lacking_driver(driver):
    """What is to be done about a driver that cannot run this bundle; empty when it can, or there is none."""
    major = BUNDLE.get("cuda", "").split(".")[0]
    header = records.read_text(f"{ROOT}/include/warprank/device/requirements.hpp")
    first = dict(re.findall(r'\{(\d+), "([\d.]+)"\}', header))
    if major not in first or not driver or records.version_numbers(driver) >= records.version_numbers(first[major]):
        return ""
    older = next((cuda for cuda, its in first.items()
                  if records.version_numbers(driver) >= records.version_numbers(its)), None)
    remedy = f", or a bundle that CUDA {older} built," if older else ""
    return (f"expected driver {first[major]} or newer, as CUDA {BUNDLE['cuda']} built this, got {driver}; a newer one"
            f"{remedy} would do")


def is_complete(path):
    """Whether a program wrote the file up to its end: not all of them see that a disk is full."""
    text = records.read_text(path)
    if path.endswith(".csv"):
        return text.endswith("\n")
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def is_test(step):
    return re.fullmatch(r"\w+_kernel_test_gpu|gpu_two_libraries", step) is not None


def fails_by_itself(output):
    """Whether compute-sanitizer, which counts its own errors as the program's, found no others."""
    found = re.search(r"^========= \w+ SUMMARY: (\d+) ", output, re.M)
    return found is not None and 0 < int(found[1]) <= output.count("Internal Sanitizer Error")


class Check(Runner):
    def __init__(self, out, options):
        super().__init__(f"{out}/tests.log")
        self.out, self.quick = out, options.quick
        minutes = options.minutes or (QUICK_MINUTES if self.quick else MINUTES)
        self.plan = time_plan.TimePlan(60 * minutes, {name: weight for name, weight in PARTS.items()
                                                      if not (self.quick and name in NOT_QUICK)})
        self.gpu, self.state, self.clocks = records.gpu(), records.card_state(), {"before": records.clocks()}
        self.commit = BUNDLE["commit"]
        os.environ["WARPRANK_COMMIT"] = self.commit
        self.progress = gpu_progress.Progress(out, {"commit": self.commit, "which": BUNDLE["id"], "quick": self.quick,
                                                    "card": self.gpu.get("card", "none")})
        self.raw = f"{out}/raw"
        if not self.progress.taken_over:
            shutil.rmtree(self.raw, ignore_errors=True)
        os.makedirs(self.raw, exist_ok=True)
        self.skipped, self.num_not_run, self.why_not_run = list(BUNDLE.get("skipped", [])), 0, ""
        for row in BUNDLE.get("steps", []):  # of its making
            self.progress.add(row)
        if self.progress.taken_over:
            say(f"{self.progress.taken_over} steps are done already: this run goes on")
        if self.progress.forgotten:
            self.skip("what this folder had before: it is of another commit, card or kind of run")

    @property
    def rows(self):
        return list(self.progress.rows.values())

    def num_rows(self, result):
        return sum(row[2].startswith(result) for row in self.rows)

    def num_passed(self):
        return sum(row[2].startswith("ok") and is_test(row[1]) for row in self.rows)

    def row(self, build, step, result, tests="", since=None):
        seconds = "" if since is None else f"{time.monotonic() - since:.0f}"
        with self.lock:
            row = [build, step, result, str(tests), seconds]
            self.progress.add(row)
            say(" | ".join(row))

    def skip(self, what):
        with self.lock:
            self.skipped.append(what)
            say(f"skipped: {what}")

    def program(self, build, name):
        return f"{ROOT}/bin/{build}/{name}"

    # --- tests

    def run_test(self, build, program, before=(), step=""):
        most = SANITIZED_TEST_S if before else TEST_S
        begin, seconds = time.monotonic(), min(self.plan.left(), most)
        if self.progress.is_done(build, step + program):
            return
        if self.is_stopped or seconds < 3:
            self.row(build, step + program, f"left out: {self.why('no time')}")
            return
        status, output = self.run(f"{build}: {' '.join(before)} {program}", [*before, self.program(build, program)],
                                  seconds)
        count = re.search(r"^\[  PASSED  \] (\d+) test|^SKIPPED (\d+) tests", output, re.M)
        tests = int(count[1] or count[2]) if count else ""
        skipped = re.search(r"^\[  SKIPPED \] (\d+) test", output, re.M)
        lacking = re.search(r"error while loading shared libraries: (\S+):", output)
        result = f"ok, {skipped[1]} skipped" if skipped else "ok"
        if status == SKIPPED and "cudaErrorUnsupportedPtxVersion" in output:
            result = f"left out: the driver is older than the CUDA {BUNDLE.get('cuda')} of its PTX"
        elif status == SKIPPED:
            result = "not run: no GPU"
            why = re.search(r"there is no GPU \((.*)\)$", output, re.M)
            with self.lock:
                self.num_not_run += tests or 1
                self.why_not_run = why[1] if why else self.why_not_run
        elif self.is_stopped and status != 0:
            result = f"left out: {ENDED}"
        elif lacking:
            result = f"left out: this machine has no {lacking[1]}"
        elif status is None and seconds < most:
            result = "left out: no time"
        elif status is None:
            result = f"left out: not done after {seconds} s" if before else f"FAILED: not done after {seconds} s"
        elif status != 0 and self.is_small() and "out of" in output and "memory" in output:
            result = "left out: too little memory"
        elif status != 0 and count and fails_by_itself(output):
            result = "left out: compute-sanitizer could not follow it: tests.log"
        elif status != 0:
            result = f"FAILED ({status}): tests.log"
        self.row(build, step + program, result, tests, begin)

    def capability(self):
        return self.gpu.get("compute capability", "").replace(".", "")

    def unfit(self):
        """Why nothing runs on this card or its driver, and what would do; empty when it does, or there is none."""
        if self.capability().isdigit() and int(self.capability()) < LEAST_CAPABILITY:
            return (f"expected a card of compute capability 7.5 or more, got {self.gpu['compute capability']}; a T4 or "
                    "a newer card would do")
        return lacking_driver(self.gpu.get("driver", ""))

    def is_small(self):
        mib = re.match(r"(\d+) MiB", self.gpu.get("memory of the card", ""))
        return mib is not None and int(mib[1]) < SMALL_CARD_MIB

    def work(self, jobs, **arguments):
        """Runs what is in the queue, in threads, until None comes out."""
        def loop():
            while (job := jobs.get()) is not None:
                self.run_test(*job, **arguments)
            jobs.put(None)

        workers = [threading.Thread(target=loop, daemon=True)
                   for _ in range(1 if self.is_small() else min(max((os.cpu_count() or 1) // 2, 3), 8))]
        for worker in workers:
            worker.start()
        return workers

    def test(self):
        jobs = queue.Queue()
        if not test_programs():
            self.skip(f"tests: {self.why('none was built')}")
        for build in ("card", "t4"):
            for program in BUNDLE["programs"].get(build, []):
                if program in test_programs():
                    jobs.put((build, program))
        jobs.put(None)
        for worker in self.work(jobs):
            worker.join()

    def run_sanitizer(self):
        if shutil.which("compute-sanitizer") is None:
            self.skip("compute-sanitizer: not installed")
            return
        probe = self.program("card", "support_kernel_testing_kernel_test_gpu")
        if not os.path.exists(probe) or self.plan.left() < 5:
            self.skip("compute-sanitizer: no time left")
            return
        status, _ = self.run("does compute-sanitizer work", ["compute-sanitizer", "--error-exitcode", "1", probe,
                                                             "--gtest_filter=*GraphIsCaptured*"], self.plan.left())
        if status != 0:
            self.skip(f"compute-sanitizer: {self.why('this machine does not permit it: tests.log')}")
            return
        for tool in ("memcheck", "racecheck", "synccheck"):
            jobs = queue.Queue()
            for program in test_programs():
                if os.access(self.program("card", program), os.X_OK):
                    jobs.put(("card", program))
            jobs.put(None)
            before = ("compute-sanitizer", "--tool", tool, "--error-exitcode", "1",
                      *(("--report-api-errors", "no") if tool == "memcheck" else ()))
            for worker in self.work(jobs, before=before, step=f"{tool}: "):
                worker.join()

    # --- measurements

    def measure(self, what, command, seconds, written):
        """Runs what writes its figures to a file."""
        if self.progress.is_done("card", what):
            return
        if not os.access(command[0], os.X_OK):
            self.skip(f"{what}: it was not built")
            return
        if self.is_stopped or seconds < 4:
            self.row("card", what, f"left out: {self.why('no time')}")
            return
        begin = time.monotonic()
        status, output = self.run(what, command, seconds)
        lacking = re.search(r"error while loading shared libraries: (\S+):", output)
        if lacking:
            result = f"left out: this machine has no {lacking[1]}"
        elif status == 0 and (is_complete(written) or "Failed to match any benchmarks" in output):
            result = "ok"
        elif status == 0:
            result = f"FAILED: {os.path.relpath(written, self.out)} is incomplete"
        elif status is None or self.is_stopped:
            result = f"left out: {self.why('cut off')}"
        else:
            result = f"FAILED ({status}): tests.log"
        self.row("card", what, result, since=begin)

    def run_benchmarks(self, programs):
        for i, program in enumerate(programs):
            names = "/cold" if self.quick and program.startswith("ops") else "-^policy/"
            self.measure_benchmark(program, program, self.plan.for_step(len(programs) - i), names)

    def measure_benchmark(self, what, program, seconds, names="."):
        written = f"{self.raw}/{what}.json"
        self.measure(what, [self.program("card", program), f"--benchmark_out={written}", f"--benchmark_filter={names}"],
                     seconds, written)

    def run_models(self):
        programs = [name for name in benchmark_programs() if not name.startswith(("ops", "tiers", "sweeps"))]
        self.run_benchmarks(sorted(programs, key=lambda name: not name.startswith("models")))

    def run_ops(self):
        self.run_benchmarks([name for name in benchmark_programs() if name.startswith(("ops", "tiers"))])

    def run_torch(self):
        script, run_model = f"{ROOT}/tools/bench_torch.py", self.program("card", "models_run_model")
        status, _ = self.run("PyTorch", [sys.executable, "-c", "import numpy, safetensors, torch"], self.plan.left())
        if status != 0:
            self.skip(f"PyTorch: {self.why('it is not installed, or NumPy or safetensors are not')}")
            return
        if not os.access(run_model, os.X_OK):
            self.skip("PyTorch: models_run_model was not built")
            return
        # Its best form first: eager in a CUDA graph. Compiling takes most of the time, and has not been faster.
        for name, modes in (("torch", ["graph"]), ("torch_others", ["eager", "reduce-overhead"])):
            written = f"{self.raw}/{name}.json"
            self.measure("PyTorch, " + " and ".join(modes),
                         [sys.executable, script, run_model, *(["--quick"] if name != "torch" else []), "--modes",
                          *modes, "--out", written], self.plan.left(), written)

    def serve(self, what, contexts, seconds, csv, more=(), rates=RATES):
        written = f"{self.raw}/latency_cuda_{csv}.csv"
        self.measure(what, [self.program("card", "embed_in_service"), "--engine", "cuda", "--contexts", contexts,
                            "--clients", "4", "--seconds", seconds, "--warm-up", "0.5", "--csv", written, *more,
                            "--rates", *rates], self.plan.left(), written)

    def run_latency(self):
        seconds = "1" if self.quick else "1.5"
        self.serve("latency with 2 contexts", "2", seconds, "2")
        if not self.quick:
            self.serve("latency with 2 contexts and swaps", "2", "5", "2_full-swaps",
                       ("--swap-every", "1", "--swap-mode", "full", "--film-rows", "2000000"), RATES[2:5:2])
            for contexts in (c for c in CONTEXTS if c != "2"):
                self.serve(f"latency with {contexts} contexts", contexts, seconds, contexts)

    def run_alternatives(self):
        """What was chosen by thought beside what else could be: as far as programs can be told to take it."""
        sweeps = [(name, name, ".") for name in benchmark_programs() if name.startswith("sweeps")]
        sweeps += [(f"policies_{name}", name, "^policy/") for name in benchmark_programs() if name in WITH_POLICIES]
        for i, (what, program, names) in enumerate(sweeps):
            self.measure_benchmark(what, program, self.plan.for_step(len(sweeps) - i + 2), names)
        tuning = f"{self.out}/tuning.json"
        self.measure("tuning of linear layers", [self.program("card", "tune_linears"), "--out", tuning, "--capacity",
                                                 *CAPACITIES], self.plan.for_step(2), tuning)
        service = self.program("card", "embed_in_service")
        if not os.access(service, os.X_OK):
            return
        _, text = self.run("options of embed_in_service", [service, "--help"], 10)
        found = re.search(r"--wait [^{\n]*\{([^}]*)\}", text)
        if not found:
            self.skip(f"latency by ways to wait: {self.why('embed_in_service names none')}")
        for value in re.split(r"[,\s]+", re.sub(r"->\d+", "", found[1])) if found else ():
            self.serve(f"latency with 2 contexts, waiting by {value}", "2", "1.5",
                       f"2_waits-by-{value.replace('_', '-')}", ("--wait", value), RATES[2:5:2])

    # --- report

    def record(self):
        facts = {**self.gpu, **self.state, **{f"clocks {when}": line for when, line in self.clocks.items()}}
        card = self.gpu.get("card")
        if card and not performance.known_card(card):
            self.skip(f"predictions: {card} is not among the cards of include/warprank/plan/cards.hpp")
        if self.progress.error:
            self.skip(f"what is done is not kept for the next run: {self.progress.error}")
        if self.log.error:
            self.skip(self.log.error)
        command = BUNDLE.get("command", "./run") + " OUTDIR" + (" --quick" if self.quick else "")
        record = records.pack(self.raw, command, self.skipped, {name: v for name, v in facts.items() if v})
        return {**record, "commit": self.commit, "doubts": records.doubts(record), "steps": self.rows}

    def summary(self):
        text = f"{self.num_rows('FAILED')} steps failed, {self.num_passed()} programs of tests passed."
        if self.num_not_run:
            why = self.why_not_run or "nvidia-smi names none"
            text += f" There is no GPU that programs can use ({why}): {self.num_not_run} tests were not run."
        if self.is_stopped:
            text += " The run was ended from outside; the next one in this folder goes on."
        return text

    def write_report(self, record):
        """Whether it could be written. The files of an earlier run are replaced by whole ones, or stay."""
        try:
            with tempfile.TemporaryDirectory(dir=self.out) as new:
                with open(f"{new}/gpu.json", "w", encoding="utf-8") as file:
                    file.write(records.dumped(record))
                steps = performance.table([["build", "step", "result", "tests", "seconds"], *self.rows])
                performance.write_report(f"{new}/gpu.json", f"# GPU check\n\n{self.summary()}\n\n{steps}")
                for name in os.listdir(new):
                    os.replace(f"{new}/{name}", f"{self.out}/{name}")
        except OSError as error:
            say(f"no report: {error.strerror}")
            return False
        return True

    def report(self):
        """Whether all is well, and said."""
        record = self.record()
        is_written = self.write_report(record)
        self.log.shorten()
        for line in record["doubts"]:
            say(f"doubtful: {line}")
        say(self.summary())
        if is_written:
            say(f"{self.out}/report.md")
        return is_written and self.gpu and self.num_passed() > 0 and self.num_rows("FAILED") == 0

    def why_not(self, part):
        """Why the part is left out; empty when it is not."""
        if self.quick and part in NOT_QUICK:
            return "--quick"
        if self.is_stopped:
            return ENDED
        if not self.gpu:
            return "nvidia-smi names no GPU"
        if not os.path.isdir(os.path.dirname(self.program("card", "x"))):
            return "nothing was built for the card"
        return "" if self.num_passed() > 0 else "no program of tests passed"

    def measure_all(self):
        self.plan.begin("tests")
        self.find_libraries()
        if self.unfit():
            self.skip(f"everything: {self.unfit()}")
            return
        self.test()
        parts = {"models": self.run_models, "torch": self.run_torch, "ops": self.run_ops, "latency": self.run_latency,
                 "sanitizer": self.run_sanitizer, "alternatives": self.run_alternatives}
        for name, part in parts.items():
            why_not = self.why_not(name)
            if why_not:
                self.skip(f"{TITLES.get(name, name)}: {why_not}")
                continue
            self.plan.begin(name)
            part()
            self.clocks[f"after {name}"] = records.clocks()

    def find_libraries(self):
        """Puts what the bundle does not have where the loader looks."""
        for name in BUNDLE.get("needs", []):
            folder = find_library(name)
            if folder is None:
                self.skip(f"programs that need {name}: it is not on this machine")
            elif folder:
                os.environ["LD_LIBRARY_PATH"] = f"{folder}:{os.environ.get('LD_LIBRARY_PATH', '')}".rstrip(":")


def prepare(folder):
    """Makes the folder of the report; ends the program where nothing can be written to it, or there is no room."""
    for path in (folder, f"{folder}/raw"):
        try:
            os.makedirs(path, exist_ok=True)
            tempfile.NamedTemporaryFile(dir=path).close()
        except OSError as error:
            sys.exit(f"{path}: {error.strerror}")
    if shutil.disk_usage(folder).free < LEAST_FREE_BYTES:
        sys.exit(f"{folder}: expected {LEAST_FREE_BYTES >> 20} MiB of free space, got less")


def options_parser():
    parser = argparse.ArgumentParser(description="Checks and measures the CUDA engine.")
    parser.add_argument("outdir", help="the folder of report.md, gpu.json, pictures and logs; where it is that of an "
                                       "earlier run, this one goes on with what is missing")
    parser.add_argument("--quick", action="store_true", help="within 4 minutes: no PyTorch, no compute-sanitizer")
    parser.add_argument("--minutes", type=float, help="when it must end, in place of 10 minutes or 4")
    return parser


def main():
    parser = options_parser()
    # Of scripts/gpu_check.py, whose building was ended: reports what there is.
    parser.add_argument("--ended", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not BUNDLE:
        sys.exit("expected the folder of a bundle around this script, got none: scripts/gpu_check.sh makes one")
    prepare(options.outdir)
    libc = platform.libc_ver()[1]
    if libc and [int(n) for n in libc.split(".")] < [int(n) for n in BUNDLE.get("glibc", "0").split(".")]:
        sys.exit(f"expected glibc {BUNDLE['glibc']} or newer, which this bundle was built with, got {libc}")
    os.environ["PATH"] += f":{os.environ.get('CUDA_HOME', '/usr/local/cuda')}/bin"
    check = Check(os.path.abspath(options.outdir), options)
    if options.ended:
        check.stop()
    check.measure_all()
    return 0 if check.report() else 1


if __name__ == "__main__":
    sys.exit(main())

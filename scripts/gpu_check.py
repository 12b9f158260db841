#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What scripts/gpu_check.sh and the ./run of a bundle do, which say what that is.

In a bundle (scripts/package_benchmarks.sh) all programs are there. Elsewhere two builds begin at once, for the card and
as PTX for compute_75, and each test runs as soon as it is linked. Then the parts of PARTS run one after another, alone
on the card; each gets its share of the time that is left (time_plan.py). What was cut off or failed is tried again by
the next run in the same folder (gpu_progress.py).
"""

import argparse
import contextlib
import os
import platform
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

SCRIPTS = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [SCRIPTS, f"{os.path.dirname(SCRIPTS)}/tools"]
import gpu_progress  # noqa: E402
from gpu_programs import BUNDLE, EXAMPLES, ROOT  # noqa: E402
from gpu_programs import benchmark_programs, find_library, has_cublaslt, test_programs  # noqa: E402
import performance  # noqa: E402
import records  # noqa: E402
import time_plan  # noqa: E402

MINUTES, QUICK_MINUTES = 9.5, 3.8
# By value, with their weights: a bundle's tests need no building.
PARTS = {"tests": 25, "models": 15, "torch": 15, "ops": 15, "latency": 10, "sanitizer": 20, "alternatives": 8}
WITH_BUILDING = {**PARTS, "tests": 150}
NOT_QUICK = {"torch": "PyTorch", "sanitizer": "compute-sanitizer", "alternatives": "alternatives"}
TEST_S, SANITIZED_TEST_S = 120, 90  # what a program gets at most
SKIPPED = 77  # exit status of a test without a GPU
LEAST_CAPABILITY = 75
SMALL_CARD_MIB = 14 << 10  # where a test that runs out of memory is no failure
LOG_BYTES = 8 << 20  # of each log, its end
LEAST_FREE_BYTES = 64 << 20
RATES, CONTEXTS = ("500", "1000", "2000", "4000", "8000", "16000"), ("1", "2", "4")
CAPACITIES = ("1", "100", "16", "1600", "64", "6400")  # of the layers that are tuned


class Log:
    def __init__(self, path):
        self.path, self.lock = path, threading.Lock()
        with contextlib.suppress(OSError):
            open(path, "a", encoding="utf-8").close()

    def add(self, title, text):
        with self.lock, contextlib.suppress(OSError), open(self.path, "a", encoding="utf-8") as file:
            file.write(f"==== {title}\n{text}\n")

    def shorten(self):
        with contextlib.suppress(OSError):
            with open(self.path, "rb") as file:
                content = file.read()
            if len(content) > LOG_BYTES:
                with open(self.path, "wb") as file:
                    file.write(b"(the beginning is cut off)\n" + content[-LOG_BYTES:])


class Check:
    def __init__(self, out, options):
        self.out, self.builds, self.quick = out, os.path.abspath(options.build), options.quick
        minutes = options.minutes or (QUICK_MINUTES if self.quick else MINUTES)
        parts = PARTS if BUNDLE else WITH_BUILDING
        self.plan = time_plan.TimePlan(60 * minutes, {name: weight for name, weight in parts.items()
                                                      if not (self.quick and name in NOT_QUICK)})
        self.gpu, self.state, self.clocks = records.gpu(), records.card_state(), {"before": records.clocks()}
        self.commit = BUNDLE["commit"] if BUNDLE else records.commit()
        os.environ["WARPRANK_COMMIT"] = self.commit
        # A tree with changes may have had others the last time.
        is_known = self.commit != "unknown" and not self.commit.endswith("-dirty")
        which = BUNDLE["id"] if BUNDLE else "" if is_known else str(time.time())
        self.progress = gpu_progress.Progress(out, {"commit": self.commit, "which": which, "quick": self.quick,
                                                    "card": self.gpu.get("card", "none")})
        self.raw = f"{out}/raw"
        if not self.progress.taken_over:
            shutil.rmtree(self.raw, ignore_errors=True)
        os.makedirs(self.raw, exist_ok=True)
        self.build_log, self.log = Log(f"{out}/build.log"), Log(f"{out}/tests.log")
        self.lock, self.running, self.is_stopped = threading.Lock(), set(), False
        self.skipped, self.num_not_run, self.why_not_run = [], 0, ""
        if self.progress.taken_over:
            print(f"{self.progress.taken_over} steps are done already: this run goes on", flush=True)
        if self.progress.forgotten:
            self.skip("what this folder had before: it is of another commit, card or kind of run")

    @property
    def rows(self):
        return list(self.progress.rows.values())

    def num_rows(self, result):
        return sum(row[2].startswith(result) for row in self.rows)

    def num_passed(self):
        return sum(row[2].startswith("ok") and row[1] in test_programs() for row in self.rows)

    def row(self, build, step, result, tests="", since=None):
        seconds = "" if since is None else f"{time.monotonic() - since:.0f}"
        with self.lock:
            row = [build, step, result, str(tests), seconds]
            self.progress.add(row)
            print(" | ".join(row), flush=True)

    def skip(self, what):
        with self.lock:
            self.skipped.append(what)
            print(f"skipped: {what}", flush=True)

    def run(self, title, command, seconds, env=None):
        """(exit status, output); the status is None when the time was over."""
        process = subprocess.Popen(command, cwd=ROOT,
                                   env={**os.environ, **(env or {})}, text=True, errors="replace",
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        with self.lock:
            self.running.add(process.pid)
        if self.is_stopped:
            os.killpg(process.pid, signal.SIGKILL)
        try:
            output, status = process.communicate(timeout=max(seconds, 1))[0], process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, status = process.communicate()[0], None
        except KeyboardInterrupt:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        finally:
            with self.lock:
                self.running.discard(process.pid)
        self.log.add(title, output)
        return status, output

    def stop(self):
        """The run was killed: nothing that it started stays."""
        self.is_stopped = True
        with self.lock:
            for pid in self.running:
                with contextlib.suppress(OSError):
                    os.killpg(pid, signal.SIGKILL)

    # --- builds

    def configure(self, name, architectures, benchmarks):
        options = ["-S", ".", "-B", self.folder(name), "-D", "CMAKE_BUILD_TYPE=Release", "-D", "WARPRANK_CUDA=ON",
                   "-D", f"CMAKE_CUDA_ARCHITECTURES={architectures}",
                   "-D", f"WARPRANK_BUILD_BENCHMARKS={benchmarks}", "-D", f"WARPRANK_BUILD_EXAMPLES={benchmarks}",
                   "-D", f"WARPRANK_CUBLASLT={'ON' if has_cublaslt() else 'OFF'}"]
        if os.path.isdir(f"{ROOT}/.deps/usr"):
            options += ["-D", f"CMAKE_PREFIX_PATH={ROOT}/.deps/usr"]
        if shutil.which("ninja"):
            options += ["-G", "Ninja"]
        result = subprocess.run(["cmake", *options], cwd=ROOT, text=True, capture_output=True, check=False)
        self.build_log.add(f"{name}: configure", result.stdout + result.stderr)
        return result.returncode == 0

    def build_tests(self, name, architectures, benchmarks, ready):
        """Puts (build, program) into `ready` as soon as a test is linked; a row says how it ended."""
        begin, step = time.monotonic(), f"build for {architectures}"
        configured = self.configure(name, architectures, "ON" if benchmarks else "OFF")
        if not configured and benchmarks:
            benchmarks = False
            configured = self.configure(name, architectures, "OFF")
            if configured:
                self.skip("benchmarks, PyTorch, latency: cmake does not find what they need: build.log")
        if not configured:
            self.row(name, step, "FAILED: cmake, build.log", since=begin)
            return
        targets = ["gpu_tests"] + (["gpu_benchmarks", "models_run_model", *EXAMPLES] if benchmarks else [])
        command = ["cmake", "--build", self.folder(name), "--parallel", str(os.cpu_count()), "--target", *targets,
                   "--", "-k", *(["0"] if shutil.which("ninja") else [])]
        if not benchmarks:
            command = ["nice", *command]
        process = subprocess.Popen(command, cwd=ROOT, text=True, errors="replace", stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, start_new_session=True)
        with self.lock:
            self.running.add(process.pid)
        timer = threading.Timer(max(0.9 * self.plan.left(), 1), lambda: os.killpg(process.pid, 15))
        timer.start()
        built, lines = set(), []
        for line in process.stdout:
            lines.append(line)
            # Ninja says so when it has linked, make with the next line.
            found = re.search(r"Linking \w+ executable (\S+)" if shutil.which("ninja") else r"Built target (\S+)", line)
            program = os.path.basename(found[1]) if found else None
            if program in test_programs() and program not in built:
                built.add(program)
                ready.put((name, program))
        status, cut_off = process.wait(), not timer.is_alive()
        timer.cancel()
        with self.lock:
            self.running.discard(process.pid)
        self.build_log.add(f"{name}: build", "".join(lines))
        missing = [program for program in test_programs() if not os.access(self.program(name, program), os.X_OK)]
        for program in test_programs():  # an earlier build's are there already
            if program not in built and program not in missing and not cut_off:
                ready.put((name, program))
        # As compilers say it; one that is killed names no place.
        broken = any(re.match(r"\S+(:\d+|\(\d+\)).*\berror\b", line) for line in lines)
        if cut_off and not broken:
            self.row(name, step, f"left out: no time to build {len(missing)} tests", since=begin)
        else:
            self.row(name, step, "ok" if status == 0 else "FAILED: build.log", since=begin)

    def folder(self, build):
        return f"{self.builds}/gpu-{build}"

    def program(self, build, name, kind="tests/gpu"):
        return f"{ROOT}/bin/{build}/{name}" if BUNDLE else f"{self.folder(build)}/{kind}/{name}"

    def benchmark(self, name):
        return self.program("card", name, "benchmarks")

    def example(self, name):
        return self.program("card", name, "examples")

    # --- tests

    def run_test(self, build, program, before=(), step=""):
        most = SANITIZED_TEST_S if before else TEST_S
        begin, seconds = time.monotonic(), min(self.plan.left(), most)
        if self.progress.is_done(build, step + program) or self.is_stopped:
            return
        if seconds < 3:
            self.row(build, step + program, "left out: no time")
            return
        status, output = self.run(f"{build}: {' '.join(before)} {program}", [*before, self.program(build, program)],
                                  seconds)
        count = re.search(r"^\[  PASSED  \] (\d+) test|^SKIPPED (\d+) tests", output, re.M)
        tests = int(count[1] or count[2]) if count else ""
        skipped = re.search(r"^\[  SKIPPED \] (\d+) test", output, re.M)
        lacking = re.search(r"error while loading shared libraries: (\S+):", output)
        result = f"ok, {skipped[1]} skipped" if skipped else "ok"
        if status == SKIPPED:
            result = "not run: no GPU"
            why = re.search(r"there is no GPU \((.*)\)$", output, re.M)
            with self.lock:
                self.num_not_run += tests or 1
                self.why_not_run = why[1] if why else self.why_not_run
        elif self.is_stopped:
            result = "left out: the run was ended"
        elif lacking:
            result = f"left out: this machine has no {lacking[1]}"
        elif status is None and seconds < most:
            result = "left out: no time"
        elif status is None:
            result = f"left out: not done after {seconds} s" if before else f"FAILED: not done after {seconds} s"
        elif status != 0 and self.is_small() and "out of" in output and "memory" in output:
            result = "left out: too little memory"
        elif status != 0:
            result = f"FAILED ({status}): tests.log"
        self.row(build, step + program, result, tests, begin)

    def capability(self):
        return self.gpu.get("compute capability", "").replace(".", "")

    def is_too_old(self):
        is_old = self.capability().isdigit() and int(self.capability()) < LEAST_CAPABILITY
        if is_old:
            self.skip(f"tests for the card: its compute capability is {self.gpu['compute capability']}, 7.5 is needed")
        return is_old

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
        """Tests of the bundle."""
        jobs = queue.Queue()
        if self.is_too_old():
            return
        for build in ("card", "t4"):
            for program in BUNDLE["programs"].get(build, []):
                if program in test_programs():
                    jobs.put((build, program))
        jobs.put(None)
        for worker in self.work(jobs):
            worker.join()

    def build_and_test(self):
        if not has_cublaslt():
            self.skip("kernels by cuBLASLt: the toolkit has no cublasLt.h")
        builds = [("t4", "75-virtual", False)]
        if self.gpu and not self.is_too_old():
            builds.insert(0, ("card", f"{self.capability()}-real", True))
        ready = queue.Queue()
        testers = self.work(ready)
        builders = [threading.Thread(target=self.build_tests, args=(*build, ready), daemon=True) for build in builds]
        for builder in builders:
            builder.start()
        for builder in builders:
            builder.join()
        ready.put(None)
        for tester in testers:
            tester.join()

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
            self.skip("compute-sanitizer: this machine does not permit it: tests.log")
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

    def measure(self, what, command, seconds):
        if self.progress.is_done("card", what):
            return
        if not os.access(command[0], os.X_OK):
            self.skip(f"{what}: it was not built")
            return
        if seconds < 4:
            self.row("card", what, "left out: no time")
            return
        begin = time.monotonic()
        try:
            status, output = self.run(what, command, seconds)
        except KeyboardInterrupt:
            self.row("card", what, "left out: the run was ended", since=begin)
            raise
        lacking = re.search(r"error while loading shared libraries: (\S+):", output)
        result = "ok" if status == 0 else "left out: cut off" if status is None else f"FAILED ({status}): tests.log"
        if lacking:
            result = f"left out: this machine has no {lacking[1]}"
        self.row("card", what, result, since=begin)

    def run_benchmarks(self, programs):
        for i, program in enumerate(programs):
            quick = ["--benchmark_filter=/cold"] if self.quick and program.startswith("ops") else []
            self.measure_benchmark(program, self.plan.for_step(len(programs) - i), quick)

    def measure_benchmark(self, program, seconds, options=()):
        self.measure(program, [self.benchmark(program), f"--benchmark_out={self.raw}/{program}.json", *options], seconds)

    def run_models(self):
        programs = [name for name in benchmark_programs() if not name.startswith(("ops", "sweeps"))]
        self.run_benchmarks(sorted(programs, key=lambda name: not name.startswith("models")))

    def run_ops(self):
        self.run_benchmarks([name for name in benchmark_programs() if name.startswith("ops")])

    def run_torch(self):
        script, run_model = f"{ROOT}/tools/bench_torch.py", self.benchmark("models_run_model")
        status, _ = self.run("PyTorch", [sys.executable, "-c", "import numpy, safetensors, torch"], self.plan.left())
        if status != 0:
            self.skip("PyTorch: it is not installed, or NumPy or safetensors are not")
            return
        if not os.access(run_model, os.X_OK):
            self.skip("PyTorch: models_run_model was not built")
            return
        # Its best form first: eager in a CUDA graph. Compiling takes most of the time, and has not been faster.
        for name, modes in (("torch", ["graph"]), ("torch_others", ["eager", "reduce-overhead"])):
            self.measure("PyTorch, " + " and ".join(modes),
                         [sys.executable, script, run_model, *(["--quick"] if name != "torch" else []), "--modes",
                          *modes, "--out", f"{self.raw}/{name}.json"], self.plan.left())

    def serve(self, what, contexts, seconds, csv, more=(), rates=RATES):
        self.measure(what, [self.example("embed_in_service"), "--engine", "cuda", "--contexts", contexts,
                            "--clients", "4", "--seconds", seconds, "--warm-up", "0.5",
                            "--csv", f"{self.raw}/latency_cuda_{csv}.csv", *more, "--rates", *rates],
                     self.plan.left())

    def run_latency(self):
        seconds = "1" if self.quick else "1.5"
        self.serve("latency with 2 contexts", "2", seconds, "2")
        if not self.quick:
            self.serve("latency with 2 contexts and swaps", "2", "5", "2_full-swaps",
                       ("--swap-every", "1", "--swap-mode", "full"), RATES[2:5:2])
            for contexts in (c for c in CONTEXTS if c != "2"):
                self.serve(f"latency with {contexts} contexts", contexts, seconds, contexts)

    def run_alternatives(self):
        """What was chosen by thought beside what else could be: as far as programs can be told to take it."""
        sweeps = [name for name in benchmark_programs() if name.startswith("sweeps")]
        for i, program in enumerate(sweeps):
            self.measure_benchmark(program, self.plan.for_step(len(sweeps) - i + 2))
        self.measure("tuning of linear layers", [self.example("tune_linears"), "--out", f"{self.out}/tuning.json",
                                                 "--capacity", *CAPACITIES], self.plan.for_step(2))
        service = self.example("embed_in_service")
        if not os.access(service, os.X_OK):
            return
        _, text = self.run("options of embed_in_service", [service, "--help"], 10)
        found = re.search(r"--wait [^{\n]*\{([^}]*)\}", text)
        for value in re.split(r"[,\s]+", re.sub(r"->\d+", "", found[1])) if found else ():
            self.serve(f"latency with 2 contexts, waiting by {value}", "2", "1.5",
                       f"2_waits-by-{value.replace('_', '-')}", ("--wait", value), RATES[2:5:2])

    # --- report

    def report(self):
        facts = {**self.gpu, **self.state, **{f"clocks {when}": line for when, line in self.clocks.items()}}
        card = self.gpu.get("card")
        if card and not performance.known_card(card):
            self.skip(f"predictions: {card} is not among the cards of include/warprank/plan/cards.hpp")
        if self.progress.error:
            self.skip(f"what is done is not kept for the next run: {self.progress.error}")
        command = ("./run" if BUNDLE else "scripts/gpu_check.sh") + " OUTDIR" + (" --quick" if self.quick else "")
        record = records.pack(self.raw, command, self.skipped, {name: v for name, v in facts.items() if v})
        record["commit"] = self.commit
        record["doubts"] = records.doubts(record)
        record["steps"] = self.rows
        num_failed = self.num_rows("FAILED")
        summary = f"{num_failed} steps failed, {self.num_passed()} programs of tests passed."
        if card is None and not BUNDLE:
            summary += (f" There is no GPU: {self.num_not_run} tests for the T4's code were built and not run, those "
                        "for a card were not built, nothing was measured.")
        elif self.num_not_run:
            why = self.why_not_run or "nvidia-smi names none"
            summary += f" There is no GPU that programs can use ({why}): {self.num_not_run} tests were not run."
        if self.is_stopped:
            summary += " The run was ended from outside; the next one in this folder goes on."
        try:
            with open(f"{self.out}/gpu.json", "w", encoding="utf-8") as file:
                file.write(records.dumped(record))
            performance.write_report(f"{self.out}/gpu.json", "# GPU check\n\n" + summary + "\n\n" +
                                     performance.table([["build", "step", "result", "tests", "seconds"], *self.rows]))
        except OSError as error:
            print(f"no report: {error.strerror}")
        for log in (self.build_log, self.log):
            log.shorten()
        for line in record["doubts"]:
            print(f"doubtful: {line}")
        print(f"{summary}\n{self.out}/report.md")
        return num_failed

    def measure_all(self):
        self.plan.begin("tests")
        if BUNDLE:
            self.find_libraries()
            self.test()
        else:
            self.build_and_test()
        if not self.gpu or not os.path.isdir(os.path.dirname(self.program("card", "x"))) or self.num_passed() == 0:
            return
        parts = {"models": self.run_models, "torch": self.run_torch, "ops": self.run_ops, "latency": self.run_latency,
                 "sanitizer": self.run_sanitizer, "alternatives": self.run_alternatives}
        for name, part in parts.items():
            if name not in self.plan.weights:
                self.skip(f"{NOT_QUICK[name]}: --quick")
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


def main():
    parser = argparse.ArgumentParser(description="Checks and measures the CUDA engine.")
    parser.add_argument("outdir")
    parser.add_argument("--quick", action="store_true", help="within 4 minutes: no PyTorch, no compute-sanitizer")
    parser.add_argument("--minutes", type=float, help="when it must end, in place of 10 minutes or 4")
    parser.add_argument("--build", default=f"{ROOT}/build", help="where gpu-card and gpu-t4 are built")
    options = parser.parse_args()
    try:
        os.makedirs(options.outdir, exist_ok=True)
        if shutil.disk_usage(options.outdir).free < LEAST_FREE_BYTES:
            sys.exit(f"{options.outdir}: expected {LEAST_FREE_BYTES >> 20} MiB of free space, got less")
    except OSError as error:
        sys.exit(f"{options.outdir}: {error.strerror}")
    libc = platform.libc_ver()[1]
    if BUNDLE and libc and [int(n) for n in libc.split(".")] < [int(n) for n in BUNDLE.get("glibc", "0").split(".")]:
        sys.exit(f"expected glibc {BUNDLE['glibc']} or newer, which this bundle was built with, got {libc}")
    os.environ["PATH"] += f":{os.environ.get('CUDA_HOME', '/usr/local/cuda')}/bin:{ROOT}/.deps/usr/bin"
    check = Check(os.path.abspath(options.outdir), options)

    def end(*_):
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, end)
    try:
        check.measure_all()
    except KeyboardInterrupt:
        check.stop()
        time.sleep(0.5)  # rows of what was running
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    num_failed = check.report()
    return 1 if num_failed or not check.gpu or not check.num_passed() else 0


if __name__ == "__main__":
    sys.exit(main())

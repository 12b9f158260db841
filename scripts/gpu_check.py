#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What scripts/gpu_check.sh does, which says what that is.

Two builds begin at once: for the card, and as PTX for compute_75. Each test runs as soon as it is linked. When both are
built, or have had their time, the card is left to the benchmarks alone; then to PyTorch, the load generator and
compute-sanitizer. SHARES says until when each may go on.
"""

import argparse
import glob
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, f"{ROOT}/tools")
import performance  # noqa: E402
import records  # noqa: E402

MINUTES, QUICK_MINUTES = 9.5, 3.8
# Of the whole time, when a part must end; a part that ends before leaves the rest to the next.
SHARES = {"build": 0.6, "tests": 0.66, "benchmarks": 0.8, "torch": 0.9, "latency": 0.95, "sanitizer": 0.98}
TEST_S, SANITIZED_TEST_S = 120, 90  # what a program gets at most
SKIPPED = 77  # exit status of a test without a GPU
LEAST_CAPABILITY = 75
SMALL_CARD_MIB = 14 << 10  # where a test that runs out of memory is no failure
LOG_BYTES = 8 << 20  # of each log, its end
RATES, CONTEXTS = ("500", "1000", "2000", "4000", "8000", "16000"), ("1", "2", "4")


def test_programs():
    """Names of all tests for a GPU, as tests/gpu/CMakeLists.txt makes them."""
    sources = glob.glob("**/*_kernel_test.cpp", root_dir=f"{ROOT}/tests", recursive=True)
    return sorted(os.path.splitext(source)[0].replace("/", "_") + "_gpu" for source in sources) + ["gpu_two_libraries"]


def benchmark_programs():
    sources = glob.glob("**/*_bench.cu", root_dir=f"{ROOT}/benchmarks", recursive=True)
    return sorted((os.path.splitext(source)[0].replace("/", "_") + "_gpu" for source in sources),
                  key=lambda name: (not name.startswith("models"), name))  # models first: time may run out


def has_cublaslt():
    nvcc = shutil.which("nvcc")
    toolkit = os.path.dirname(os.path.dirname(os.path.realpath(nvcc))) if nvcc else "/usr/local/cuda"
    return any(glob.glob(f"{toolkit}/{folder}/cublasLt.h") for folder in ("include", "targets/*/include"))


class Log:
    def __init__(self, path):
        self.path, self.lock = path, threading.Lock()
        open(path, "w", encoding="utf-8").close()

    def add(self, title, text):
        with self.lock, open(self.path, "a", encoding="utf-8") as file:
            file.write(f"==== {title}\n{text}\n")

    def shorten(self):
        with open(self.path, "rb") as file:
            content = file.read()
        if len(content) > LOG_BYTES:
            with open(self.path, "wb") as file:
                file.write(b"(the beginning is cut off)\n" + content[-LOG_BYTES:])


class Check:
    def __init__(self, out, build, quick, minutes):
        self.out, self.builds, self.quick = out, build, quick
        self.begin, self.seconds = time.monotonic(), 60 * minutes
        self.build_log, self.log = Log(f"{out}/build.log"), Log(f"{out}/tests.log")
        self.lock = threading.Lock()
        self.rows, self.skipped, self.num_failed, self.num_not_run, self.num_passed = [], [], 0, 0, 0
        self.gpu = records.gpu()
        self.clocks = records.clocks()
        self.raw = tempfile.mkdtemp()

    def left(self, part):
        """Seconds until the part must end."""
        return self.begin + self.seconds * SHARES[part] - time.monotonic()

    def row(self, build, step, result, tests="", since=None):
        seconds = "" if since is None else f"{time.monotonic() - since:.0f}"
        with self.lock:
            self.rows.append([build, step, result, str(tests), seconds])
            self.num_failed += result.startswith("FAILED")
            print(" | ".join(self.rows[-1]), flush=True)

    def skip(self, what):
        with self.lock:
            self.skipped.append(what)
            print(f"skipped: {what}", flush=True)

    def run(self, title, command, seconds, env=None):
        """(exit status, output); the status is None when the time was over."""
        process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, **(env or {})}, text=True, errors="replace",
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            output, status = process.communicate(timeout=max(seconds, 1))[0], process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            output, status = process.communicate()[0], None
        self.log.add(title, output)
        return status, output

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
        targets = ["gpu_tests"] + (["gpu_benchmarks", "models_run_model", "embed_in_service"] if benchmarks else [])
        command = ["cmake", "--build", self.folder(name), "--parallel", str(os.cpu_count()), "--target", *targets,
                   "--", "-k", *(["0"] if shutil.which("ninja") else [])]
        if not benchmarks:
            command = ["nice", *command]
        process = subprocess.Popen(command, cwd=ROOT, text=True, errors="replace", stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, start_new_session=True)
        timer = threading.Timer(max(self.left("build"), 1), lambda: os.killpg(process.pid, 15))
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

    def program(self, build, name):
        return f"{self.folder(build)}/tests/gpu/{name}"

    # --- tests

    def run_test(self, build, program, part, before=(), step=""):
        begin, seconds = time.monotonic(), min(self.left(part), SANITIZED_TEST_S if before else TEST_S)
        if seconds < 3:
            self.row(build, step + program, "left out: no time")
            return
        status, output = self.run(f"{build}: {' '.join(before)} {program}", [*before, self.program(build, program)],
                                  seconds)
        count = re.search(r"^\[  PASSED  \] (\d+) test|^SKIPPED (\d+) tests", output, re.M)
        tests = int(count[1] or count[2]) if count else ""
        skipped = re.search(r"^\[  SKIPPED \] (\d+) test", output, re.M)
        result = f"ok, {skipped[1]} skipped" if skipped else "ok"
        if status == 0:
            with self.lock:
                self.num_passed += 1
        if status == SKIPPED:
            result = "not run: no GPU"
            with self.lock:
                self.num_not_run += tests or 1
        elif status is None and seconds < (SANITIZED_TEST_S if before else TEST_S):
            result = "left out: no time"
        elif status is None:
            result = f"left out: not done after {seconds} s" if before else f"FAILED: not done after {seconds} s"
        elif status != 0 and self.is_small() and "out of" in output and "memory" in output:
            result = "left out: too little memory"
        elif status != 0:
            result = f"FAILED ({status}): tests.log"
        self.row(build, step + program, result, tests, begin)

    def is_small(self):
        mib = re.match(r"(\d+) MiB", self.gpu.get("memory of the card", ""))
        return mib is not None and int(mib[1]) < SMALL_CARD_MIB

    def work(self, jobs, part, **arguments):
        """Runs what is in the queue, in threads, until None comes out."""
        def loop():
            while (job := jobs.get()) is not None:
                self.run_test(*job, part, **arguments)
            jobs.put(None)

        workers = [threading.Thread(target=loop) for _ in range(1 if self.is_small() else 3)]
        for worker in workers:
            worker.start()
        return workers

    def build_and_test(self):
        if not has_cublaslt():
            self.skip("kernels by cuBLASLt: the toolkit has no cublasLt.h")
        capability = self.gpu.get("compute capability", "").replace(".", "")
        builds = [("t4", "75-virtual", False)]
        if capability.isdigit() and int(capability) < LEAST_CAPABILITY:
            self.skip(f"tests for the card: its compute capability is {self.gpu['compute capability']}, 7.5 is needed")
        elif capability:
            builds.insert(0, ("card", f"{capability}-real", True))
        ready = queue.Queue()
        testers = self.work(ready, "tests")
        builders = [threading.Thread(target=self.build_tests, args=(*build, ready)) for build in builds]
        for builder in builders:
            builder.start()
        for builder in builders:
            builder.join()
        ready.put(None)
        for tester in testers:
            tester.join()

    def sanitize(self):
        if self.quick:
            self.skip("compute-sanitizer: --quick")
            return
        if shutil.which("compute-sanitizer") is None:
            self.skip("compute-sanitizer: not installed")
            return
        probe = self.program("card", "support_kernel_testing_kernel_test_gpu")
        if not os.path.exists(probe) or self.left("sanitizer") < 10:
            self.skip("compute-sanitizer: no time left")
            return
        status, _ = self.run("does compute-sanitizer work", ["compute-sanitizer", "--error-exitcode", "1", probe,
                                                             "--gtest_filter=*GraphIsCaptured*"], 60)
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
            for worker in self.work(jobs, "sanitizer", before=before, step=f"{tool}: "):
                worker.join()

    # --- measurements

    def measure(self, what, part, command, seconds):
        """Whether it ran to its end; else a row says why not."""
        seconds = min(self.left(part), seconds)
        if not os.access(command[0], os.X_OK) and "/" in command[0]:
            self.skip(f"{what}: it was not built")
            return False
        if seconds < 5:
            self.skip(f"{what}: no time left")
            return False
        begin = time.monotonic()
        status, _ = self.run(what, command, seconds)
        result = "ok" if status == 0 else "left out: cut off" if status is None else f"FAILED ({status}): tests.log"
        self.row("card", what, result, since=begin)
        return status == 0

    def run_benchmarks(self):
        programs = benchmark_programs()
        for i, program in enumerate(programs):
            fair = 2 * self.left("benchmarks") / (len(programs) - i)
            quick = ["--benchmark_filter=/cold"] if self.quick and program.startswith("ops") else []
            self.measure(program, "benchmarks",
                         [f"{self.folder('card')}/benchmarks/{program}", f"--benchmark_out={self.raw}/{program}.json",
                          "--benchmark_out_format=json", f"--benchmark_min_time={0.02 if self.quick else 0.1}", *quick],
                         fair)

    def run_torch(self):
        script = f"{ROOT}/tools/bench_torch.py"
        if self.quick:
            self.skip("PyTorch: --quick")
        elif subprocess.run([sys.executable, "-c", "import numpy, safetensors, torch"], capture_output=True,
                            check=False).returncode != 0:
            self.skip("PyTorch: it is not installed, or NumPy or safetensors are not")
        elif os.path.exists(script):
            self.measure("PyTorch", "torch", [sys.executable, script,
                                              f"{self.folder('card')}/benchmarks/models_run_model",
                                              "--quick", "--out", f"{self.raw}/torch.json"], self.left("torch"))

    def run_latency(self):
        for contexts in CONTEXTS[1:2] if self.quick else CONTEXTS:
            self.measure(f"latency with {contexts} contexts", "latency",
                         [f"{self.folder('card')}/examples/embed_in_service", "--engine", "cuda",
                          "--contexts", contexts, "--clients", "4", "--seconds", "1" if self.quick else "2",
                          "--warm-up", "0.5", "--csv", f"{self.raw}/latency_cuda_{contexts}.csv",
                          "--rates", *RATES], 60)

    # --- report

    def report(self):
        facts = {**self.gpu, "clocks before": self.clocks, "clocks after": records.clocks()}
        card = self.gpu.get("card")
        if card and not performance.known_card(card):
            self.skip(f"predictions: {card} is not among the cards of include/warprank/plan/cards.hpp")
        command = "scripts/gpu_check.sh OUTDIR" + (" --quick" if self.quick else "")
        record = records.pack(self.raw, command, self.skipped, {name: v for name, v in facts.items() if v})
        record["steps"] = self.rows
        with open(f"{self.out}/gpu.json", "w", encoding="utf-8") as file:
            file.write(records.dumped(record))
        for log in (self.build_log, self.log):
            log.shorten()
        summary = f"{self.num_failed} steps failed, {self.num_passed} programs of tests passed."
        if card is None:
            summary += (f" There is no GPU: {self.num_not_run} tests for the T4's code were built and not run, those "
                        "for a card were not built, nothing was measured.")
        performance.write_report(f"{self.out}/gpu.json", "# GPU check\n\n" + summary + "\n\n" +
                                 performance.table([["build", "step", "result", "tests", "seconds"], *self.rows]))
        shutil.rmtree(self.raw)
        print(f"{summary}\n{self.out}/report.md")


def main():
    parser = argparse.ArgumentParser(prog="scripts/gpu_check.sh", description="Checks and measures the CUDA engine.")
    parser.add_argument("outdir")
    parser.add_argument("--quick", action="store_true", help="within 4 minutes: no PyTorch, no compute-sanitizer")
    parser.add_argument("--minutes", type=float, help="when it must end, in place of 10 minutes or 4")
    parser.add_argument("--build", default=f"{ROOT}/build", help="where gpu-card and gpu-t4 are built")
    options = parser.parse_args()
    os.makedirs(options.outdir, exist_ok=True)
    os.environ["PATH"] += f":{os.environ.get('CUDA_HOME', '/usr/local/cuda')}/bin:{ROOT}/.deps/usr/bin"
    check = Check(os.path.abspath(options.outdir), os.path.abspath(options.build), options.quick,
                  options.minutes or (QUICK_MINUTES if options.quick else MINUTES))
    check.build_and_test()
    if check.gpu and os.path.isdir(check.folder("card")):
        check.run_benchmarks()
        check.run_torch()
        check.run_latency()
        check.sanitize()
    check.report()
    return 1 if check.num_failed or not check.gpu or not check.num_passed else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What scripts/gpu_check.sh does, which says what that is: makes a bundle (package_benchmarks.py) for the card of this
machine, of what can be built in half of the time, and becomes its ./run for the rest."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import textwrap
import time
import uuid

SCRIPTS = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [SCRIPTS, f"{os.path.dirname(SCRIPTS)}/tools"]
import package_benchmarks  # noqa: E402
import records  # noqa: E402
import run_bundle  # noqa: E402
from gpu_programs import ROOT, has_cublaslt, measuring_programs, test_programs  # noqa: E402
from gpu_runner import ENDED, Runner, say  # noqa: E402

BUILDING_SHARE = 0.5


class Builder(Runner):
    """Builds what can be built until `end`, and keeps what there is to say of it."""

    def __init__(self, end, log):
        with contextlib.suppress(OSError):
            os.remove(log)
        super().__init__(log)
        self.end, self.steps, self.skipped = end, [], []

    def step(self, title, command):
        """(exit status, output); the status is None when the time was over."""
        return self.run(title, command, self.end - time.monotonic())

    def configure(self, name, folder, architectures, with_benchmarks):
        command = package_benchmarks.configure_command(folder, architectures, has_cublaslt(), with_benchmarks)
        return self.step(f"{name}: configure", command)[0] == 0

    def build(self, name, folder, architectures, tests, measuring):
        """Names of the programs that are there."""
        begin = time.monotonic()
        configured = self.configure(name, folder, architectures, bool(measuring))
        if not configured and measuring:
            measuring = []
            configured = self.configure(name, folder, architectures, False)
            if configured:
                self.skipped.append("benchmarks, PyTorch, latency: cmake does not find what they need: build.log")
        programs = tests + measuring
        result = "FAILED: cmake, build.log"
        if configured:
            keep_going = ["--", "-k", *(["0"] if shutil.which("ninja") else [])]
            command = package_benchmarks.build_command(folder, programs) + keep_going
            status, output = self.step(f"{name}: build", command)
            missing = [program for program in programs if not package_benchmarks.find_program(folder, program)]
            # As compilers say it; one that is killed names no place.
            is_broken = re.search(r"^\S+(:\d+|\(\d+\)).*\berror\b", output, re.M)
            result = "ok" if status == 0 else "FAILED: build.log"
            if status is None and not is_broken:
                result = f"left out: no time to build {len(missing)} programs"
            programs = [program for program in programs if program not in missing]
        if self.is_stopped:
            result = f"left out: {ENDED}"
        self.steps.append([name, f"build for {architectures}", result, "", f"{time.monotonic() - begin:.0f}"])
        say(" | ".join(self.steps[-1]))
        return programs if configured else []


def make_bundle(folder, builder):
    """For the card, if there is one, and the T4's code. Without programs where building was ended from outside."""
    gpu, tests, built = records.gpu(), test_programs(), {}
    if not has_cublaslt():
        builder.skipped.append("kernels by cuBLASLt: the toolkit has no cublasLt.h")
    capability = gpu.get("compute capability", "").replace(".", "")
    builds = [("t4", "75-virtual", [])]
    if capability.isdigit() and int(capability) >= run_bundle.LEAST_CAPABILITY:
        builds.insert(0, ("card", f"{capability}-real", measuring_programs()))
    for name, architectures, measuring in builds:
        of_build = f"{folder}-{name}"
        built[name] = (of_build, builder.build(name, of_build, architectures, tests, measuring))
    if builder.log.error:
        builder.skipped.append(builder.log.error)
    commit = records.commit()
    # A tree with changes may have had others the last time.
    is_known = commit != "unknown" and not commit.endswith("-dirty")
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    package_benchmarks.assemble(folder, {} if builder.is_stopped else built, {
        "commit": commit, "id": commit if is_known else uuid.uuid4().hex, "command": "scripts/gpu_check.sh",
        "steps": builder.steps, "skipped": builder.skipped})


def main():
    parser = run_bundle.options_parser()
    parser.add_argument("--build", default=f"{ROOT}/build", help="where gpu-check, gpu-check-card and -t4 are made")
    options = parser.parse_args()
    begin = time.monotonic()
    run_bundle.prepare(options.outdir)
    minutes = options.minutes or (run_bundle.QUICK_MINUTES if options.quick else run_bundle.MINUTES)
    os.environ["PATH"] += f":{os.environ.get('CUDA_HOME', '/usr/local/cuda')}/bin:{ROOT}/.deps/usr/bin"
    bundle = f"{os.path.abspath(options.build)}/gpu-check"

    builder = Builder(begin + 60 * minutes * BUILDING_SHARE, f"{os.path.abspath(options.outdir)}/build.log")
    try:
        make_bundle(bundle, builder)
    except (OSError, subprocess.SubprocessError) as error:
        sys.exit(f"{bundle}: {textwrap.shorten(str(error), 200)}")
    left = minutes - (time.monotonic() - begin) / 60
    os.execv(f"{bundle}/run", [f"{bundle}/run", os.path.abspath(options.outdir), "--minutes", f"{left:.3f}",
                               *(["--quick"] if options.quick else []), *(["--ended"] if builder.is_stopped else [])])


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""Records of measurements in the form that Google Benchmark writes, so that one reader serves for all."""

import datetime
import json
import os
import platform
import subprocess


def processor():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def commit():
    """Of the checkout that this file is in, with a mark where it has changes; nothing outside of one."""
    folder = os.path.dirname(os.path.abspath(__file__))
    try:
        return subprocess.run(["git", "describe", "--always", "--dirty", "--abbrev=7", "--exclude=*"], cwd=folder,
                              capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


class Record:
    def __init__(self, **context):
        self.context = {
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "num_cpus": os.cpu_count(), "load_avg": list(os.getloadavg()), "processor": processor(),
            "commit": commit(), "python": platform.python_version(), **context}
        self.benchmarks = []

    def add(self, name, seconds, **counters):
        """One benchmark: its time, and what else was counted."""
        self.benchmarks.append({"name": name, "run_name": name, "run_type": "iteration", "iterations": 1,
                                "real_time": seconds * 1e3, "cpu_time": seconds * 1e3, "time_unit": "ms", **counters})

    def skip(self, name, reason):
        self.benchmarks.append({"name": name, "run_name": name, "run_type": "iteration", "error_occurred": True,
                                "error_message": "skipped: " + reason})

    def save(self, path):
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"context": self.context, "benchmarks": self.benchmarks}, file, indent=1)
            file.write("\n")

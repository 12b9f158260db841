# SPDX-License-Identifier: Apache-2.0
"""Records of measurements in the form that Google Benchmark writes, so that one reader serves for all."""

import datetime
import json
import os
import platform
import time

from records import commit, processor


def best_of(functions, times):
    """Of each the least seconds; they take turns."""
    seconds = [float("inf")] * len(functions)
    for _ in range(times):
        for i, function in enumerate(functions):
            begin = time.perf_counter()
            function()
            seconds[i] = min(seconds[i], time.perf_counter() - begin)
    return seconds


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

# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a record (tools/records.py) that somebody sends: its form, what it says of itself, and figures that
the card or arithmetic does not permit. Machines that are slow or busy are no reason to refuse one."""

import datetime
import json
import math
import os
import re
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CARDS = "include/warprank/plan/cards.hpp"
NAMES = ("host.json", "gpu.json")
# A card of the same name may be a better one: the A100 of 80 GB moves 1.31 times what that of 40 GB does.
BYTES_SLACK, FLOPS_SLACK = 1.4, 1.1
TIME_UNITS = ("ns", "us", "ms", "s")
FORM = {"machine": dict, "commit": str, "date": str, "command": str, "contexts": dict, "benchmarks": dict,
        "latency": list, "skipped": list}


def card_peaks():
    """{name: (bytes a second, operations a second)} of the data sheets."""
    with open(f"{ROOT}/{CARDS}", encoding="utf-8") as file:
        found = re.findall(r'\{"(\w+)", (\d+)e9, (\d+)e12,', file.read())
    return {name: (float(gigabytes) * 1e9, float(teraflops) * 1e12) for name, gigabytes, teraflops in found}


def is_known_commit(commit):
    """Whether the repository has it; None where that cannot be told."""
    command = ["git", "-C", ROOT, "cat-file", "-e", f"{commit}^{{commit}}"]
    try:
        if subprocess.run(["git", "-C", ROOT, "rev-parse"], capture_output=True, check=False).returncode != 0:
            return None
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return None


def form_problems(record):
    if not isinstance(record, dict):
        return ["expected a JSON object"]
    found = [f"{key}: expected {kind.__name__}, got {type(record.get(key)).__name__}"
             for key, kind in FORM.items() if not isinstance(record.get(key), kind)]
    for program, measurements in (record.get("benchmarks") or {}).items() if not found else ():
        if not re.fullmatch(r"\w+", program) or not isinstance(measurements, list) or not measurements:
            found.append(f"benchmarks: expected measurements of a program, got {program!r}")
            continue
        for m in measurements:
            if not isinstance(m, dict) or not isinstance(m.get("name"), str):
                found.append(f"{program}: expected measurements with a name")
            elif any(isinstance(value, (dict, list, bool, type(None))) for value in m.values()):
                found.append(f"{program}, {m['name']}: expected numbers and texts")
    for row in record.get("latency", []) if not found else ():
        if not isinstance(row, dict):
            found.append("latency: expected rows with the columns' names")
    return found


def origin_problems(record, name):
    """When, where and of what."""
    found, machine = [], record["machine"]
    if not all(isinstance(value, str) for value in machine.values()) or "processor" not in machine:
        found.append("machine: expected texts, the processor among them")
    if name == "gpu.json" and not all(key in machine for key in ("card", "compute capability", "driver")):
        found.append("machine: expected a card, its compute capability and driver; a run without a GPU is no record")
    capability = machine.get("compute capability", "7.5")
    if not re.fullmatch(r"\d+\.\d", capability) or float(capability) < 7.5:
        found.append(f"machine: expected a compute capability of 7.5 or more, got {capability!r}")
    for text in [record["command"], *map(str, machine.values())]:
        if re.search(r"(^|\s)/(home|root|Users|tmp)/|@|\\", text):
            found.append(f"{text!r} names a folder, a user or a host: take it out")
    try:
        if datetime.date.fromisoformat(record["date"]) > datetime.date.today() + datetime.timedelta(days=1):
            found.append(f"date: {record['date']} is to come")
    except ValueError:
        found.append(f"date: expected one as 2026-11-22, got {record['date']!r}")
    commit = record["commit"]
    if commit.endswith("-dirty"):
        found.append(f"commit: {commit} had changes that nobody else has")
    elif not re.fullmatch(r"[0-9a-f]{7,40}", commit):
        found.append(f"commit: expected 7 to 40 hexadecimal digits, got {commit!r}")
    elif is_known_commit(commit) is False:
        found.append(f"commit: this repository has no {commit}; git fetch may bring it")
    return found


def value_problems(m, peaks):
    """Of one measurement."""
    found, numbers = [], {key: value for key, value in m.items() if isinstance(value, (int, float))}
    if not all(math.isfinite(value) for value in numbers.values()):
        return ["a number is not finite"]
    if "time_unit" in m and m["time_unit"] not in TIME_UNITS:
        found.append(f"expected a unit of {', '.join(TIME_UNITS)}, got {m['time_unit']!r}")
    for key, value in numbers.items():
        # Shares and costs may be below 0, where what is compared was slower.
        if key.endswith(("_us", "_ms", "_ns", "/s", "real_time", "iterations", "ratio", "speedup", "bytes")) and value < 0:
            found.append(f"{key} of {value:g}")
    for low, high in (("planned_p50_us", "planned_p99_us"), ("unplanned_p50_us", "unplanned_p99_us")):
        if low in numbers and numbers.get(high, math.inf) < numbers[low]:
            found.append(f"{high} below {low}")
    us = numbers.get("min_us", 0)
    if us > 0 and "GB/s" in numbers and "bytes" in numbers:
        rate = numbers["bytes"] / us * 1e-3
        if abs(rate - numbers["GB/s"]) > 0.01 * max(rate, numbers["GB/s"]):
            found.append(f"{numbers['GB/s']:.4g} GB/s, where bytes and min_us make {rate:.4g}")
    if peaks is None:
        return found
    most_bytes, most_flops = BYTES_SLACK * peaks[0], FLOPS_SLACK * peaks[1]
    if "/cold" in m["name"] and 1e9 * max(numbers.get("GB/s", 0), numbers.get("copy_GB/s", 0)) > most_bytes:
        found.append(f"{max(numbers.get('GB/s', 0), numbers.get('copy_GB/s', 0)):.4g} GB/s, where the card has "
                     f"{peaks[0] / 1e9:g}")
    flops = max(numbers.get("tensor_TFLOP/s", 0) * 1e12, numbers.get("flops", 0) / us * 1e6 if us > 0 else 0)
    if flops > most_flops:
        found.append(f"{flops / 1e12:.4g} TFLOP/s, where the card has {peaks[1] / 1e12:g}")
    return found


def problems(record, name):
    """Lines of text; none for a record that can be kept. The name is that of its file."""
    if name not in NAMES:
        return [f"expected a file called {' or '.join(NAMES)}, got {name}"]
    if found := form_problems(record):
        return found
    found = origin_problems(record, name)
    card = record["machine"].get("card", "")
    peaks = next((value for known, value in card_peaks().items() if re.search(rf"\b{known}\b", card)), None)
    for program, measurements in record["benchmarks"].items():
        for m in measurements:
            found += [f"{program}, {m['name']}: {text}"
                      for text in value_problems(m, peaks if name == "gpu.json" else None)]
    if not any(record["benchmarks"].values()) and not record["latency"]:
        found.append("expected measurements, got none")
    return found


def problems_of_file(path):
    try:
        with open(path, encoding="utf-8") as file:
            record = json.load(file)
    except OSError as error:
        return [error.strerror]
    except ValueError as error:
        return [f"expected JSON, got {error}"]
    return problems(record, os.path.basename(path))

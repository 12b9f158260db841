# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a record (tools/records.py) that somebody sends: its form, what it says of itself, and figures that
the card or arithmetic does not permit. Machines that are slow or busy are no reason to refuse one."""

import datetime
import json
import os
import re
import subprocess
import sys

import latency_model
import policies
from plan_counts import case_of, known_card, plan_counts

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CARDS = "include/warprank/plan/cards.hpp"
NAMES = ("host.json", "gpu.json")
# A card of the same name may be a better one: the A100 of 80 GB moves 1.31 times what that of 40 GB does.
BYTES_SLACK, FLOPS_SLACK = 1.4, 1.1
# Of what is predicted for a batch. What was measured takes longer than predicted; a third leaves room for predictions
# that are too high, and refuses slips of the decimal point.
LEAST_SHARE = 1 / 3
TIME_UNITS = ("ns", "us", "ms", "s")
# Differences and what is made of them: below 0 where what is compared was slower.
MAY_BE_NEGATIVE = ("_cost", "_share", "_fraction", "outside_us")

# --- forms: functions of a value and its place in the record, which return what is wrong as lines of text


def kind(what, is_so):
    """The form of single values for which `is_so`."""
    def problems_of(value, place):
        if is_so(value):
            return []
        got = json.dumps(value)
        return [f"{place}: expected {what}, got {got if len(got) < 60 else got[:60] + ' ...'}"]

    return problems_of


def list_of(form, is_list=kind("a list", lambda v: isinstance(v, list))):
    def problems_of(value, place):
        return is_list(value, place) or [line for i, item in enumerate(value) for line in form(item, f"{place}[{i}]")]

    return problems_of


def object_of(needed, form_of_others):
    """Of all `needed`, {name: form}, and of others, whose forms `form_of_others` tells by their names."""
    def problems_of(value, place):
        if found := IS_OBJECT(value, place):
            return found
        found = [f"{place}: expected {name!r} in it, got none" for name in needed if name not in value]
        for name, item in value.items():
            form = needed[name] if name in needed else form_of_others(name)
            found += LINE(name, f"a name in {place}") or form(item, f"{place}.{name}")
        return found

    return problems_of


def is_line(value):
    return isinstance(value, str) and value.isprintable()


def is_text(value):
    return isinstance(value, str) and all(map(is_line, value.split()))


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def is_fact(value):
    """What a program may say of itself."""
    if isinstance(value, dict):
        return is_fact([*value, *value.values()])
    if isinstance(value, list):
        return all(map(is_fact, value))
    return is_line(value) or is_number(value) or isinstance(value, bool)


def is_amount(value):
    return is_line(value) and re.fullmatch(r"\d+(\.\d+)?(e[+-]\d+)?", value) is not None and is_number(float(value))


IS_OBJECT = kind("an object", lambda v: isinstance(v, dict))
ANYTHING = kind("anything", lambda v: True)
LINE = kind("a text of one line", is_line)
TEXT = kind("a text", is_text)
FACT = kind("a text, a finite number, or several of them", is_fact)
NUMBER = kind("a finite number", is_number)
FROM_0 = kind("a finite number of 0 or more", lambda v: is_number(v) and v >= 0)
ABOVE_0 = kind("a finite number above 0", lambda v: is_number(v) and v > 0)
# Those of latencies are texts, NaN where nothing was scored.
AMOUNT = kind("the text of a number of 0 or more", is_amount)
RATE = kind("the text of a number above 0", lambda v: is_amount(v) and float(v) > 0)
COUNT = kind("the text of a whole number", lambda v: is_amount(v) and v.isdigit())
MILLISECONDS = kind("the text of a number of 0 or more, or nan", lambda v: is_amount(v) or v in ("nan", "-nan"))
LATENCIES = ("p50_ms", "p90_ms", "p99_ms", "p99.9_ms", "max_ms")
LATENCY = object_of({"engine": LINE, "contexts": AMOUNT, "items": AMOUNT, "asked": RATE, "served": AMOUNT,
                     **{name: MILLISECONDS for name in LATENCIES}, "per_batch": MILLISECONDS, "refused": COUNT},
                    lambda name: LINE)
OF_MEASUREMENT = {"label": LINE, "error_message": TEXT,
                  "error_occurred": kind("true or false", lambda v: isinstance(v, bool)),
                  "time_unit": kind(f"one of {', '.join(TIME_UNITS)}", lambda v: v in TIME_UNITS)}


def form_of_counter(name):
    if name.startswith("us "):  # of a sweep: times are compared
        return ABOVE_0
    return OF_MEASUREMENT.get(name, NUMBER if name.endswith(MAY_BE_NEGATIVE) else FROM_0)


MEASUREMENTS = list_of(object_of({"name": LINE}, form_of_counter),
                       kind("a list of one or more", lambda v: isinstance(v, list) and len(v) > 0))
STEP = list_of(TEXT, kind("build, step, result, tests and seconds", lambda v: isinstance(v, list) and len(v) == 5))
RECORD = object_of({"machine": object_of({"processor": LINE}, lambda name: LINE),
                    "commit": LINE, "date": LINE, "command": LINE,
                    "contexts": object_of({}, lambda program: object_of({}, lambda name: FACT)),
                    "benchmarks": object_of({}, lambda program: MEASUREMENTS),
                    "latency": list_of(LATENCY), "skipped": list_of(TEXT)},
                   lambda name: {"doubts": list_of(TEXT), "steps": list_of(STEP)}.get(name, ANYTHING))

# --- what records of the right form say


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


def origin_problems(record, name):
    """When, where and of what."""
    found, machine = [], record["machine"]
    if name == "gpu.json" and not all(key in machine for key in ("card", "compute capability", "driver")):
        found.append("machine: expected a card, its compute capability and driver; a run without a GPU is no record")
    elif name == "gpu.json" and not known_card(machine["card"]):
        found.append(f"machine: expected one of the cards of {CARDS} ({', '.join(card_peaks())}), whose peaks figures "
                     f"are held against, got {machine['card']!r}; with a line there, from its data sheet, it would do")
    found += [f"benchmarks: expected {program} in gpu.json, with its card" for program, measurements
              in record["benchmarks"].items() if name != "gpu.json" and is_of_card(program, measurements)]
    capability = machine.get("compute capability", "7.5")
    if not re.fullmatch(r"\d+\.\d", capability) or float(capability) < 7.5:
        found.append(f"machine: expected a compute capability of 7.5 or more, got {capability!r}")
    for text in [record["command"], *machine.values()]:
        if re.search(r"(^|\s)/(home|root|Users|tmp)/|@|\\", text):
            found.append(f"{text!r} names a folder, a user or a host: take it out")
    try:
        if datetime.datetime.fromisoformat(record["date"]).date() > datetime.date.today() + datetime.timedelta(days=1):
            found.append(f"date: {record['date']} is to come")
    except ValueError:
        found.append(f"date: expected one as 2026-11-22 09:30, got {record['date']!r}")
    commit = record["commit"]
    if commit.endswith("-dirty"):
        found.append(f"commit: {commit} had changes that nobody else has")
    elif not re.fullmatch(r"[0-9a-f]{7,40}", commit):
        found.append(f"commit: expected 7 to 40 hexadecimal digits, got {commit!r}")
    elif is_known_commit(commit) is False:
        found.append(f"commit: this repository has no {commit}; git fetch may bring it")
    return found


def is_of_card(program, measurements):
    return program.endswith("_gpu") or program == latency_model.PROTOTYPES or \
        any(m["name"].startswith("policy/") for m in measurements)


def sweep_problems(program, m):
    """Of what constants of the library are made from."""
    if program == latency_model.PROTOTYPES and not m.get("min_us", 0) > 0:
        return ["expected min_us above 0"]
    ways = policies.ways_of(m)
    if program == policies.LINEAR_SWEEP and set(ways) == {policies.LIBRARY}:
        return [f"expected a way beside {policies.LIBRARY}"]
    field = re.match(r"policy/(\w+)/", m["name"])
    if field and not all(way.isdigit() for way in ways):
        return [f"expected whole numbers as ways, got {', '.join(ways)}"]
    if field and field[1] in policies.LIMITS and not re.search(r"/requests:\d+.*/items:\d+", m["name"]):
        return ["expected requests and items in its name"]
    return []


def predicted_us(name, card, counts):
    """What a batch takes at the least, by predictions: that of the greatest size of its model that was counted and is
    not greater; of another model, the least of all."""
    model, requests, items = case_of(name) or ("", 0, 0)
    found = [float(row[card]) for row in counts
             if row["model"] == model and int(row["requests"]) <= requests and int(row["items"]) <= items]
    return max(found, default=min(float(row[card]) for row in counts))


def latency_problems(row):
    return [f"{high} of {row[high]} below {low} of {row[low]}" for low, high in zip(LATENCIES, LATENCIES[1:])
            if float(row[high]) < float(row[low])]


def value_problems(m):
    """Of one measurement, on any machine."""
    found = []
    for low in m:
        high = low.replace("_p50_", "_p99_")
        if high != low and m.get(high, m[low]) < m[low]:
            found.append(f"{high} below {low}")
    us = m.get("min_us", 0)
    if us > 0 and "GB/s" in m and "bytes" in m:
        rate = m["bytes"] / us * 1e-3
        if abs(rate - m["GB/s"]) > 0.01 * max(rate, m["GB/s"]):
            found.append(f"{m['GB/s']:.4g} GB/s, where bytes and min_us make {rate:.4g}")
    return found


def card_problems(m, card, peaks, counts):
    """Of one measurement on a card of the data sheets."""
    found, us = [], m.get("min_us", 0)
    rate = max(m.get("GB/s", 0), m.get("copy_GB/s", 0))
    if "/cold" in m["name"] and 1e9 * rate > BYTES_SLACK * peaks[0]:
        found.append(f"{rate:.4g} GB/s, where the card has {peaks[0] / 1e9:g}")
    flops = max(m.get("tensor_TFLOP/s", 0) * 1e12, m.get("flops", 0) / us * 1e6 if us > 0 else 0)
    if flops > FLOPS_SLACK * peaks[1]:
        found.append(f"{flops / 1e12:.4g} TFLOP/s, where the card has {peaks[1] / 1e12:g}")
    predicted = predicted_us(m["name"], card, counts)
    return found + [f"{key} of {m[key]:.4g}, where {predicted:.4g} is predicted: less than a third of that is an error"
                    for key in m if key.endswith("_p50_us") and m[key] < LEAST_SHARE * predicted]


def problems(record, name):
    """Lines of text; none for a record that can be kept. The name is that of its file."""
    if name not in NAMES:
        return [f"expected a file called {' or '.join(NAMES)}, got {name}"]
    if found := RECORD(record, "record"):
        return found
    found = origin_problems(record, name)
    card = known_card(record["machine"].get("card", "")) if name == "gpu.json" else None
    peaks, counts = card_peaks(), plan_counts()
    for program, measurements in record["benchmarks"].items():
        for m in measurements:
            of_one = sweep_problems(program, m) + value_problems(m)
            of_one += card_problems(m, card, peaks[card], counts) if card else []
            found += [f"{program}, {m['name']}: {text}" for text in of_one]
    for i, row in enumerate(record["latency"]):
        found += [f"latency[{i}]: {text}" for text in latency_problems(row)]
    if not record["benchmarks"] and not record["latency"]:
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

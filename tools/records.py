#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Packs what was measured on a machine into one record: benchmarks/results/<machine>/host.json or gpu.json.

    tools/records.py FOLDER --out host.json --command 'scripts/bench_host.sh' [--skipped FILE]
    tools/records.py FOLDER --out gpu.json --command 'tools/t4/run ...' --simulated tools/t4/cards/t4.card

FOLDER has what the programs wrote: <program>.json of Google Benchmark or in its form (tools/bench_record.py), and
latency_*.csv of examples/embed_in_service. The record has no name of a host or path:

    machine     processor, instruction sets, cores, caches, memory, system, compiler; with a GPU: card, driver, CUDA ...;
                of a card in software (docs/TESTING.md) "simulated", and nothing of the machine that ran it
    commit, date, command
    contexts    {program: what it says about itself, as versions of other engines}
    benchmarks  {program: [{"name": ..., counter: value, ...}]}
    latency     [{column: text}]
    skipped     ["what: why"]
    doubts      ["what: why a figure may be wrong"], of a GPU
    steps       [[build, program, result, tests, seconds]], of scripts/gpu_check.sh
"""

import argparse
import csv
import datetime
import glob
import json
import os
import platform
import re
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# Of what /proc/cpuinfo lists, those that change how fast this library is.
INSTRUCTION_SETS = ("sse4_2", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512_bf16", "avx512_fp16", "amx_bf16",
                    "asimd", "sve", "sve2")
# Of each measurement of Google Benchmark, what says nothing about the machine or the library.
NOISE = {"aggregate_name", "aggregate_unit", "family_index", "per_family_instance_index", "run_name", "run_type",
         "repetitions", "repetition_index", "threads"}
# Of its context, what a record has once for all, or must not have.
COMMON = {"date", "host_name", "executable", "num_cpus", "mhz_per_cpu", "cpu_scaling_enabled", "caches", "processor",
          "commit", "library_build_type", "library_version", "json_schema_version", "aslr_enabled", "gpu",
          "gpu_target", "gpu_driver", "cuda_runtime"}


def output_of(command):
    """What the command prints, or nothing when it cannot be run."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, cwd=ROOT).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def commit():
    """Its first digits, with -dirty where files differ from it. Tags are not looked at: a record names a commit."""
    described = output_of(["git", "describe", "--always", "--dirty", "--exclude", "*"])
    return described or os.environ.get("WARPRANK_COMMIT", "unknown")


def version_numbers(text):
    """[12, 4] of "12.4", to compare; [] of what is none."""
    return [int(number) for number in text.split(".")] if re.fullmatch(r"\d+(\.\d+)*", text) else []


def read_text(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""


def field(text, name):
    found = re.search(rf"^{name}\s*[:=]\s*\"?([^\"\n]*)", text, re.M)
    return found[1].strip() if found else ""


def caches():
    """"L1d 48 KiB, L2 2 MiB, L3 300 MiB", each as one core sees it."""
    found = []
    for folder in sorted(glob.glob("/sys/devices/system/cpu/cpu0/cache/index*")):
        kind = read_text(f"{folder}/type").strip()
        size = re.fullmatch(r"(\d+)K", read_text(f"{folder}/size").strip())
        if size and kind != "Instruction":
            kib = int(size[1])
            text = f"{kib} KiB" if kib < 1024 else f"{kib / 1024:g} MiB"
            found.append(f"L{read_text(f'{folder}/level').strip()}{'d' if kind == 'Data' else ''} {text}")
    return ", ".join(found)


def processor():
    info = read_text("/proc/cpuinfo")
    name = field(info, "model name") or platform.machine()
    family, model = field(info, "cpu family"), field(info, "model")
    return f"{name}, family {family}, model {model}" if family else name


def machine():
    info = read_text("/proc/cpuinfo")
    flags = set((field(info, "flags") or field(info, "Features")).split())
    kib = re.search(r"MemTotal:\s*(\d+)", read_text("/proc/meminfo"))
    packages = {"Highway": "libhwy-dev", "Abseil": "libabsl-dev", "Google Benchmark": "libbenchmark-dev"}
    versions = {name: output_of(["dpkg-query", "-W", "-f=${Version}", package]) for name, package in packages.items()}
    facts = {
        "processor": processor(),
        "cores": str(os.cpu_count()),
        "instruction sets": " ".join(name for name in INSTRUCTION_SETS if name in flags),
        "caches": caches(),
        "memory": f"{int(kib[1]) / 2**20:.0f} GiB" if kib else "",
        "system": field(read_text("/etc/os-release"), "PRETTY_NAME"),
        "compiler": (output_of(["c++", "--version"]).splitlines() or [""])[0],
        "libraries": ", ".join(f"{name} {version}" for name, version in versions.items() if version),
    }
    return {name: value for name, value in facts.items() if value}


def gpu():
    """What nvidia-smi and nvcc say; {} where there is no GPU."""
    names = {"card": "name", "compute capability": "compute_cap", "driver": "driver_version",
             "memory of the card": "memory.total", "power limit": "power.limit"}
    line = (output_of(["nvidia-smi", f"--query-gpu={','.join(names.values())}", "--format=csv,noheader"])
            .splitlines() or [""])[0]
    if not line:
        return {}
    facts = dict(zip(names, (value.strip() for value in line.split(","))))
    return {**facts, "CUDA": nvcc_version()}


def nvcc_version():
    version = re.search(r"release .*?V([\d.]+)", output_of(["nvcc", "--version"]))
    return version[1] if version else "unknown"


def simulated_machine(path):
    """In the place of what was measured on: the card that a file of tools/t4/cards/ describes."""
    capability = int(re.search(r"^capability\s+(\d+)", read_text(path), re.M)[1])
    return {"processor": "none", "card": os.path.splitext(os.path.basename(path))[0].upper(),
            "compute capability": f"{capability // 10}.{capability % 10}", "driver": "none", "CUDA": nvcc_version(),
            "simulated": f"by tools/t4 with {os.path.relpath(os.path.abspath(path), ROOT)}, not measured"}


def clocks():
    what = "clocks.sm,clocks.mem,temperature.gpu,power.draw,clocks_throttle_reasons.active"
    line = output_of(["nvidia-smi", f"--query-gpu={what}", "--format=csv,noheader"])
    return line.splitlines()[0] if line else ""


# Bits of clocks_throttle_reasons.active that make a figure too low; the others say that nobody asked for more.
THROTTLING = {0x4: "power cap", 0x8: "hardware slowdown", 0x20: "software thermal slowdown",
              0x40: "hardware thermal slowdown", 0x80: "power brake"}


def throttling(clocks_line):
    """Names of the reasons in what clocks() gave."""
    found = re.search(r"0x([0-9a-fA-F]+)\s*$", clocks_line)
    bits = int(found[1], 16) if found else 0
    return [name for bit, name in THROTTLING.items() if bits & bit]


def card_state():
    """How the card is set, and who else is on it; with the processor's clock."""
    names = {"ECC": "ecc.mode.current", "power state": "pstate", "persistence": "persistence_mode",
             "compute mode": "compute_mode", "memory in use": "memory.used", "highest clocks": "clocks.max.sm"}
    line = (output_of(["nvidia-smi", f"--query-gpu={','.join(names.values())}", "--format=csv,noheader"])
            .splitlines() or [""])[0]
    facts = dict(zip(names, (value.strip() for value in line.split(",")))) if line.count(",") == len(names) - 1 else {}
    others = [pid for pid in output_of(["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"]).split()
              if pid.isdigit()]
    if others:
        facts["other processes on the card"] = str(len(others))
    mhz = [float(value) for value in re.findall(r"^cpu MHz\s*:\s*([\d.]+)", read_text("/proc/cpuinfo"), re.M)]
    if mhz:
        facts["clocks of the processor"] = f"{min(mhz):.0f} to {max(mhz):.0f} MHz"
    governor = read_text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").strip()
    return {**facts, **({"governor": governor} if governor else {})}


def doubts(record):
    """Why a figure of the record may not be trusted, as lines of text."""
    found = []
    if others := record["machine"].get("other processes on the card"):
        found.append(f"{others} other processes were on the card")
    for name, value in record["machine"].items():
        if name.startswith("clocks ") and throttling(value):
            found.append(f"{name}: the card was slowed down ({', '.join(throttling(value))})")
    for m in record["benchmarks"].get("machine_bench_gpu", []):
        scale = {"ns": 1e-3, "us": 1, "ms": 1e3, "s": 1e6}.get(m.get("time_unit"), 0)
        if "/copy/" in m["name"] and m.get("min_us", 0) > 0 and m.get("real_time", 0) * scale > 1.1 * m["min_us"]:
            found.append(f"{m['name'].split('/iter')[0]}: on average {m['real_time'] * scale / m['min_us']:.2f}x the "
                         "shortest time: something else used the memory")
    for m in record["benchmarks"].get("models_plan_bench_gpu", []):
        if m.get("planned_p99_us", 0) > 3 * m.get("planned_p50_us", float("inf")):
            found.append(f"{m['name'].split('/iter')[0]}: p99 is {m['planned_p99_us'] / m['planned_p50_us']:.1f}x p50")
    return found


def parse(text):
    """A file of Google Benchmark. Of a program that was ended early the last measurement may be cut off."""
    try:
        return json.loads(text)
    except ValueError:
        try:
            return json.loads(text[: text.rindex("}") + 1] + "]}")
        except ValueError:
            return {}


def pack(folder, command, skipped, more_facts=None):
    """The record of what lies in the folder."""
    record = {"machine": {**machine(), **(more_facts or {})}, "commit": commit(),
              "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M"), "command": command,
              "contexts": {}, "benchmarks": {}, "latency": [], "skipped": list(skipped)}
    for path in sorted(glob.glob(f"{folder}/*.json")):
        program, content = os.path.splitext(os.path.basename(path))[0], parse(read_text(path))
        context = {key: value for key, value in content.get("context", {}).items() if key not in COMMON}
        if context:
            record["contexts"][program] = context
        for measurement in content.get("benchmarks", []):
            message = measurement.get("error_message", "")
            if message.startswith("skipped"):
                record["skipped"].append(f"{measurement['name']}: {message[len('skipped: '):]}")
            else:
                record["benchmarks"].setdefault(program, []).append(
                    {key: value for key, value in measurement.items() if key not in NOISE})
    for path in sorted(glob.glob(f"{folder}/latency_*.csv")):
        found = re.search(r"latency_[^_]+_\d+_(\S+)\.csv$", path)  # latency_cuda_2_full-swaps.csv
        variant = {"variant": found[1].replace("-", " ")} if found else {}
        with open(path, newline="", encoding="utf-8") as file:
            record["latency"] += [{**row, **variant} for row in csv.DictReader(file)]
    return record


def dumped(record):
    """JSON with a line for each fact and measurement."""
    def lines(items, depth):
        indent = "\n" + " " * depth
        return indent + f",{indent}".join(items) + indent[:-1] if items else ""

    parts = []
    for key, value in record.items():
        if key == "benchmarks":
            text = "{" + lines([f"{json.dumps(name)}: [" + lines([json.dumps(m) for m in measurements], 3) + "]"
                                for name, measurements in value.items()], 2) + "}"
        elif isinstance(value, dict):
            text = "{" + lines([f"{json.dumps(name)}: {json.dumps(item)}" for name, item in value.items()], 2) + "}"
        elif isinstance(value, list):
            text = "[" + lines([json.dumps(item) for item in value], 2) + "]"
        else:
            text = json.dumps(value)
        parts.append(f"{json.dumps(key)}: {text}")
    return "{" + lines(parts, 1) + "}\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--out", required=True, help="the record")
    parser.add_argument("--command", required=True, help="with which all this is measured again")
    parser.add_argument("--skipped", help="a file with a line for each thing that was not measured, and why")
    parser.add_argument("--simulated", metavar="CARD", help="the file of the card in software that ran the programs")
    options = parser.parse_args()
    skipped = read_text(options.skipped).splitlines() if options.skipped else []
    record = pack(options.folder, options.command, skipped, gpu())
    if options.simulated:
        record["machine"] = simulated_machine(options.simulated)
    with open(options.out, "w", encoding="utf-8") as file:
        file.write(dumped(record))


if __name__ == "__main__":
    main()

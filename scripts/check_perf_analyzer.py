#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Triton's perf_analyzer, as it is, against the server: by gRPC and by HTTP, with values of a file and with values that
it makes up. Fails where a call does, and prints what it measured.

    scripts/check_perf_analyzer.py SERVER FOLDER [--milliseconds N] [--concurrency N...]

FOLDER keeps an environment with tritonclient 2.40, whose perf_analyzer runs on Debian 12; later ones need a newer glibc.
It needs the package libb64-0d, too. Exits with 77, and says why, where these are neither there nor to be installed.
"""

import argparse
import csv
import json
import os
import pathlib
import re
import signal
import struct
import subprocess
import sys
import tempfile
import urllib.request
import venv

ROOT = pathlib.Path(__file__).resolve().parents[1]
SKIPPED = 77
PACKAGES = ["tritonclient[grpc]==2.40.0", "numpy<2", "setuptools<80", "nvidia-cuda-runtime-cu12==12.*"]
FLAT = ROOT / "tests/client/flat/graph.json"


def skip(why):
    print(f"skipped: {why}")
    sys.exit(SKIPPED)


def environment(folder):
    """The folder of its programs."""
    programs = folder / "bin"
    if not (folder / "ready").exists():
        venv.create(folder, with_pip=True, clear=True)
        done = subprocess.run([programs / "python", "-m", "pip", "install", "-q", "--retries", "1", "--timeout", "10",
                               *PACKAGES], capture_output=True, text=True)
        if done.returncode != 0:
            skip(f"{', '.join(PACKAGES)} cannot be installed:\n{done.stderr[-1000:]}")
        (folder / "ready").touch()
    return programs


class Analyzer:
    def __init__(self, programs, milliseconds):
        self.program, self.milliseconds = programs / "perf_analyzer", milliseconds
        libraries = next(programs.parent.glob("lib/python*/site-packages/nvidia/cuda_runtime/lib"))
        self.environment = os.environ | {"LD_LIBRARY_PATH": str(libraries)}
        needs = subprocess.run(["ldd", self.program], capture_output=True, text=True, env=self.environment)
        if missing := re.findall(r"(\S+) => not found", needs.stdout):
            skip(f"perf_analyzer needs {', '.join(missing)}: apt-get install libb64-0d")

    def run(self, server, protocol, concurrency, *options):
        """What it says of one concurrency, and how many calls it counted."""
        with tempfile.NamedTemporaryFile(suffix=".csv") as file:
            done = subprocess.run(
                [self.program, "-m", server.start["model"], "-i", protocol, "-u",
                 f"127.0.0.1:{server.start[protocol + '_port']}", "--concurrency-range", str(concurrency), "-s", "999",
                 "--measurement-interval", str(self.milliseconds), "-f", file.name, *options],
                capture_output=True, text=True, env=self.environment)
            text = done.stdout + done.stderr
            count = re.search(r"Request count: (\d+)", text)
            if done.returncode != 0 or count is None or int(count[1]) == 0 or re.search(r"(?i)fail|error", text):
                sys.exit(f"perf_analyzer, {protocol}, concurrency {concurrency}, {' '.join(map(str, options))}:\n{text}")
            return next(csv.DictReader(file.file.read().decode().splitlines())), int(count[1])


class Server:
    def __init__(self, program, *options):
        self.process = subprocess.Popen([program, "--address", "127.0.0.1:0", "--http-port", "0", *options],
                                        stdout=subprocess.PIPE, text=True)
        self.start = json.loads(self.process.stdout.readline())

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.kill()
        self.process.wait()

    def stop(self, counted):
        """Expects at least so many calls, and none that was not scored."""
        self.process.send_signal(signal.SIGTERM)
        text, _ = self.process.communicate(timeout=60)
        stop = json.loads(text.splitlines()[-1])
        if stop["scored"] < counted or stop["bad_requests"] + stop["refused"] + stop["failed"] > 0:
            sys.exit(f"expected {counted} requests that were scored and no others, got {stop}")


def requests_of_the_model(server, programs, path):
    """Data for --input-data: requests of 100 films."""
    making = """
import json, sys
from rank import made_up
from warprank_client import Layout
layout = Layout(json.load(sys.stdin))
print(json.dumps({"data": [{name: {"content": array.ravel().tolist(), "shape": list(array.shape)}
                            for name, array in made_up(layout, 100, seed).items()} for seed in range(8)]}))
"""
    config = urllib.request.urlopen(f"http://127.0.0.1:{server.start['http_port']}/v2/models/"
                                    f"{server.start['model']}/config").read()
    layout = json.loads(config)["parameters"]["layout"]["string_value"]
    done = subprocess.run([programs / "python", "-c", making], input=layout, capture_output=True, text=True, check=True,
                          env=os.environ | {"PYTHONPATH": str(ROOT / "tools/client")})
    path.write_text(done.stdout)


def write_safetensors(path, tensors):
    """Of floats: name -> (shape, values)."""
    header, data = {}, b""
    for name, (shape, values) in tensors.items():
        begin = len(data)
        data += struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def check_values_of_the_caller(options, server, analyzer, folder):
    """The MovieLens model, with a table of what was measured."""
    data = folder / "requests.json"
    requests_of_the_model(server, options.programs, data)
    counted = 0
    print("| | Concurrency | Calls/s | p50, us | p90, us | p99, us |\n|---|---|---|---|---|---|")
    # Of tensors in JSON it sends one value, whatever the shape, where metadata has a dimension of -1.
    for name, protocol, more in [("gRPC", "grpc", []), ("HTTP", "http", []),
                                 ("HTTP, answers in JSON", "http", ["--output-tensor-format", "json"])]:
        for concurrency in options.concurrency:
            row, count = analyzer.run(server, protocol, concurrency, "--input-data", data, *more)
            counted += count
            print(f"| {name} | {concurrency} | {float(row['Inferences/Second']):.0f} | {row['p50 latency']} | "
                  f"{row['p90 latency']} | {row['p99 latency']} |", flush=True)
    server.stop(counted)


def write_flat_model(folder):
    """Its axes lie in the outermost: no tensor of it is such that others must fit its values."""
    (folder / "graph.json").write_text(FLAT.read_text())
    write_safetensors(folder / "dense.safetensors",
                      {"top.weight": ([1, 7], [0.1] * 7), "top.bias": ([1], [0.5])})
    write_safetensors(folder / "tables.safetensors", {"film": ([10, 4], [0.01 * i for i in range(40)])})


def check_values_made_up(server, analyzer):
    counted = 0
    for protocol in ("grpc", "http"):
        for values in ("zero", "random"):
            _, count = analyzer.run(server, protocol, 4, "--input-data", values, "--shape", "film_id:20", "--shape",
                                    "x:20,2", "--shape", "age:1,1")
            counted += count
    server.stop(counted)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("server", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--milliseconds", type=int, default=500, help="of each of three measurements")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 8])
    options = parser.parse_args()
    options.programs = environment(options.folder.resolve())
    analyzer = Analyzer(options.programs, options.milliseconds)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        with Server(options.server, "--weights", ROOT / "examples/movielens/weights") as server:
            check_values_of_the_caller(options, server, analyzer, folder)
        write_flat_model(folder)
        with Server(options.server, "--model", folder, "--name", "flat") as server:
            check_values_made_up(server, analyzer)


if __name__ == "__main__":
    main()

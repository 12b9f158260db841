#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Processor time that a server takes for a request beside scoring it: gRPC, parsing, the queue, the answer. With one call
at a time and with several in flight; one context and no merging, so that the time of its batches is the time that they
compute. Needs tritonclient[grpc].

    tools/bench_server.py SERVER --out RECORD.json [--items N] [--requests N]
"""

import argparse
import json
import pathlib
import signal
import subprocess
import sys
import threading
import time

from bench_record import Record

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools/client"))


def processor_seconds(pid):
    """Of all threads of a process."""
    tasks = pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat")
    return 1e-9 * sum(int(task.read_text().split()[0]) for task in tasks)


class Caller:
    """Sends calls one after the other, with so many in flight."""

    def __init__(self, client, model, inputs, in_flight):
        self.client, self.model, self.inputs, self.in_flight = client, model, inputs, in_flight
        self.free = threading.Semaphore(in_flight)
        self.errors = []

    def answered(self, result, error):
        if error is not None:
            self.errors.append(error)
        self.free.release()

    def call(self, count):
        """Returns when all are answered."""
        for i in range(count):
            self.free.acquire()
            self.client.async_infer(self.model, self.inputs[i % len(self.inputs)], self.answered)
        for _ in range(self.in_flight):
            self.free.acquire()
        self.free.release(self.in_flight)
        if self.errors:
            raise self.errors[0]


def measure(options, form, in_flight):
    """Seconds of the server's processor time for a request: all, and what its batches computed."""
    import tritonclient.grpc
    from rank import made_up
    from warprank_client import Layout, blob_inputs, named_inputs

    command = [options.server, "--address", "127.0.0.1:0", "--http-port", "-1", "--contexts", "1", "--merge", "1",
               "--record-every", "0", "--weights", str(ROOT / "examples/movielens/weights")]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        model = json.loads(server.stdout.readline())
        client = tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{model['grpc_port']}")
        layout = Layout.of_server(client, model["model"])
        requests = [made_up(layout, options.items, seed) for seed in range(20)]
        inputs = [named_inputs(layout, r) if form == "named" else blob_inputs([layout.pack(r)]) for r in requests]
        caller = Caller(client, model["model"], inputs, in_flight)

        def computed():
            statistics = client.get_inference_statistics(model["model"]).model_stats[0].inference_stats
            return statistics.compute_infer.ns * 1e-9

        caller.call(options.requests // 10)
        begin, computed_before = processor_seconds(server.pid), computed()
        caller.call(options.requests)
        time.sleep(0.05)  # until the last call's end is counted
        return ((processor_seconds(server.pid) - begin) / options.requests,
                (computed() - computed_before) / options.requests)
    finally:
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=60)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("server")
    parser.add_argument("--out", required=True)
    parser.add_argument("--items", type=int, default=100)
    parser.add_argument("--requests", type=int, default=3000)
    options = parser.parse_args()
    record = Record()
    for form, in_flight in ((form, in_flight) for in_flight in (1, 8) for form in ("blob", "named")):
        whole, computed = measure(options, form, in_flight)
        overhead_us = 1e6 * (whole - computed)
        record.add(f"server/{form}/items:{options.items}/in_flight:{in_flight}", whole, compute_us=1e6 * computed,
                   overhead_us=overhead_us)
        print(f"{form}, {in_flight} in flight: {1e6 * whole:.0f} us of processor time for a request, {1e6 * computed:.0f} "
              f"of them computing, {overhead_us:.0f} beside it")
    record.save(options.out)


if __name__ == "__main__":
    main()

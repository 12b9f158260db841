#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Processor time that a server takes for a request beside scoring it: gRPC, parsing, the queue, the answer. One call at a
time, with one context, so that the time of its batches is the time that they compute. Needs tritonclient[grpc].

    tools/bench_server.py SERVER --out RECORD.json [--items N] [--requests N]
"""

import argparse
import json
import pathlib
import signal
import subprocess
import sys
import time

from bench_record import Record

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools/client"))


def processor_seconds(pid):
    """Of all threads of a process."""
    tasks = pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat")
    return 1e-9 * sum(int(task.read_text().split()[0]) for task in tasks)


def measure(options, form):
    """Seconds of the server's processor time for a request: all, and what its batches computed."""
    import tritonclient.grpc
    from rank import made_up
    from warprank_client import Layout, blob_inputs, named_inputs

    command = [options.server, "--address", "127.0.0.1:0", "--http-port", "-1", "--contexts", "1", "--record-every", "0",
               "--weights", str(ROOT / "examples/movielens/weights")]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        model = json.loads(server.stdout.readline())
        client = tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{model['grpc_port']}")
        layout = Layout.of_server(client, model["model"])
        requests = [made_up(layout, options.items, seed) for seed in range(20)]
        inputs = [named_inputs(layout, r) if form == "named" else blob_inputs([layout.pack(r)]) for r in requests]

        def computed():
            statistics = client.get_inference_statistics(model["model"]).model_stats[0].inference_stats
            return statistics.compute_infer.ns * 1e-9

        for i in range(options.requests // 10):
            client.infer(model["model"], inputs[i % len(inputs)])
        begin, computed_before = processor_seconds(server.pid), computed()
        for i in range(options.requests):
            client.infer(model["model"], inputs[i % len(inputs)])
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
    parser.add_argument("--requests", type=int, default=5000)
    options = parser.parse_args()
    record = Record()
    for form in ("blob", "named"):
        whole, computed = measure(options, form)
        overhead_us = 1e6 * (whole - computed)
        record.add(f"server/{form}/items:{options.items}", whole, compute_us=1e6 * computed, overhead_us=overhead_us)
        print(f"{form}: {1e6 * whole:.0f} us of processor time for a request, {1e6 * computed:.0f} of them computing, "
              f"{overhead_us:.0f} beside it")
    record.save(options.out)


if __name__ == "__main__":
    main()

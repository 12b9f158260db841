#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tail of a service's latency while models are exchanged: p99.9 with swaps over p99.9 without, at half of the rate
that it sustains, in pairs.

    tools/bench_swaps.py EMBED_IN_SERVICE --out RECORD.json [--pairs N] [--seconds S] [OPTION OF THE PROGRAM...]
"""

import argparse
import csv
import os
import statistics
import subprocess
import sys
import tempfile

from bench_record import Record

EVERY = "2"  # seconds between two swaps
FILM_ROWS = "2000000"  # 128 MB, so that there is something to load


def serve(options, rates, seconds, *more):
    """The rows that the program writes; SystemExit when a request failed or an answer was mixed."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/latency.csv"
        command = [options.program, "--contexts", str(options.contexts), "--film-rows", FILM_ROWS, "--seconds",
                   str(seconds), "--csv", path, *more, *options.more, "--rates", *map(str, rates)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        print(done.stdout.split("max  per batch  refused\n")[-1], end="", flush=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}: failed")
        with open(path, newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--out", required=True)
    parser.add_argument("--contexts", type=int, default=os.cpu_count())
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=15)
    options, options.more = parser.parse_known_args()

    record = Record()
    saturated = serve(options, [1000 * 4**n for n in range(4)], 1)
    rate = round(max(float(row["served"]) for row in saturated) / 2)
    ratios = []
    for pair in range(options.pairs):
        without, swapped = (serve(options, [rate], options.seconds, "--seed", str(pair + 1), *more)[0]
                            for more in ([], ["--swap-every", EVERY]))
        p999 = [float(row["p99.9_ms"]) for row in (without, swapped)]
        ratios.append(p999[1] / p999[0])
        print(f"pair {pair + 1}: p99.9 {p999[0]:.2f} ms, with swaps {p999[1]:.2f} ms: {ratios[-1]:.2f}", flush=True)
        record.add(f"swaps/pair:{pair + 1}/contexts:{options.contexts}/rate:{rate}", p999[1] / 1e3, p999_ms=p999[0],
                   p999_with_swaps_ms=p999[1], p99_ratio=float(swapped["p99_ms"]) / float(without["p99_ms"]),
                   refused=int(swapped["refused"]))
    record.add(f"swaps/median/contexts:{options.contexts}/rate:{rate}", 0, p999_ratio=statistics.median(ratios))
    record.save(options.out)
    print(f"median of p99.9 with swaps over without: {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tail of a service's latency while models are exchanged: p99.9 of the slots of time that begin with a swap, over
p99.9 of the slots between these, at half of the rate that the service sustains. Both are within one run, so that what
else the machine does meets both; the interval is of 95 % (slots are drawn anew, with replacement).

    tools/bench_swaps.py EMBED_IN_SERVICE --out RECORD.json [--runs N] [--seconds S] [OPTION OF THE PROGRAM...]
"""

import argparse
import csv
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile

from bench_record import Record

SLOT = 2  # seconds
FILM_ROWS = "2000000"  # 128 MB, so that there is something to load
SHARE = 0.999
DRAWS = 2000


def serve(options, rates, seconds, *more):
    """(the figures of each rate, the events), as the program writes them; SystemExit when a request failed or an answer
    was mixed."""
    with tempfile.TemporaryDirectory() as folder:
        paths = f"{folder}/latency.csv", f"{folder}/events.csv"
        command = [options.program, "--contexts", str(options.contexts), "--film-rows", FILM_ROWS, "--seconds",
                   str(seconds), "--csv", paths[0], "--latencies", paths[1], *more, *options.more, "--rates",
                   *map(str, rates)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        print(done.stdout.split("max  per batch  refused\n")[-1], end="", flush=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}: failed")
        return [read(path) for path in paths]


def read(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def slots_of(events, slot, seconds):
    """(slots without a swap, slots with one): lists of ascending milliseconds. ValueError if swaps are not as slots say."""
    count = int(seconds // slot) // 2 * 2
    slots = [[] for _ in range(count)]
    swapped = set()
    for event in events:
        at, ms = float(event["at_s"]), float(event["ms"])
        number = int(at // slot)
        if number >= count or at < 0:
            continue
        if event["event"] == "request":
            slots[number].append(ms)
            continue
        swapped.add(number)
        if number % 2 == 0 or at + ms / 1e3 > (number + 1) * slot:
            raise ValueError(f"expected a swap within a slot of {slot} s with an odd number, got one of {ms:.0f} ms in "
                             f"slot {number}: the machine is too busy, or its slots too short")
    if len(swapped) != count // 2:
        raise ValueError(f"expected {count // 2} swaps, one in each second slot, got {len(swapped)}")
    for latencies in slots:
        latencies.sort()
    return slots[0::2], slots[1::2]


def percentile(slots, share=SHARE):
    """Of the latencies of all slots; no more of each is looked at than can be above it."""
    above = sum(map(len, slots)) - math.ceil(share * sum(map(len, slots)))
    return sorted((ms for slot in slots for ms in slot[-above - 1:]), reverse=True)[above]


def ratio_and_interval(without, swapped, draws=DRAWS, seed=1):
    """(ratio of the percentiles, lower end, upper end)."""
    drawn = random.Random(seed)
    ratios = sorted(percentile(drawn.choices(swapped, k=len(swapped))) / percentile(drawn.choices(without, k=len(without)))
                    for _ in range(draws))
    return (percentile(swapped) / percentile(without), ratios[math.floor(0.025 * draws)],
            ratios[math.ceil(0.975 * draws) - 1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--out", required=True)
    parser.add_argument("--contexts", type=int, default=os.cpu_count())
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=180)
    options, options.more = parser.parse_known_args()

    record = Record()
    saturated, _ = serve(options, [1000 * 4**n for n in range(4)], 1)
    rate = round(max(float(row["served"]) for row in saturated) / 2)
    lowers = []
    for run in range(options.runs):
        (figures,), events = serve(options, [rate], options.seconds, "--seed", str(run + 1), "--swap-slots", str(SLOT))
        try:
            without, swapped = slots_of(events, SLOT, options.seconds)
        except ValueError as error:
            sys.exit(str(error))
        ratio, lower, upper = ratio_and_interval(without, swapped)
        lowers.append(lower)
        p999 = percentile(without), percentile(swapped)
        print(f"run {run + 1}: p99.9 {p999[0]:.2f} ms, with swaps {p999[1]:.2f} ms: {ratio:.2f} "
              f"({lower:.2f} to {upper:.2f})", flush=True)
        record.add(f"swaps/run:{run + 1}/contexts:{options.contexts}/rate:{rate}", p999[1] / 1e3, p999_ms=p999[0],
                   p999_with_swaps_ms=p999[1], p999_ratio=ratio, p999_ratio_lower=lower, p999_ratio_upper=upper,
                   p99_ratio=percentile(swapped, 0.99) / percentile(without, 0.99), refused=int(figures["refused"]))
    record.add(f"swaps/median/contexts:{options.contexts}/rate:{rate}", 0, p999_ratio_lower=statistics.median(lowers))
    record.save(options.out)


if __name__ == "__main__":
    main()

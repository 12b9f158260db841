#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the counters that benchmarks measured against the ratios that the library promises.

    scripts/check_ratios.py FOLDER      with the JSON files that scripts/bench_host.sh writes
"""

import argparse
import json
import os
import re
import sys

# What is promised, the benchmarks it is about, their counter, the bound, and the factor from counter to shown value.
AT_LEAST, AT_MOST = ">=", "<="
PROMISES = [
    ("linear layers, of the FMA peak (%)", "ops_linear_bench",
     r"mlp/(600_256_256_256_1|1024_1024_512_256_1)/rows:(50|100|200|500)/", "fma_peak_fraction", AT_LEAST, 85),
    ("a bias per request, over a plain bias (%)", "ops_linear_bench",
     r"row_bias/requests:(1|5|50)/items:100/", "row_bias_cost", AT_MOST, 5),
    ("embedding bags, of the random-line limit", "ops_embedding_bag_bench",
     r"embedding_bag/", "random_line_fraction", AT_LEAST, 0.85),
    ("hash-table look-ups, over absl::flat_hash_map", "ops_hash_table_bench",
     r"hash_table/find/hit_percent:100/", "absl_ratio", AT_LEAST, 1.1),
    ("hash tables built, million rows per second and core", "ops_hash_table_bench",
     r"hash_table/build/", "million_rows_per_second", AT_LEAST, 3),
    ("DIN folded, over the concatenation", "ops_din_attention_bench",
     r"din_attention/relu/events:100/dim:64/items:100/", "folded_speedup", AT_LEAST, 2.3),
    ("a user-heavy model, planned over as written", "models_plan_bench",
     r"user_heavy/requests:1/items:500/", "planned_speedup", AT_LEAST, 3),
]


def measurements(folder, bench):
    with open(os.path.join(folder, bench + ".json"), encoding="utf-8") as file:
        return json.load(file)["benchmarks"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    folder = parser.parse_args().folder

    failed = 0
    print(f"{'measured':>10}  {'target':>8}")
    for promise, bench, pattern, counter, relation, target in PROMISES:
        print(promise)
        found = [m for m in measurements(folder, bench) if re.match(pattern, m["name"])]
        if not found:
            failed += 1
            print(f"{'nothing':>10}  {relation} {target:<5}  FAILED: no benchmark matches {pattern}")
        for measurement in found:
            if measurement.get("error_occurred") and "skipped" in measurement["error_message"]:
                print(f"{'':>10}  {relation} {target:<5}  {measurement['error_message']}")
                continue
            value = measurement[counter]
            good = value >= target if relation == AT_LEAST else value <= target
            failed += not good
            name = re.sub(r"/(iterations|manual_time).*", "", measurement["name"])
            print(f"{value:10.3g}  {relation} {target:<5}  {'ok' if good else 'FAILED'}  {name}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the counters that benchmarks measured against the ratios that the library promises.

    scripts/check_ratios.py RECORD      host.json of scripts/bench_host.sh
"""

import argparse
import json
import re
import sys

# What is promised, the benchmarks it is about, their counter, the bound, and the instruction set that it needs, if any.
AT_LEAST, AT_MOST = ">=", "<="
PROMISES = [
    ("linear layers, of the FMA peak (%)", "ops_linear_bench",
     r"mlp/(600_256_256_256_1|1024_1024_512_256_1)/rows:(50|100|200|500)/", "fma_peak_fraction", AT_LEAST, 85),
    ("a bias per request, over a plain bias (%)", "ops_linear_bench",
     r"row_bias/requests:(1|5|50)/items:100/", "row_bias_cost", AT_MOST, 5),
    ("linear layers in BF16, over FP32", "ops_linear_bench",
     r"bf16/(608_256|256_256|1024_1024|3456_512)/rows:100/", "bf16_speedup", AT_LEAST, 1.8, "avx512_bf16"),
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
    ("later pages of a user-heavy model, over whole requests", "models_pages_bench",
     r"user_heavy/items:(5|20)/", "later_speedup", AT_LEAST, 2),
    ("four pages about a user, over whole requests", "models_pages_bench",
     r"(user_heavy|wide_deep|din_mmoe|meituan_like)/", "pages_speedup", AT_LEAST, 0.97),
    ("requests as blobs, over named tensors, until they can be scored", "server_requests_bench",
     r"requests/", "named_ratio", AT_LEAST, 5),
    ("a tenth of the rows of a store in memory, over all of them", "tiers_stores_bench",
     r"stores/default_row_now_fetch_later/", "in_memory_ratio", AT_LEAST, 0.8),
    ("p99 of rows in memory while the store is away, over p99 while it is well", "tiers_stores_bench",
     r"stores/rows_in_memory/", "away_p99_ratio", AT_MOST, 1.2),
    ("a large model's batch on two threads, over one", "models_threads_bench",
     r"(meituan_like|dcn_v2)/.*/threads_of_a_batch:2", "threads_ratio", AT_MOST, 0.6),
    ("a small model's batch on two threads, over one", "models_threads_bench",
     r"wide_deep/.*/threads_of_a_batch:2", "threads_ratio", AT_MOST, 1),
    ("one batch on two threads, over the better of onnxruntime and OpenVINO", "engines", r"host_engines/.*/threads:2",
     "latency_ratio", AT_LEAST, 1),
    ("models, over the better of onnxruntime and OpenVINO", "engines", r"host_engines/", "ratio_to_best", AT_LEAST, 1),
    ("the same of each engine in its fastest precision", "engines", r"host_engines/", "ratio_in_any_precision", AT_LEAST,
     1),
    ("user-heavy models, over these on the model as written", "engines",
     r"host_engines/(meituan_like|user_heavy)/", "ratio_to_naive", AT_LEAST, 2),
    ("p99.9 while models are exchanged, over p99.9 without: the lower end of the interval", "swaps", r"swaps/median/",
     "p999_ratio_lower", AT_MOST, 1.2),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("record")
    with open(parser.parse_args().record, encoding="utf-8") as file:
        record = json.load(file)

    wrong = [m for measurements in record["benchmarks"].values() for m in measurements if m.get("error_occurred")]
    for measurement in wrong:
        print(f"FAILED: {measurement['name']}: {measurement.get('error_message')}")
    failed = len(wrong)
    print(f"{'measured':>10}  {'target':>8}")
    for promise, bench, pattern, counter, relation, target, *needed in PROMISES:
        print(promise)
        if not set(needed) <= set(record["machine"]["instruction sets"].split()):
            print(f"{'nothing':>10}  {relation} {target:<5}  skipped: the processor has no {needed[0]}")
            continue
        found = [m for m in record["benchmarks"].get(bench, []) if re.match(pattern, m["name"])]
        skipped = [line for line in record["skipped"] if line.startswith((f"{bench}:", pattern.split("/")[0]))]
        if found and skipped:
            print(f"{'':>10}  in part: {skipped[0]}")
        if not found:
            failed += not skipped
            why = skipped[0] if skipped else "FAILED: it was not measured"
            print(f"{'nothing':>10}  {relation} {target:<5}  {why}")
        for measurement in found:
            if counter not in measurement:
                failed += 1
                print(f"{'nothing':>10}  {relation} {target:<5}  FAILED: {measurement.get('error_message', counter)}")
                continue
            value = measurement[counter]
            good = value >= target if relation == AT_LEAST else value <= target
            failed += not good
            name = re.sub(r"/(iterations|manual_time).*", "", measurement["name"])
            print(f"{value:10.3g}  {relation} {target:<5}  {'ok' if good else 'FAILED'}  {name}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

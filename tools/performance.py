#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes docs/PERFORMANCE.md, its pictures in docs/performance/, the figures in README.md, and the constants that kernels
are chosen by (tools/policies.py), from the records in benchmarks/results/<machine>/ (tools/records.py) and from
tests/counts.json.

    tools/performance.py                     writes them
    tools/performance.py --check             fails when one is not what the records say
    tools/performance.py --add MACHINE FILE  puts a record, host.json or gpu.json, among them first, unless something is
                                             wrong with it (tools/record_check.py)
    tools/performance.py --report FILE       writes report.md and its pictures beside one record, and nothing else
"""

import argparse
import glob
import html
import json
import os
import re
import shutil
import statistics
import sys

import latency_model
import plot_latency
import plot_roofline
import plot_speedups
import policies
import record_check
from plan_counts import cards_of, case_of, known_card, plan_counts

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RESULTS = f"{ROOT}/benchmarks/results"
DOCUMENT = "docs/PERFORMANCE.md"
PICTURES = "docs/performance"
README_BEGIN, README_END = "<!-- figures: tools/performance.py -->\n", "<!-- end of figures -->\n"

# The figures of README.md: what, program, names of its benchmarks, counter, how a value is shown, against what. The
# newest record that has such a benchmark is taken.
FIGURES = [
    ("Linear layers, 50-500 rows", "ops_linear_bench", r"mlp/.*/rows:(50|100|200|500)/", "fma_peak_fraction",
     "{:.0f} %", "the FMA peak of the same run"),
    ("Linear layers in BF16, 100 rows", "ops_linear_bench", r"bf16/.*/rows:100/", "bf16_speedup", "{:.1f}x",
     "the same layers in FP32"),
    ("A bias per request in place of one bias", "ops_linear_bench", r"row_bias/", "row_bias_cost", "{:.1f} % slower",
     "the same layers, 1-50 requests"),
    ("Embedding bags, 80 FP16 tables, 4 GB", "ops_embedding_bag_bench", r"embedding_bag/", "random_line_fraction",
     "{:.2f}x", "random cache lines read as fast as possible"),
    ("Hash-table look-ups, 10 M keys, 64-byte rows", "ops_hash_table_bench", r"hash_table/find/hit_percent:100/",
     "absl_ratio", "{:.2f}x", "`absl::flat_hash_map` with its prefetch"),
    ("the same with half of the ids unknown", "ops_hash_table_bench", r"hash_table/find/hit_percent:50/", "absl_ratio",
     "{:.2f}x", "the same"),
    ("DIN attention, folded (100 events, 64 columns, 100 items)", "ops_din_attention_bench",
     r"din_attention/\w+/events:100/dim:64/items:100/", "folded_speedup", "{:.1f}x",
     "our own layers on the concatenation"),
    ("A user-heavy model (1,200 + 200 columns, 500 items)", "models_plan_bench", r"user_heavy/requests:1/", "planned_speedup",
     "{:.1f}x", "the same model as written"),
    ("wide_deep, 100 items (600 columns, 3 x 256)", "models_plan_bench", r"wide_deep/requests:1/", "planned_ms",
     "{:.2f} ms", ""),
    ("meituan_like, 200 items (about 26 MFLOP per item unfused)", "models_plan_bench", r"meituan_like/requests:1/", "planned_ms",
     "{:.1f} ms", ""),
    ("meituan_like", "models_plan_bench", r"meituan_like/requests:1/", "planned_speedup", "{:.1f}x", "the same model as written"),
    ("meituan_like and user_heavy, one thread", "engines", r"host_engines/(meituan_like|user_heavy)/.*threads:1",
     "ratio_to_naive", "{:.1f}x", "the better of onnxruntime and OpenVINO on the model as written"),
    ("All reference models, one thread", "engines", r"host_engines/.*threads:1", "ratio_to_best", "{:.1f}x",
     "the better of the two on its best form, de-duplicated by hand too"),
    ("the same on two threads", "engines", r"host_engines/.*threads:2", "ratio_to_best", "{:.1f}x", "the same"),
    ("One batch on two threads, models of 0.5 to 265 ms", "models_threads_bench", r".*threads_of_a_batch:2", "threads_ratio",
     "{:.2f} of the time", "the same batch on one"),
    ("All reference models, one thread, in BF16", "engines", r"host_engines/.*threads:1", "ratio_in_any_precision",
     "{:.1f}x", "the better of the two in the precision that is its fastest"),
    ("On a GPU: wide_deep, 1 request of 100 items", "models_plan_bench_gpu", r"plan/wide_deep/requests:1/",
     "planned_p50_us", "{:.0f} us", ""),
    ("All reference models, 1 request", "torch", r"torch/\w+/requests:1/", "ratio_to_best", "{:.2f}x",
     "PyTorch's best form: eager in a CUDA graph, de-duplicated and merged by hand"),
    ("MLPs, 50-500 rows, caches cold", "ops_mlp_bench_gpu", r"mlp/.*/rows:(50|100|500)/cold", "x_cublaslt", "{:.2f}x",
     "cuBLASLt's chain in a graph"),
    ("Linear layers, 50-500 rows, caches cold", "ops_linear_bench_gpu", r"linear/.*/rows:(50|100|500)/cold",
     "x_cublaslt", "{:.2f}x", "cuBLASLt"),
    ("Embedding bags, FBGEMM's nbit_device, caches cold", "ops_embedding_bag_bench_gpu",
     r"embedding_bag/nbit_device/.*/cold", "copy_fraction", "{:.2f}x", "a copy of as many bytes"),
]

# Published for whole models on servers, in microseconds (HugeCTR HPS with TensorRT in FP16, compute with look-ups).
PUBLISHED = [("T4", "dlrm", {256: 703, 1024: 1112, 4096: 3600}), ("T4", "dcn_v2", {256: 1222, 1024: 2097, 4096: 8106}),
             ("A100", "dlrm", {256: 351, 1024: 456, 4096: 1028}), ("A100", "dcn_v2", {256: 501, 1024: 667, 4096: 1708})]

UNITS = {"bytes", "requested_bytes", "flops"}  # counters that are large numbers
NOT_SHOWN = {"name", "iterations", "real_time", "cpu_time", "time_unit", "error_occurred", "error_message"}


def read_text(path):
    with open(f"{ROOT}/{path}", encoding="utf-8") as file:
        return file.read()


def read_record(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def name_of_record(path):
    """machine/kind, which is the end of its path."""
    machine, file = os.path.abspath(path).split(os.sep)[-2:]
    return f"{machine}/{os.path.splitext(file)[0]}"


def read_records(added=None):
    """[(machine/kind, record)], the newest first, as if those of `added`, {machine/kind: record}, were there already."""
    records = {name_of_record(path): read_record(path) for path in glob.glob(f"{RESULTS}/*/*.json")}
    records.update(added or {})
    return sorted(sorted(records.items()), key=lambda item: item[1]["date"], reverse=True)


def apart(records):
    """Those that were measured, and those of cards in software."""
    return ([item for item in records if not policies.is_simulated(item[1])],
            [item for item in records if policies.is_simulated(item[1])])


def short(name):
    return re.sub(r"/(iterations|manual_time|real_time|process_time|min_time|repeats).*", "", name)


def shown(counter, value):
    if not isinstance(value, (int, float)):
        return str(value)
    if counter in UNITS or abs(value) >= 1e6:
        for unit, factor in (("G", 1e9), ("M", 1e6), ("K", 1e3)):
            if abs(value) >= factor:
                return f"{value / factor:.3g} {unit}"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def table(rows):
    """The first row is the head."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]]) + "\n"


def benchmark_tables(record):
    """A table for neighbours that have the same counters, or the first of these, with all; of a sweep what was best."""
    for program, measurements in record["benchmarks"].items():
        if program == policies.LINEAR_SWEEP:
            yield table(policies.linear_sweep_table(record, read_text(policies.TILING)))
            continue
        if program.startswith("policies_"):
            yield table(policies.policy_table(program, measurements, read_text(policies.FIELDS)))
            continue
        if program.startswith("sweeps_"):
            yield table(policies.sweep_table(program, measurements))
            continue
        tables = []
        for m in measurements:
            counters = [key for key in m if key not in NOT_SHOWN]
            if not tables or tables[-1][0][:len(counters) or None] != counters:
                tables.append((counters, []))
            tables[-1][1].append([re.sub("^host_engines/", "", short(m["name"])),
                                  *(shown(counter, m[counter]) for counter in counters)])
            if m.get("error_occurred"):
                tables[-1][1][-1].append("failed: " + m.get("error_message", ""))
        for counters, rows in tables:
            head = [f"`{program}`", *(counter.replace("_", " ") for counter in counters)]
            width = max(len(head), *(len(row) for row in rows))
            yield table([row + [""] * (width - len(row)) for row in [head, *rows]])


def latency_table(record):
    columns = ["engine", "contexts", "items", "asked", "served", "p50_ms", "p90_ms", "p99_ms", "p99.9_ms", "max_ms",
               "per_batch", "refused"]
    columns[1:1] = ["variant"] if any("variant" in row for row in record["latency"]) else []
    return table([[column.replace("_", " ") for column in columns],
                  *([row.get(c, "") if c in ("engine", "variant") else shown("", float(row[c])) for c in columns]
                    for row in record["latency"])])


def pictures_of(record):
    """{what: (title, SVG)}"""
    found = {}
    if roofline := plot_roofline.draw(record):
        found["roofline"] = ("Roofline", roofline)
    if speedups := plot_speedups.draw(record):
        found["speedups"] = ("Speed over baselines", speedups)
    series = {}
    for row in record["latency"]:
        label = f"{row['engine']}, {row['contexts']} contexts, {row['items']} items"
        series.setdefault(f"{label}, {row['variant']}" if "variant" in row else label, []).append(row)
    if series:
        points = [(label, plot_latency.points_of(label, rows)) for label, rows in series.items()]
        found["latency"] = ("Latency under load", plot_latency.draw(points))
    return found


def facts_of(record):
    context = [(f"`{program}`: {name}", value) for program, of_program in record["contexts"].items()
               for name, value in of_program.items() if name != "load_avg"]
    text = [(name, ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else str(value))
            for name, value in [*record["machine"].items(), *context]]
    return table([["", ""], *([name, value.replace("|", "/")] for name, value in text), ["commit", record["commit"]],
                  ["date", record["date"]],
                  ["simulated by" if policies.is_simulated(record) else "measured by", f"`{record['command']}`"]])


def record_text(record, prefix):
    """Everything about a record; its pictures are called <prefix><what>.svg."""
    parts = [facts_of(record)]
    if record.get("doubts"):
        lines = [f"- {html.escape(line, quote=False)}\n" for line in record["doubts"]]
        parts.append("Not to be trusted without a second look:\n\n" + "".join(lines))
    pictures = pictures_of(record)
    parts += [f"![{title}]({prefix}{what}.svg)\n" for what, (title, _) in pictures.items()]
    if record["latency"]:
        parts += ["Latency of `examples/embed_in_service`, the MovieLens model behind a queue, in milliseconds from the\n"
                  "moment a request was due; requests arrive by a Poisson process that waits for nobody:\n",
                  latency_table(record)]
    parts += benchmark_tables(record)
    if record["skipped"]:
        lines = [f"- {html.escape(line, quote=False)}\n" for line in record["skipped"]]
        parts.append("Not measured:\n\n" + "".join(lines))
    return "\n".join(parts)


# --- predictions

def measured_on_cards(records):
    """[(card, model, requests, items, microseconds)] of the benchmarks of whole models; items of all requests."""
    for record in records:
        card = known_card(record["machine"].get("card", ""))
        for m in record["benchmarks"].get("models_plan_bench_gpu", []) if card else ():
            case = case_of(m["name"])
            if case and "planned_p50_us" in m:
                yield card, *map(str, case), m["planned_p50_us"]


def error_text(records):
    """Predictions beside what was measured on their cards, of each case the newest; empty where nothing was."""
    predicted = {(row["model"], row["requests"], row["items"]): row for row in plan_counts()}
    rows, seen = [], set()
    for card, *case, us in measured_on_cards(records):
        row = predicted.get(tuple(case))
        if row is None or (card, *case) in seen:
            continue
        seen.add((card, *case))
        bound = float(row[card])
        rows.append([card, *case, row[card], f"{us:.1f}", f"{us / bound:.2f}", f"{us - bound:.1f}",
                     f"{float(row['T4']) + us - bound:.0f}"])
    head = ["card", "model", "requests", "items", "predicted us", "measured us", "measured / predicted", "beyond us",
            "T4, corrected us"]
    return """The error of predictions where a card was measured. The prediction is made from today's counts, the measurement is of
its record's commit. What a batch takes beyond the prediction is waiting, launches and loads that depend on one another;
no T4 was measured, and the last column is its prediction with as much beyond it, for it is not quicker at these:

""" + table([head, *rows]) if rows else ""


def short_launches_text(records):
    """What launches of few rows take, by the executor's counts; empty where no prototypes were measured."""
    measurements = next((record["benchmarks"][latency_model.PROTOTYPES] for record in records
                         if latency_model.PROTOTYPES in record["benchmarks"]), None)
    if measurements is None:
        return ""
    with open(f"{ROOT}/tests/counts.json", encoding="utf-8") as file:
        counts = json.load(file)
    model = latency_model.LatencyModel(measurements, counts)
    checked = [["measured", "operations", "rounds of loads", "us", "predicted us", "error", ""]]
    for i, (name, row, us) in enumerate(model.cases):
        predicted = model.predicted(row)
        checked.append([name, row[latency_model.OPERATIONS], row[latency_model.ROUNDS], f"{us:.2f}", f"{predicted:.2f}",
                        f"{100 * (predicted / us - 1):+.0f} %", "checked" if i % 2 else "fitted"])
    all_rows = [["counted", "operations", "rounds of loads", "predicted us"]]
    for test, rows in sorted(latency_model.counted_rows(counts).items()):
        for row in rows:
            what = ", ".join([test.split(".")[0], *latency_model.cells_of(row)])
            all_rows.append([what, row[latency_model.OPERATIONS], row[latency_model.ROUNDS], f"{model.predicted(row):.1f}"])
    errors = model.errors()
    return f"""What a launch takes that has little to do is predicted from what the executor counts of its busiest warp
(`tests/counts.json`), for an H100 and caches warm:

    us = {model.begin:.2f} + {latency_model.TRIP} x rounds of loads that wait for one another + {model.operation:.4f} x operations

A load was measured alone. The other constants are fitted to every other one of these prototypes of the kernels, in the
order of their times; the rest is {100 * sum(errors) / len(errors):.0f} % off on average, {100 * max(errors):.0f} % at most. A prototype and the kernel that came of it
differ, and what is counted is one warp's work, not what its neighbours want of memory:

""" + table(checked) + """
All that is counted, as the kernels are now:

""" + table(all_rows)


def simulated_text(records):
    """What tests/cycles.json, tests/t4_model.json, tests/t4_prototypes.json and simulated records say."""
    with open(f"{ROOT}/tests/cycles.json", encoding="utf-8") as file:
        kept = json.load(file)
    gigahertz, launch_us = 1.59, 0.95  # tools/t4/cards/t4.card
    rows = [["batch", "launches", "cycles", "us", "us with launches", "the longest, in cycles"]]
    for case, launches in kept["cycles"].items():
        cycles = sum(launch[1] for launch in launches)
        us = cycles / gigahertz * 1e-3
        longest = sorted(launches, key=lambda launch: -launch[1])[:3]
        rows.append([case, str(len(launches)), f"{cycles:,.0f}", f"{us:.1f}", f"{us + launch_us * len(launches):.1f}",
                     ", ".join(f"{re.sub('<.*', '', name).split('::')[-1]} {one:,.0f}" for name, one in longest)])
    of_records = "".join(f"\n### {name}\n\n{record_text(record, picture_prefix(name))}" for name, record in records)
    return f"""## Simulated, not measured

No figure of this section is a measurement of a T4. The machine code that nvcc {kept["nvcc"]} makes of the reference models
for one was executed by the model of one in `tools/t4/` (docs/TESTING.md): requests x items, a batch that was scored before,
so that the L2 has what it keeps; one launch after the other, with {launch_us} us for each in the last but one column, and
without copies. No T4 has been compared with it. `tests/cycles.json` has every launch.

{table(rows)}
{simulated_prototypes_text()}
{simulated_record_text()}{of_records}"""


def simulated_prototypes_text():
    path = f"{ROOT}/tests/t4_prototypes.json"
    if not os.path.exists(path):
        return ""
    with open(path, encoding="utf-8") as file:
        pairs = json.load(file)
    return """The library's kernels beside prototypes of them that were measured on an H100, both as code for a T4, in simulated cycles
(`scripts/compare_prototypes.py`; the prototypes are not in this repository):

""" + table([["kernel", "library", "measured prototypes", "library / prototype"],
             *([case, f"{library:,}", f"{prototype:,}", f"{library / prototype:.2f}"]
               for case, library, prototype in pairs)])


def simulated_record_text():
    with open(f"{ROOT}/tests/t4_model.json", encoding="utf-8") as file:
        cases = json.load(file)
    said = []
    for record in dict.fromkeys(case["record"] for case in cases):
        own = [case for case in cases if case["record"] == record]
        checked = [abs(case["error"]) for case in own if not case["fitted"]]
        named = [case for case in own if case["named"]]
        worst = max((case["error"] for case in named), key=abs)
        said.append(f"""- [{record}/gpu](#{record}gpu): {len(own)} cases, the median error is {statistics.median(abs(case["error"]) for case in own):.1f} %, and
  {statistics.median(checked):.1f} % of the {len(checked)} to which nothing was fitted; of {len(named)} of serving size the worst is {worst:+.0f} %""")
    return """How far off the model is where it can be known: with the parameters of an H100 and of an H200 (`tools/t4/cards/`) beside
records of such cards. The code is what they ran, for sm_90, of the record's commit. Up to 16 requests or 1,000 rows, the
cache warm, one call behind another, with the launch:

""" + "\n".join(said) + """

Of the newer record those ops are compared whose kernels are others than in the older one. Kernels of more blocks than
multiprocessors that have few instructions for each come out too quick, by up to 40 %. `scripts/check_t4_model.py` makes it
anew.

""" + table([["record", "case", "simulated us", "measured us", "error", ""],
             *([case["record"], case["case"], f'{case["simulated_us"]:.2f}', f'{case["measured_us"]:.2f}',
                f'{case["error"]:+.0f} %', ", ".join(word for word in ("fitted", "named") if case[word])]
               for case in cases)]) + """
`named`: of serving size; `fitted`: `fetch_jump_cycles` was fitted to some of them, `l0_kept_launches` to all.
"""


def prediction_text(records):
    counts = plan_counts()
    cards = cards_of(counts)
    by_size = {(row["model"], row["requests"], row["items"]): row for row in counts}
    parts = ["""## Predicted, not measured

No table of this section is a measurement. It is what `plan.describe(card)` says: what a plan's bytes and floating-point
operations in FP16 take of what memory and tensor cores of the card are known to sustain, and what the copy in, the
graph's start, kernels, trips to memory and instructions of a lone warp took on an H100 (`include/warprank/plan/cards.hpp`,
`latency.hpp`). For any size: `examples/show_plan`.
""", "Microseconds, predicted:\n",
             table([["model", "requests", "items", "launches", "as written", "FLOPs", "bytes", "arena bytes", *cards],
                    *([row["model"], row["requests"], row["items"], row["launches"], row["launches as written"],
                       shown("flops", float(row["FLOPs"])), shown("bytes", float(row["bytes"])),
                       shown("bytes", float(row["arena bytes"])), *(row[card] for card in cards)] for row in counts)])]
    parts.append(error_text(records) or
                 "How far off they are is not known yet: there is no record of a card.\n")
    parts.append(short_launches_text(records))
    rows = [["card", "model", "batch", "predicted us", "published us", "published / predicted"]]
    for card, model, times in PUBLISHED:
        for batch, published in times.items():
            predicted = float(by_size[model, "1", str(batch)][card])
            rows.append([card, model, str(batch), f"{predicted:.0f}", str(published), f"{published / predicted:.1f}"])
    dlrm, dcn_v2 = (f"{float(by_size[model, '1', '4096']['FLOPs']) / 4096e6:.1f}" for model in ("dlrm", "dcn_v2"))
    parts += [f"""What others published for DLRM and DCN-v2 beside the prediction for our plans: HugeCTR's parameter server with TensorRT
in FP16, compute on the server with look-ups. Their models have these names and may differ in their shapes; ours take
{dlrm} and {dcn_v2} MFLOP for a sample. Theirs is a whole server, so it should be the larger one. A ratio near 1 at large batches says that the limits are those of the card, a large one at small batches
that most of the time was not arithmetic:
""", table(rows)]
    return "\n".join(parts)


# --- documents

# What a processor needs so that a counter says anything, by its record.
NEEDED = dict.fromkeys(("bf16_speedup", "ratio_in_any_precision"), "avx512_bf16")


def figures_text(records):
    """The table of README.md: each row says which record it is from."""
    rows, letters = [["What", "Measured", "Against", "Record"]], {}
    for what, program, pattern, counter, form, against in FIGURES:
        for name, record in records:
            if NEEDED.get(counter, "") not in record["machine"].get("instruction sets", ""):
                continue
            values = [m[counter] for m in record["benchmarks"].get(program, [])
                      if re.match(pattern, m["name"]) and counter in m]
            if values:
                letter = letters.setdefault(name, chr(ord("A") + len(letters)))
                low, high = form.format(min(values)), form.format(max(values))
                measured = low if low == high else f"{re.match(r'[-0-9.]+', low)[0]} to {high}"
                rows.append([what, measured, against, letter])
                break
    by_name = dict(records)
    legend = [f"- {letter}: [{name}](benchmarks/results/{name}.json), "
              f"{by_name[name]['machine'].get('card', by_name[name]['machine']['processor'])}, commit "
              f"{by_name[name]['commit']}, {by_name[name]['date']}\n" for name, letter in letters.items()]
    return ("One thread and FP32 where nothing else is said, on a GPU one batch in FP16; ratios within one\n"
            "run, above 1 where ours is faster.\n"
            f"[{DOCUMENT}]({DOCUMENT}) has all measurements, and how to repeat them.\n\n" + table(rows) + "\n" +
            "".join(legend))


def picture_prefix(name):
    """Of a record's pictures, as the document names them."""
    return f"performance/{name.replace('/', '_')}_"


def document_text(records):
    measured, simulated = apart(records)
    parts = ["""# Performance

<!-- Made by tools/performance.py from benchmarks/results/ and tests/*.json: edit those. -->

What was measured, where, with which command and at which commit, and what is only simulated or predicted. Every record is a file in
`benchmarks/results/`; counters are named as the benchmarks name them. Ratios are taken within one run: what is compared
runs in turns, and minima count; of embedding bags, medians of turns. To measure a machine of your own:

```sh
scripts/bench_host.sh
scripts/gpu_check.sh build/gpu_report
```

"""]
    parts += [f"- [{name}](#{re.sub(r'[^a-z0-9-]', '', name.lower())}): "
              f"{record['machine'].get('card', record['machine']['processor'])}, commit {record['commit']}"
              f"{', simulated' if policies.is_simulated(record) else ''}\n" for name, record in records]
    if not any("card" in record["machine"] for _, record in measured):
        parts.append("\nNo GPU has been measured yet.\n")
    for name, record in measured:
        parts.append(f"\n## {name}\n\n" + record_text(record, picture_prefix(name)))
    parts.append("\n" + simulated_text(simulated))
    parts.append("\n" + prediction_text([record for _, record in measured]))
    return "".join(parts)


def outputs(records):
    """{path: text} of everything that is made."""
    readme = read_text("README.md")
    if readme.count(README_BEGIN) != 1 or readme.count(README_END) != 1:
        sys.exit(f"README.md: expected one line {README_BEGIN.strip()} and one {README_END.strip()}")
    before, rest = readme.split(README_BEGIN)
    after = rest.split(README_END)[1]
    made = {"README.md": before + README_BEGIN + figures_text(apart(records)[0]) + README_END + after,
            DOCUMENT: document_text(records),
            policies.LINEAR_COSTS: policies.linear_costs_text(records, read_text(policies.TILING)),
            policies.CARD_POLICIES: policies.card_policies_text(records, read_text(policies.FIELDS),
                                                                read_text(policies.TILING))}
    for name, record in records:
        for what, (_, picture) in pictures_of(record).items():
            made[f"{PICTURES}/{name.replace('/', '_')}_{what}.svg"] = picture
    return made


def write_report(path, begin="# What was measured\n"):
    record, folder = read_record(path), os.path.dirname(os.path.abspath(path))
    with open(f"{folder}/report.md", "w", encoding="utf-8") as file:
        file.write("\n".join([begin, record_text(record, ""), error_text([record])]))
    for what, (_, picture) in pictures_of(record).items():
        with open(f"{folder}/{what}.svg", "w", encoding="utf-8") as file:
            file.write(picture)


def stale(made):
    """What is not as it should be, among what is made and in the folder of pictures."""
    for path, text in made.items():
        try:
            if read_text(path) == text:
                continue
        except OSError:
            pass
        yield path
    for path in glob.glob(f"{ROOT}/{PICTURES}/*.svg"):
        if os.path.relpath(path, ROOT) not in made:
            yield os.path.relpath(path, ROOT)


def checked_record(machine, path):
    """{machine/kind: record} of a file that somebody sends; ends the program where something is wrong with it."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", machine):
        sys.exit(f"{machine!r}: expected a name of small letters, digits and dashes, as t4-16gb")
    if found := record_check.problems_of_file(path):
        sys.exit("\n".join(f"{path}: {line}" for line in found[:20]))
    return {name_of_record(f"{machine}/{os.path.basename(path)}"): read_record(path)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--check", action="store_true",
                       help="write nothing; name what is not as the records say, and fail if there is any")
    which.add_argument("--add", nargs=2, metavar=("MACHINE", "FILE"),
                       help="copy a record, host.json or gpu.json, to benchmarks/results/MACHINE/, in place of one of "
                            "that name, and write everything anew; fail and write nothing if anything is wrong with it")
    which.add_argument("--report", metavar="FILE",
                       help="write report.md and the pictures of one record into its folder, and nothing else")
    options = parser.parse_args()
    if options.report:
        write_report(options.report)
        return 0
    try:
        made = outputs(read_records(checked_record(*options.add) if options.add else None))
    except (ValueError, ArithmeticError) as error:
        sys.exit(f"nothing was written: {error}")
    if options.add:
        machine, path = options.add
        os.makedirs(f"{RESULTS}/{machine}", exist_ok=True)
        shutil.copyfile(path, f"{RESULTS}/{machine}/{os.path.basename(path)}")
    wrong = list(stale(made))
    if options.check:
        for path in wrong:
            print(f"{path} is not what benchmarks/results/ and tests/counts.json say: run tools/performance.py",
                  file=sys.stderr)
        return 1 if wrong else 0
    for path in wrong:
        if path not in made:
            os.remove(f"{ROOT}/{path}")
            continue
        os.makedirs(os.path.dirname(f"{ROOT}/{path}"), exist_ok=True)
        with open(f"{ROOT}/{path}", "w", encoding="utf-8") as file:
            file.write(made[path])
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws how much faster than its baselines the library is, as SVG, from a record (tools/records.py): a bar for each
family of benchmarks and baseline up to the geometric mean, and a line from the least to the greatest. The scale is
logarithmic; bars left of 1 are losses. Needs nothing but Python."""

import math
import re

import svg

# Counters that are ratios to a baseline, beside all that are called x_<baseline>; >= 1 is as fast or faster.
BASELINES = {"planned_speedup": "as written", "over_unplanned": "as written", "over_deduplicated": "de-duplicated",
             "deduplicated_speedup": "de-duplicated",
             "folded_speedup": "concatenated", "absl_ratio": "absl::flat_hash_map",
             "eager_ratio": "PyTorch", "graph_ratio": "PyTorch in a graph", "default_ratio": "torch.compile",
             "reduce_overhead_ratio": "torch.compile", "max_autotune_ratio": "torch.compile, max-autotune",
             "ratio_to_naive": "other engines, as written", "ratio_to_best": "other engines, their best"}


def family(name):
    """"host_engines/dlrm/requests:1/items:100" -> "dlrm": what stands before the first argument."""
    parts = re.split(r"/(?=[\w.]+:)", name, maxsplit=1)[0]
    return re.sub("^host_engines/", "", parts)


def ratios(record):
    """{(family, baseline): [ratio]}, in the order of the record."""
    found = {}
    for measurements in record["benchmarks"].values():
        for measurement in measurements:
            for counter, value in measurement.items():
                baseline = counter[2:].replace("_", " ") if counter.startswith("x_") else BASELINES.get(counter)
                if baseline and isinstance(value, (int, float)) and value > 0:
                    found.setdefault((family(measurement["name"]), baseline), []).append(value)
    return found


def draw(record):
    """The picture, or None when nothing was compared."""
    rows = list(ratios(record).items())
    if not rows:
        return None
    values = [value for _, of_row in rows for value in of_row]
    ticks = svg.decades(min(*values, 0.99), max(*values, 1.01))
    height, left = 18, 290
    picture = svg.Picture(height * len(rows) + 70, left=left, top=10)
    x = svg.logarithmic(ticks, picture.left, picture.right)
    picture.x_axis(ticks, x, "times as fast as the baseline")
    baselines = list(dict.fromkeys(baseline for (_, baseline), _ in rows))
    for i, ((name, baseline), of_row) in enumerate(rows):
        y = picture.top + height * i
        mean = math.exp(sum(map(math.log, of_row)) / len(of_row))
        colour = svg.COLOURS[baselines.index(baseline) % len(svg.COLOURS)]
        picture.bar(min(x(1), x(mean)), y + 3, abs(x(mean) - x(1)), height - 6, colour)
        picture.line([(x(min(of_row)), y + height / 2), (x(max(of_row)), y + height / 2)], "black")
        picture.text(left - 8, y + 13, f"{name} over {baseline}: {mean:.3g}", "end")
    picture.line([(x(1), picture.top), (x(1), picture.bottom)], "black")
    return picture.svg()


if __name__ == "__main__":
    svg.draw_record(__doc__, draw, "compares nothing with a baseline")

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/ids/criteo.tsv, rows of random values in the layout of Criteo's public logs (a label, 13 integers, 26
words of 8 hexadecimal digits; empty where a value is missing), tests/ids/criteo_transforms.json, what is made of them, and
tests/ids/criteo_ids.json, the ids that tools/ids.py makes. Needs NumPy."""

import json
import pathlib
import random
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests/ids")]
import ids  # noqa: E402
from transform_columns import checksums  # noqa: E402

ROWS = 100
BUCKETS = 10000
BOUNDARIES = [0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 64.0, 256.0, 1024.0]
INTEGERS = [f"I{i}" for i in range(1, 14)]
WORDS = [f"C{i}" for i in range(1, 27)]


def row(rng):
    integers = ["" if rng.random() < 0.2 else str(int(rng.lognormvariate(2, 2)) - 2) for _ in INTEGERS]
    words = ["" if rng.random() < 0.1 else f"{rng.getrandbits(32):08x}" for _ in WORDS]
    return "\t".join([str(int(rng.random() < 0.25)), *integers, *words])


def columns(rows, seed=2):
    """Rows as arrays by column, as one reads them from text: missing integers are NaN."""
    import numpy as np
    rng = np.random.default_rng(seed)
    made = {n: np.where(rng.random(rows) < 0.2, np.nan, np.floor(rng.lognormal(2, 2, rows)) - 2).astype(np.float32)
            for n in INTEGERS}
    for name in WORDS:
        values = np.array([f"{x:08x}" for x in rng.integers(0, 1 << 32, rows)], object)
        made[name] = np.where(rng.random(rows) < 0.1, "", values)
    return made


def transforms():
    columns = [{"name": name, "type": "f32"} for name in INTEGERS] + [{"name": name, "type": "text"} for name in WORDS]
    features = [{"name": name, "op": "bucketize", "of": [{"column": name}], "settings": {"boundaries": BOUNDARIES}}
                for name in INTEGERS]
    features += [{"name": name, "op": "hash", "of": [{"column": name}],
                  "settings": {"buckets": BUCKETS, "first": 1, "mask": {"text": "", "id": 0}}} for name in WORDS]
    return {"format": "warprank.transforms", "version": 1, "scheme": ids.SCHEME, "columns": columns,
            "features": features}


def ids_of(rows):
    """By feature, as the transforms say it."""
    columns = dict(zip(["label", *INTEGERS, *WORDS], zip(*(line.split("\t") for line in rows))))
    intervals, buckets = ids.Boundaries(BOUNDARIES), ids.HashBuckets(BUCKETS)
    made = {name: [intervals.bucket(float(x or "nan")) for x in columns[name]] for name in INTEGERS}
    return made | {name: [1 + buckets.bucket(x) if x else 0 for x in columns[name]] for name in WORDS}


def lines(document):
    """One member a line."""
    return "{\n" + ",\n".join(f"{json.dumps(k)}: " + (
        "[\n" + ",\n".join("  " + json.dumps(row) for row in v) + "\n]"
        if isinstance(v, list) and isinstance(v[0], dict) else json.dumps(v)) for k, v in document.items()) + "\n}\n"


def main():
    rng = random.Random(1)
    rows = [row(rng) for _ in range(ROWS)]
    (ROOT / "tests/ids/criteo.tsv").write_text("".join(line + "\n" for line in rows))
    (ROOT / "tests/ids/criteo_transforms.json").write_text(lines(transforms()))
    made = {name: checksums(values) for name, values in ids_of(rows).items()}
    (ROOT / "tests/ids/criteo_ids.json").write_text(lines(made))


if __name__ == "__main__":
    main()

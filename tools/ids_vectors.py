#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/ids/vectors.json: what TensorFlow computes, which include/warprank/ids/ and tools/ids.py are held to.
Needs TensorFlow (2.21 made the file); shares no code with either."""

import json
import pathlib
import random

import tensorflow as tf

OUT = pathlib.Path(__file__).resolve().parents[1] / "tests/ids/vectors.json"
INTEGERS = [0, 1, -1, 9, 10, 17, -17, 99999999, 100000000, 2**31, 2**44 - 1, 2**44, 2**53 + 1, 10**18, 2**63 - 1, -(2**63)]


def fingerprint(text):
    return int.from_bytes(tf.fingerprint([text])[0].numpy().tobytes(), "little")


def decimal(integer):
    return tf.strings.as_string(tf.constant(integer, tf.int64)).numpy()


def cross(parts, num_buckets):
    """Text is crossed by its fingerprint, an int as it is."""
    columns = [tf.constant([[part]], tf.int64 if isinstance(part, int) else tf.string) for part in parts]
    return int(tf.sparse.cross_hashed(columns, num_buckets).values[0])


def cross_fingerprint(parts):
    """All 64 bits, of which TensorFlow shows a remainder at a time."""
    modulo_int64_max, modulo_2_62 = cross(parts, 0), cross(parts, 2**62)
    for wraps in range(3):
        value = modulo_int64_max + wraps * (2**63 - 1)
        if value % 2**62 == modulo_2_62:
            return value
    raise AssertionError(parts)


def part(value):
    """A cross's part as it stands in the file: text by its bytes, an int as a fingerprint."""
    return {"fingerprint": f"{value:016x}"} if isinstance(value, int) else {"bytes": value.hex()}


def main():
    rng = random.Random(1)
    texts = [rng.randbytes(size) for size in [*range(132), 191, 192, 193, 256, 257, 1000]]
    texts += ["Berlin".encode(), "Zürich".encode(), "北京".encode(), b"with\0zero", b"\xff" * 70]
    fingerprints = [(text, fingerprint(text)) for text in texts]

    crosses = [[b"Berlin", b"17"], [b"17", b"Berlin"], [b"", b""], [b"a", b"b", b"c"], [b"Berlin", 17], [3, 5, b"x"]]
    crosses += [[rng.randbytes(rng.randrange(40)) for _ in range(2 + i % 5)] for i in range(20)]

    ids = []
    for i, (text, value) in enumerate(fingerprints):
        slot = [0, 1, 12, 2**19 - 1, 2**19, 2**20 - 1][i % 6]
        unsigned = slot * 2**44 + value % 2**44
        ids.append({"slot": slot, "bytes": text.hex(), "id": unsigned - 2**64 if unsigned >= 2**63 else unsigned})

    num_buckets = [1, 2, 7, 1000, 1 << 20, 2**31 + 11, 2**62]
    buckets = []
    for text in texts[::8]:
        for n in num_buckets:
            bucket = int(tf.strings.to_hash_bucket_fast([text], n)[0])
            buckets.append({"bytes": text.hex(), "num_buckets": n, "bucket": bucket})

    intervals = []
    for boundaries in [[0.0], [18.0, 25.0, 35.0], [-1.5, 0.1, 0.2, 1e30], [16777216.0], ["-inf", 0.0, "inf"]]:
        numbers = [float(b) for b in boundaries]
        xs = [*boundaries, 0.0, -0.0, 0.1, 24.999999, 25.000001, 16777217.0, -1e38, 1e38, "inf", "-inf", "nan"]
        rows = tf.raw_ops.Bucketize(input=[float(x) for x in xs], boundaries=numbers).numpy().tolist()
        intervals.append({"boundaries": boundaries, "x": xs, "bucket": rows})

    document = {
        "scheme": "warprank-ids-1",
        "made_by": f"tools/ids_vectors.py with TensorFlow {tf.__version__}",
        "texts": [{"bytes": text.hex(), "fingerprint": f"{value:016x}"} for text, value in fingerprints],
        "integers": [{"integer": n, "fingerprint": f"{fingerprint(decimal(n)):016x}"} for n in INTEGERS],
        "crosses": [{"parts": [part(p) for p in c], "fingerprint": f"{cross_fingerprint(c):016x}"} for c in crosses],
        "ids": ids,
        "hash_buckets": buckets,
        "boundaries": intervals,
    }
    with OUT.open("w") as file:  # one vector a line
        lines = []
        for key, value in document.items():
            if isinstance(value, list):
                rows = ",\n".join("  " + json.dumps(row) for row in value)
                lines.append(f"{json.dumps(key)}: [\n{rows}\n]")
            else:
                lines.append(f"{json.dumps(key)}: {json.dumps(value)}")
        file.write("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How many rows of Criteo's layout warprank and Keras' model.predict score in a second, on the same cores.

    bench_keras.py [--cores N] [--rows N] [--batch N] [--times N] [--only TEXT] [--least-ratio X] [--least-rows N]

Needs the Python package, TensorFlow and PyArrow. The models are those that the tests of exports have, with 26 tables of
10,000 rows; scores are compared before anything is timed. Each is timed several times, by turns, and its best counts.
The last one begins with text: what its preprocessing layers do is timed apart. Fails where a ratio or the rows of a
second are less than asked for.
"""

import argparse
import os
import sys
from pathlib import Path

from bench_record import best_of

ROOT = Path(__file__).resolve().parents[1]
VOCABULARY, CLOSE = 10_000, 1e-5
FROM_TEXT = "DeepFM of text, 39 fields, 16 columns, 64-32"


def models():
    """By name a model of 13 numbers and 26 ids, and the axes of its inputs."""
    import keras
    import models as written
    from keras import layers

    names = [f"category_{i}" for i in range(26)]
    yield "DeepFM, 16 columns, 128-64", written.deepfm(dict.fromkeys(names, VOCABULARY), 13, dim=16, hidden=(128, 64))
    yield "DeepFM, 10 columns, 400-400-400", written.deepfm(dict.fromkeys(names, VOCABULARY), 13, dim=10, hidden=(
        400, 400, 400))
    numbers = keras.Input((13,), name="numbers")
    ids = {name: keras.Input((1,), dtype="int32", name=name) for name in names}
    fields = [layers.Flatten()(layers.Embedding(VOCABULARY, 16)(given)) for given in ids.values()]
    x0 = x = layers.Concatenate()([*fields, numbers])
    for _ in range(2):
        x = x0 * layers.Dense(x0.shape[-1])(x) + x
    outputs = layers.Dense(1, activation="sigmoid")(written.mlp(x, [128, 64]))
    yield "DCN-v2, 2 crosses, 128-64", keras.Model([*ids.values(), numbers], outputs)
    yield FROM_TEXT, written.criteo_deepfm(VOCABULARY, dim=16, hidden=(64, 32))


def compare(name, model, given):
    import numpy as np

    import warprank as wr
    import warprank.keras

    if name == FROM_TEXT:
        return compare_from_text(name, model, given)
    random = np.random.default_rng(1)
    batch = {t.name: (random.integers(0, VOCABULARY, (given.rows, 1)) if "int" in t.dtype else
                      random.normal(size=(given.rows, 13))).astype(t.dtype) for t in model.inputs}
    axes = {t.name: "request/sample" for t in model.inputs}
    scorer = wr.keras.export(model, axes=axes).model()
    data = {t.name: batch[t.name].reshape(given.rows, -1) if t.name == "numbers" else batch[t.name].reshape(-1)
            for t in model.inputs}
    return compare_scores(name, model, list(batch.values()), scorer, data, given)


def compare_scores(name, model, arrays, scorer, data, given):
    """Prints rows per second of both, and returns whether they are as many as were asked for."""
    import numpy as np

    offsets = {"sample": np.arange(0, given.rows + given.batch, given.batch).clip(max=given.rows)}

    def keras_scores():
        return model.predict(arrays, batch_size=given.batch, verbose=0)

    def scores():
        return scorer.score(data, offsets, threads=given.cores)["output"]
    difference = float(np.abs(keras_scores().reshape(-1) - scores().reshape(-1)).max())
    if difference > CLOSE:
        sys.exit(f"{name}: expected scores that differ by {CLOSE} at most, got {difference}")
    theirs, ours = best_of([keras_scores, scores], given.times)
    print(f"{name}: warprank {given.rows / ours:,.0f} rows/s, Keras {given.rows / theirs:,.0f} rows/s, "
          f"ratio {theirs / ours:.2f}")
    return theirs / ours >= given.least_ratio and given.rows / ours >= given.least_rows


def compare_from_text(name, model, given):
    """Rows of text to ids by the transforms and by Keras' layers, then ids to scores by both."""
    import keras
    import numpy as np
    import pyarrow
    import tensorflow as tf

    import warprank.keras
    sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests/ids")]
    import criteo_sample

    columns = criteo_sample.columns(given.rows)
    exported = warprank.keras.export(model, axes=dict.fromkeys(columns, "request/sample"))
    scorer = exported.model()
    arrow = {n: pyarrow.array(c) for n, c in columns.items()}
    tensors = {n: tf.constant(c)[:, None] for n, c in columns.items()}
    made = exported._trained.preprocessing.made
    to_ids = tf.function(keras.Model(model.inputs, list(made.values())), autograph=False)
    from_ids = keras.Model(list(made.values()), model.outputs)

    def keras_ids():
        return [to_ids({n: t[i:i + given.batch] for n, t in tensors.items()})
                for i in range(0, given.rows, given.batch)]
    ids = exported.transforms.run(arrow)
    arrays = [np.concatenate(parts) for parts in zip(*([x.numpy() for x in part] for part in keras_ids()))]
    for (feature, found), wanted in zip(((n, ids[n]) for n in made), arrays):
        if not np.array_equal(found, wanted.reshape(-1)):
            sys.exit(f"{name}: ids of {feature} differ")
    theirs, ours = best_of([keras_ids, lambda: exported.transforms.run(arrow)], given.times)
    print(f"{name}: columns to ids, warprank on one core {given.rows / ours:,.0f} rows/s, Keras "
          f"{given.rows / theirs:,.0f} rows/s, ratio {theirs / ours:.2f}")
    return compare_scores(f"{name}, from ids on", from_ids, arrays, scorer, ids, given)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--rows", type=int, default=65536)
    parser.add_argument("--batch", type=int, default=1024, help="rows of a request, and of a batch of model.predict")
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--only", default="", help="models whose name has this")
    parser.add_argument("--least-ratio", type=float, default=0.0)
    parser.add_argument("--least-rows", type=float, default=0.0)
    given = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:given.cores])
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.path.insert(0, str(ROOT / "tests/python/keras"))
    print(f"{given.rows} rows in batches of {given.batch}, {given.cores} cores")
    if not all([compare(name, model, given) for name, model in models() if given.only in name]):
        sys.exit(f"expected ratios of {given.least_ratio} and {given.least_rows:,.0f} rows/s")


if __name__ == "__main__":
    main()

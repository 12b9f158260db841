#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Exports the models of deepctr for TensorFlow without a history as they are, checks their scores, and times them
beside Keras on one thread.

    tools/zoo_deepctr.py FOLDER               a row for each model: difference, launches, ms for 100 and 500 rows
    tools/zoo_deepctr.py FOLDER --only DCN --out RECORD.json

FOLDER keeps deepctr, which comes from PyPI by pip; where it or TensorFlow cannot be had, this is said and nothing is
done. deepctr imports Keras from tensorflow.python.keras, which TensorFlow no longer has: the package tf_keras takes its
place, and models are exported from the SavedModels that it writes. Needs warprank with TensorFlow: the environment of
`tests/python/run.py build/cpu/python --tensorflow` has both (build/cpu/python/tensorflow/bin/python
tools/zoo_deepctr.py build/zoo). What is timed runs in turns, minima count. Exits with 1 when a model that was exported
scores otherwise than its own by more than 1e-5 of its largest score.
"""

import argparse
import contextlib
import importlib
import importlib.util
import io
import os
import subprocess
import sys
import tempfile

import numpy as np
from bench_record import Record, best_of
from zoo_measures import LARGEST_DIFFERENCE, ROWS, TURNS, launches, relative

PACKAGES = ["deepctr==0.9.3", "requests", "urllib3", "idna", "certifi", "charset-normalizer"]
FIELDS, DIM, NUMBERS = (1000, 300, 50, 2000, 20), 16, 4


def batch_of(rows):
    rng = np.random.default_rng(rows)
    ids = {f"s{i}": rng.integers(0, field, (rows, 1)) for i, field in enumerate(FIELDS)}
    return ids | {f"d{i}": rng.standard_normal((rows, 1), np.float32) for i in range(NUMBERS)}


def makers():
    """By model how it is made."""
    from deepctr import models
    from deepctr.feature_column import DenseFeat, SparseFeat
    sparse = [SparseFeat(f"s{i}", field, DIM) for i, field in enumerate(FIELDS)]
    every = sparse + [DenseFeat(f"d{i}", 1) for i in range(NUMBERS)]
    grouped = [SparseFeat(f"s{i}", field, DIM, group_name=("user", "item")[i % 2]) for i, field in enumerate(FIELDS)]
    layers = {"dnn_hidden_units": (64, 32)}
    narrow = {"conv_kernel_width": (3, 3), "conv_filters": (4, 4)}
    tower = {"tower_dnn_hidden_units": (16,)}
    experts = tower | {"expert_dnn_hidden_units": (64, 32)}
    of_two = {"WDL": layers, "DeepFM": layers, "xDeepFM": layers | {"cin_layer_size": (16, 16)}, "AutoInt": layers,
              "DCN": layers, "DCNMix": layers, "DIFM": layers, "FiBiNET": layers, "IFM": layers, "NFM": layers,
              "ONN": layers, "FNN": layers, "FwFM": layers, "DeepFEFM": layers, "AFM": {}, "EDCN": {},
              "CCPM": narrow | layers, "FGCNN": layers | narrow | {"new_maps": (3, 3), "pooling_width": (2, 2)}}
    of_sparse = {"AFM", "CCPM", "EDCN", "FGCNN"}
    found = {}
    for name, own in of_two.items():
        columns = sparse if name in of_sparse else every
        found[name] = lambda name=name, columns=columns, own=own: getattr(models, name)(columns, columns, **own)
    for name, own in {"ESMM": tower, "MMOE": experts, "PLE": experts,
                      "SharedBottom": tower | {"bottom_dnn_hidden_units": (64, 32)}}.items():
        found[name] = lambda name=name, own=own: getattr(models, name)(every, **own)
    return found | {"FLEN": lambda: models.FLEN(grouped, grouped, **layers), "MLR": lambda: models.MLR(every),
                    "PNN": lambda: models.PNN(every, use_outter=True, **layers)}


def made(make):
    """With weights that do not hide what a layer does."""
    import tf_keras
    tf_keras.utils.set_random_seed(1)
    model = make()
    rng = np.random.default_rng(1)
    model.set_weights([rng.standard_normal(w.shape) * 0.1 if w.ndim > 1 else w for w in model.get_weights()])
    return model


def measure(make):
    """What there is to say of a model."""
    import tensorflow as tf

    import warprank as wr
    import warprank.keras
    with tempfile.TemporaryDirectory() as folder:
        with contextlib.redirect_stdout(io.StringIO()):  # where models tell what they are made of
            module = made(make)
            module.export(folder)
        every = batch_of(ROWS[0])
        batch = {given.name: every[given.name] for given in module.inputs}
        exported = wr.keras.export(folder, example_batch=batch)
        differences = exported.check(batch)
    model = exported.model()
    found = {"difference": relative(differences, exported.score(batch)),
             "launches": launches(wr.compile(exported.graph))}
    traced = tf.function(module)
    for rows in ROWS:
        of_rows = batch_of(rows)
        given = {name: of_rows[name].astype(array.dtype) for name, array in batch.items()}
        data, offsets = exported.columns(given)
        tensors = {name: tf.constant(array) for name, array in given.items()}
        ours, theirs = best_of([lambda: model.score(data, offsets), lambda: traced(tensors)], TURNS)
        found |= {f"warprank_ms_{rows}": 1e3 * ours, f"keras_ms_{rows}": 1e3 * theirs,
                  f"keras_ratio_{rows}": theirs / ours}
    return found


def has_deepctr(folder):
    """Whether it can be imported."""
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", folder, *PACKAGES]
    if not os.path.isdir(folder) and subprocess.run(install, capture_output=True, check=False).returncode != 0:
        return False
    sys.path.insert(0, folder)
    import tf_keras
    sys.modules["tensorflow.python.keras"] = tf_keras
    for part in ("backend", "initializers", "layers", "models", "regularizers"):
        sys.modules[f"tensorflow.python.keras.{part}"] = importlib.import_module(f"tf_keras.{part}")
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--only", default="", help="models whose name has this")
    parser.add_argument("--out", help="a record, as Google Benchmark writes it")
    options = parser.parse_args()
    lacking = [name for name in ("tensorflow", "tf_keras") if importlib.util.find_spec(name) is None]
    os.environ |= {"TF_USE_LEGACY_KERAS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    if lacking or not has_deepctr(os.path.abspath(f"{options.folder}/deepctr")):
        reason = f"no {lacking[0]}" if lacking else f"{PACKAGES[0]} cannot be installed"
        print(f"skipped: deepctr: {reason}", file=sys.stderr)
        return 0
    import tensorflow as tf

    import warprank as wr
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    record, refused, wrong, count = Record(tensorflow=tf.__version__), [], [], 0
    print("| model | difference | launches | " + " | ".join(f"ms, {n} rows | Keras / ours" for n in ROWS) + " |")
    print("|---" * (3 + 2 * len(ROWS)) + "|")
    for name, make in makers().items():
        if options.only not in name:
            continue
        count += 1
        try:
            found = measure(make)
        except wr.InvalidArgument as error:
            refused.append(f"{name}: {error}")
            record.skip(f"zoo/deepctr/{name}", str(error).splitlines()[0])
            continue
        record.add(f"zoo/deepctr/{name}", found[f"warprank_ms_{ROWS[0]}"] / 1e3, **found)
        if found["difference"] > LARGEST_DIFFERENCE:
            wrong.append(f"{name}: expected scores that differ by {LARGEST_DIFFERENCE:.2g} at most, got "
                         f"{found['difference']:.2g}")
        times = " | ".join(f"{found[f'warprank_ms_{n}']:.3f} | {found[f'keras_ratio_{n}']:.1f}" for n in ROWS)
        print(f"| {name} | {found['difference']:.1g} | {found['launches']} | {times} |", flush=True)
    print(f"\n{count - len(refused)} of {count} models are exported")
    for line in refused + wrong:
        print(f"- {line}")
    if options.out:
        record.save(options.out)
    return 1 if wrong or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/ids/transforms.json, which warprank.keras makes of feature columns and preprocessing layers, and
tests/ids/transform_vectors.json, what TensorFlow itself computes with them. Needs TensorFlow (2.21 with Keras 3.15 made
the files) and the package warprank."""

import json
import pathlib
import sys

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.feature_column import feature_column_v2 as internal

import warprank.keras

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "tests/ids"
sys.path.insert(0, str(FOLDER))
import transform_columns as given  # noqa: E402

fc = tf.feature_column
WORDS = [f"w{i}" for i in range(0, 60, 2)] + ["Zürich"]
DENSE = ["city", "word", "brand", "user", "age_id", "level"]


def feature_columns():
    price = fc.bucketized_column(fc.numeric_column("price"), [-100.0, -7.5, 0.1, 3.0, 3.125, 1e30])
    genres = fc.categorical_column_with_vocabulary_list("genres", WORDS, num_oov_buckets=5)
    word = fc.categorical_column_with_vocabulary_list("word", WORDS)
    liked = fc.categorical_column_with_vocabulary_list("liked", WORDS)
    return [
        fc.categorical_column_with_hash_bucket("city", 1000),
        word,
        fc.categorical_column_with_vocabulary_list("brand", WORDS, num_oov_buckets=7),
        fc.categorical_column_with_hash_bucket("user", 10**6 + 3, dtype=tf.int64),
        fc.categorical_column_with_identity("age_id", 40, default_value=0),
        fc.categorical_column_with_vocabulary_list("level", [5, -3, 17, 2**40], dtype=tf.int64, num_oov_buckets=3),
        fc.categorical_column_with_hash_bucket("tags", 977),
        genres,
        fc.categorical_column_with_hash_bucket("films", 2**31 + 11, dtype=tf.int64),
        price,
        fc.crossed_column(["city", price], 5000),
        fc.crossed_column(["tags", genres, word], 10**9 + 7, hash_key=77),
        fc.crossed_column([fc.crossed_column([price, "city"], 10), "word"], 999),
        fc.sequence_categorical_column_with_hash_bucket("history", 321),
        liked,
        fc.weighted_categorical_column(liked, "liked_weights"),
        fc.numeric_column("grid", shape=(3,)),
        fc.indicator_column(genres),
    ]


def layers():
    """By feature: a layer and its columns."""
    mean, variance = [0.5, -3.0, 7.0], [2.0, 0.3, 1e-20]
    norm = keras.layers.Normalization(mean=mean, variance=variance)
    norm.build((None, 3))
    lookup, crossing = keras.layers.StringLookup, keras.layers.HashedCrossing
    return {
        "k_hash": (keras.layers.Hashing(100), "city"),
        "k_hash_masked": (keras.layers.Hashing(100, mask_value="w3"), "city"),
        "k_hash_integers": (keras.layers.Hashing(101, mask_value=7), "user"),
        "k_siphash": (keras.layers.Hashing(1000, salt=[133, 137]), "city"),
        "k_siphash_integers": (keras.layers.Hashing(999, salt=5), "films"),
        "k_lookup": (lookup(vocabulary=WORDS), "tags"),
        "k_lookup_of_3": (lookup(vocabulary=WORDS, num_oov_indices=3, mask_token=""), "tags"),
        "k_integers": (keras.layers.IntegerLookup(vocabulary=[3, 1, 40, -2], mask_token=0), "user"),
        "k_integers_of_4": (keras.layers.IntegerLookup(vocabulary=[3, 1, 40, -2], num_oov_indices=4), "films"),
        "k_boundaries": (keras.layers.Discretization([-100.0, -7.5, 0.1, 3.0, 3.125, 1e30]), "price"),
        "k_cross": (crossing(1000), ("word", "level")),
        "k_cross_of_features": (crossing(10**8), ("k_hash", "k_integers")),
        "k_norm": (norm, "grid"),
        "k_one_hot": (keras.layers.Hashing(11, output_mode="one_hot"), "brand"),
        "k_multi_hot": (lookup(vocabulary=WORDS, num_oov_indices=2, output_mode="multi_hot"), "triple"),
        "k_count": (lookup(vocabulary=WORDS, mask_token="w3", output_mode="count"), "triple"),
        "k_encoded": (keras.layers.CategoryEncoding(50, output_mode="multi_hot"), "k_hash_masked"),
    }


RAGGED = [name for name, (_, count) in given.COLUMNS.items() if count != 1]
TYPES = {name: type for name, (type, _) in given.COLUMNS.items()}


def documents():
    """The two transforms: of feature columns, and of layers."""
    return (warprank.keras.transforms_of(feature_columns(), dense=DENSE),
            warprank.keras.transforms_of(layers(), ragged=RAGGED, types=TYPES))


def tensor(name):
    """As a model takes it: dense [rows, 1], or sparse."""
    values, offsets = given.column(name)
    values = tf.constant(values)
    if offsets is None:
        return values if values.shape.rank == 2 else values[:, None]
    return tf.RaggedTensor.from_row_splits(values, offsets).to_sparse()


def sparse_feature(column, cache):
    """(values, offsets, weights) as the look-up of an embedding gets them."""
    ids, weights = column.get_sparse_tensors(cache, None)
    if weights is not None:
        ids, weights = internal._prune_invalid_ids(ids, weights)
        ids, weights = internal._prune_invalid_weights(ids, weights)
        weights = weights.values.numpy()
    lengths = np.bincount(ids.indices[:, 0].numpy(), minlength=given.ROWS)
    return ids.values.numpy(), np.concatenate([[0], np.cumsum(lengths)]), weights


def made_by_columns():
    names = [name for name in given.COLUMNS if name != "triple"]
    cache = internal.FeatureTransformationCache({name: tensor(name) for name in names})
    for column in feature_columns():
        if isinstance(column, fc_type("IndicatorColumn", "NumericColumn")):
            yield column.name, column.get_dense_tensor(cache, None).numpy(), None
            continue
        inner = column.categorical_column if isinstance(column, fc_type("SequenceCategoricalColumn")) else column
        values, offsets, weights = sparse_feature(inner, cache)
        yield column.name, values, offsets
        if weights is not None:
            yield f"{column.name}.weights", weights, offsets


def fc_type(*names):
    return tuple(getattr(internal, name) for name in names)


def made_by_layers():
    made = {}
    for name, (layer, sources) in layers().items():
        tensors, offsets = [], None
        for source in [sources] if isinstance(sources, str) else sources:
            if source in made:
                tensors.append(made[source])
                continue
            values, offsets = given.column(source)
            values = tf.constant(values)
            if given.COLUMNS[source][1] == 3:
                values, offsets = tf.reshape(values, [-1, 3]), None
            tensors.append(values if offsets is not None or values.shape.rank == 2 else values[:, None])
        made[name] = layer(tensors[0] if len(tensors) == 1 else tensors)
        is_ids = getattr(layer, "output_mode", "int") == "int"
        yield name, made[name].numpy() if is_ids else made[name].numpy().astype(np.float32), offsets


def main():
    result = {"made_by": f"tools/transform_vectors.py with TensorFlow {tf.__version__} and Keras {keras.__version__}",
              "rows": given.ROWS, "columns": {}, "features": {}}
    for name, (type, _) in given.COLUMNS.items():
        values, offsets = given.column(name)
        if type != "text":
            result["columns"][name] = {"values": given.checksums(values)[0]}
        else:
            result["columns"][name] = {"first": values[:12]}
        if offsets is not None:
            result["columns"][name]["offsets"] = given.checksums(offsets)[-1]
    for name, values, offsets in [*made_by_columns(), *made_by_layers()]:
        feature = {"first": np.asarray(values).reshape(-1)[:8].tolist(), "values": given.checksums(values)}
        offsets_differ = offsets is not None and not np.array_equal(offsets, np.arange(given.ROWS + 1))
        if offsets_differ:
            feature["offsets"] = given.checksums(offsets)
        result["features"][name] = feature
    lines = []
    for key, value in result.items():
        if isinstance(value, dict):
            rows = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}" for k, v in value.items())
            lines.append(f"{json.dumps(key)}: {{\n{rows}\n}}")
        else:
            lines.append(f"{json.dumps(key)}: {json.dumps(value)}")
    (FOLDER / "transform_vectors.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
    columns, of_layers = documents()
    columns.save(FOLDER / "feature_columns.json")
    of_layers.save(FOLDER / "preprocessing_layers.json")


if __name__ == "__main__":
    main()

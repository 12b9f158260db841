# SPDX-License-Identifier: Apache-2.0
"""Feature columns and preprocessing layers become the files that tests/ids holds to TensorFlow, and models of layers
what they compute."""

import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import warprank as wr
import warprank.keras

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests/ids")]
import transform_vectors  # noqa: E402


def test_files_of_the_tests_are_those_that_are_made():
    columns, of_layers = transform_vectors.documents()
    assert columns.to_json() == (ROOT / "tests/ids/feature_columns.json").read_text()
    assert of_layers.to_json() == (ROOT / "tests/ids/preprocessing_layers.json").read_text()


def test_models_of_layers():
    city, hour, price = (keras.Input((1,), dtype=t, name=n) for n, t in (
        ("city", "string"), ("hour", "int32"), ("price", "float32")))
    of_city = layers.StringLookup(vocabulary=["Berlin", "Bonn"], num_oov_indices=2, name="city_id")(city)
    group = layers.Discretization([1.0, 2.5], name="group")(price)
    crossed = layers.HashedCrossing(1000, name="crossed")([of_city, hour])
    normalization = layers.Normalization(mean=3.0, variance=2.0, name="scaled")
    outputs = {"city_id": of_city, "group": group, "crossed": crossed, "scaled": normalization(price),
               "hashed": layers.Hashing(50, name="hashed")(hour)}
    model = keras.Model([city, hour, price], outputs)
    transforms = wr.keras.transforms_of(model)
    data = {"city": ["Berlin", "Köln", "Bonn", ""], "hour": [1, 2, -3, 4], "price": [0.5, 1.0, 2.5, np.nan]}
    made = transforms.run(data)
    given = [tf.constant(data["city"])[:, None], tf.constant(data["hour"], tf.int32)[:, None],
             tf.constant(data["price"], tf.float32)[:, None]]
    for name, wanted in model(given).items():
        np.testing.assert_array_equal(made[name], np.ravel(wanted), name)


def test_what_cannot_be_expressed_is_told_together():
    fc = tf.feature_column
    price = fc.numeric_column("price", normalizer_fn=lambda x: x)
    wide = fc.bucketized_column(fc.numeric_column("xy", shape=(2,)), [1.0])
    tags = fc.categorical_column_with_hash_bucket("tags", 10)
    with pytest.raises(wr.InvalidArgument) as raised:
        wr.keras.transforms_of([price, wide, fc.indicator_column(fc.weighted_categorical_column(tags, "w")), tags])
    assert [(p.what, p.got) for p in raised.value.problems] == [
        ("feature column 'price' (NumericColumn)", "one"), ("feature column 'xy_bucketized' (BucketizedColumn)",
                                                            "shape (2,)"),
        ("feature column 'tags_weighted_by_w_indicator' (IndicatorColumn)", "one of a weighted column")]
    with pytest.raises(wr.InvalidArgument) as raised:
        wr.keras.transforms_of({
            "a": (layers.StringLookup(vocabulary=["x"], invert=True), "a"),
            "b": (layers.Discretization(num_bins=3), "b"), "c": (layers.Rescaling(2.0), "c"),
            "d": (layers.StringLookup(vocabulary=["x"]), "a"), "e": (layers.Discretization([1.0]), "a")})
    assert [p.what for p in raised.value.problems] == [
        "feature 'a' (StringLookup)", "feature 'b' (Discretization)", "feature 'c' (Rescaling)",
        "feature 'e' (Discretization)"]
    assert raised.value.problems[3].expected == "column 'a' always as text"

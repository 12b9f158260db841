# SPDX-License-Identifier: Apache-2.0
"""Convolutions over the columns of a row, pools of windows, and the largest columns."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from test_export import B, check, ids

import warprank as wr
import warprank.keras

PARTS = {
    "over one dimension": [layers.Conv2D(4, (3, 1), padding="same", activation="relu")],
    "over both": [layers.Conv2D(4, (3, 2), strides=(2, 1)), layers.MaxPooling2D((2, 1))],
    "of channels": [layers.Conv2D(4, 1)],
    "each second place": [layers.Conv2D(4, 1, strides=2)],
    "without a bias": [layers.Conv2D(2, 3, padding="same", use_bias=False), layers.Conv2D(3, (1, 2))],
    "of one dimension": [layers.Reshape((30, 3)), layers.Conv1D(5, 4, strides=3)],
    "pools": [layers.MaxPooling2D((2, 1))],
    "pools beyond the ends": [layers.MaxPooling2D((4, 3), strides=(3, 2), padding="same")],
    "pools that overlap": [layers.MaxPooling2D(3, strides=1)],
}


def conv(*parts, shape=(6, 5, 3)):
    x = given = keras.Input(shape, name="x")
    for part in parts:
        x = type(part).from_config(part.get_config())(x)
    return keras.Model(given, layers.Flatten()(x))


@pytest.mark.parametrize("name", PARTS)
def test_convolutions_and_pools(name, rng, trained):
    check(trained(conv(*PARTS[name])), rng.normal(size=(B, 6, 5, 3)).astype(np.float32))


class Largest(layers.Layer):
    def __init__(self, k, result=0):
        super().__init__()
        self.k, self.result = k, result

    def call(self, x):
        found = tf.nn.top_k(tf.transpose(x, [0, 2, 1]), self.k)
        return tf.reshape(tf.cast(found[self.result], tf.float32), [-1, x.shape[2] * self.k])


def largest(*options, columns=7):
    x = keras.Input((columns, 2), name="x")
    return keras.Model(x, Largest(*options)(x))


@pytest.mark.parametrize("k", [1, 3, 7])
def test_the_largest_columns_in_their_order(k, rng):
    x = rng.normal(size=(B, 7, 2)).astype(np.float32)
    x[0] = 1  # equal ones
    check(largest(k), x)


@pytest.mark.parametrize("model, expected", [
    (lambda: largest(3, columns=17), "top_k of at most 16 columns, got 17"),
    (lambda: largest(3, 1), "the numbers of top_k, got their places"),
])
def test_what_is_not_expressed(model, expected):
    with pytest.raises(wr.InvalidArgument, match=expected):
        wr.keras.export(model())


def of_events(function):
    """A model of the sum of what a function makes of a history's events, without those of padding."""
    class Layer(layers.Layer):
        def __init__(self):
            super().__init__()
            self.table = layers.Embedding(9, 6)

        def call(self, history):
            made = function(self.table(history))
            kept = tf.cast(history != 0, tf.float32)[:, :, None] if made.shape[1] == 5 else 1.0
            return tf.reduce_sum(tf.reshape(made, [-1, made.shape[1], np.prod(made.shape[2:])]) * kept, 1)
    history = keras.Input((5,), name="history", dtype="int32")
    return keras.Model(history, Layer()(history))


def pooled(x, size, step):
    return tf.nn.max_pool2d(x, size, step, "SAME")


@pytest.mark.parametrize("function", [
    lambda x: pooled(x[..., None], (1, 3), (1, 2)),
    lambda x: tf.transpose(pooled(tf.transpose(x, [0, 2, 1])[..., None], (3, 1), 1), [0, 2, 1, 3]),
    lambda x: tf.transpose(pooled(tf.transpose(tf.reshape(x, [-1, 5, 3, 2]), [0, 2, 3, 1]), 2, 1), [0, 3, 1, 2]),
    lambda x: tf.reshape(pooled(tf.reshape(x, [-1, 6, 1, 1]), (2, 1), (2, 1)), [-1, 5, 3]),
    lambda x: tf.nn.top_k(x, 2)[0],
    lambda x: tf.nn.top_k(tf.reshape(x, [-1, 5, 2, 3]), 3)[0]])
def test_the_largest_columns_of_each_event(function, rng):
    check(of_events(function), ids(rng, 9, 5), axes={"history": "row/history[]"})


@pytest.mark.parametrize("function, expected", [
    (lambda x: pooled(x[..., None], (3, 1), 1), "a pool of windows of columns, got one of events"),
    (lambda x: pooled(x[..., None], 1, (2, 1)), "a pool of windows of columns, got one of events"),
    (lambda x: pooled(tf.transpose(x, [0, 2, 1])[..., None], (1, 5), 1), "a pool of windows of columns, got one of"),
    (lambda x: layers.MaxPooling1D(2)(x), "a pool of windows of columns, got one of events"),
    (lambda x: tf.nn.top_k(tf.transpose(x, [0, 2, 1]), 1)[0], "top_k of columns, got of events"),
    (lambda x: tf.nn.top_k(tf.transpose(x, [0, 2, 1]), 5)[0], "top_k of columns, got of events")])
def test_the_largest_events_are_refused(function, expected):
    with pytest.raises(wr.InvalidArgument, match=expected):
        wr.keras.export(of_events(function), {"history": "row/history[]"})


def test_over_events_it_is_refused_and_for_each_it_is_not(rng):
    def model(kernel):
        history = keras.Input((5,), name="history", dtype="int32")
        x = layers.Embedding(9, 6)(history)
        made = layers.Conv2D(4, kernel, padding="same")(layers.Reshape((5, 2, 3))(x))
        kept = keras.ops.cast(history != 0, "float32")[:, :, None, None]
        return keras.Model(history, keras.ops.reshape(keras.ops.sum(made * kept, 1), [-1, 8]))
    batch, axes = ids(rng, 9, 5), {"history": "row/history[]"}
    check(model((1, 2)), batch, axes=axes)
    with pytest.raises(wr.InvalidArgument, match="a convolution over channels and columns, got one over events"):
        wr.keras.export(model((2, 2)), axes)

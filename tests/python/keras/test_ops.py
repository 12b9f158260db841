# SPDX-License-Identifier: Apache-2.0
"""Ops of TensorFlow that layers of Keras do not use, each against TensorFlow."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from test_export import B, check, ids

import warprank as wr
import warprank.keras

WEIGHT = np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 6)


def fields(x):
    return tf.reshape(x, [-1, 2, 3])


def by(x, *types):
    """x as numbers of one type after another."""
    for type in (*types, "float32"):
        x = tf.cast(x, type)
    return x


OPS = {
    "sums": lambda x: tf.add_n([x, 2 * x, x[:, ::-1]]) + tf.reduce_sum(fields(x), [1, 2], keepdims=True)[:, 0],
    "quotients": lambda x: tf.math.divide_no_nan(x, tf.nn.relu(x)) + tf.math.reciprocal(x + 10) + x / np.arange(1., 7),
    "powers": lambda x: x**3 + (x + 9)**-1 + (x + 9)**0.5 + tf.math.rsqrt(x + 9) + tf.math.squared_difference(x, 1.5) +
    tf.math.log1p(tf.abs(x)),
    "angles": lambda x: tf.sin(x) * tf.cos(x) + tf.atan2(x, x[:, ::-1]) + tf.atan(x) + tf.atan2(x, 0.5),
    "activations": lambda x: tf.nn.relu6(9 * x) + tf.nn.leaky_relu(x) + tf.nn.elu(x) + tf.nn.softmax(x),
    "truth": lambda x: tf.where((x > 0) & ~(x > 1) | (x < -1), x, -x) + tf.cast(tf.equal(x, x), tf.float32),
    "conversions": lambda x: x * by(x, "bool") - by(tf.nn.relu(x) / 2, "bool") + by(x > 0, "int32", "int64"),
    "moves": lambda x: tf.concat([
        *tf.unstack(x[:, :, None], axis=1), *tf.split(x, [2, 4], 1), *tf.split(x, 3, 1), tf.roll(x, 1, 1),
        tf.reverse(x, [1]), tf.gather(x, [0, 3, 3], axis=1), tf.slice(x, [0, 2], [-1, 3])], 1),
    "broadcasts": lambda x: tf.reshape(tf.broadcast_to(x[:, None], [tf.shape(x)[0], 2, 6]), [tf.shape(x)[0], 12]),
    "turned matrices": lambda x: tf.matmul(x, WEIGHT, transpose_b=True) + tf.transpose(
        tf.matmul(WEIGHT, x, transpose_b=True)),
    "matrices of rows": lambda x: tf.reshape(tf.matmul(fields(x), fields(2 * x), transpose_b=True) + tf.linalg.matmul(
        fields(x), fields(x), transpose_a=True)[:, :2, 1:], [-1, 4]),
    "sums of products": lambda x: tf.concat([
        tf.einsum("bi,oi->bo", x, WEIGHT), tf.transpose(tf.einsum("oi,bi->ob", WEIGHT, x)),
        tf.reshape(tf.einsum("bfd,bgd->bfg", fields(x), fields(x)), [-1, 4]),
        tf.einsum("bfd,bf->bd", fields(x), x[:, :2]),
        tf.reshape(tf.einsum("bfd,dk->bkf", fields(x), WEIGHT[:3]), [-1, 12])], 1),
}


class Function(keras.layers.Layer):
    def __init__(self, function):
        super().__init__()
        self.function, self.table = function, keras.layers.Embedding(9, 4)

    def call(self, x):
        return self.function(x)


def of_numbers(function):
    x = keras.Input((6,), name="x")
    return keras.Model(x, Function(function)(x))


def of_history(scale):
    """A model whose pooled events are multiplied by a number of ids."""
    history = keras.Input((5,), dtype="int32", name="history")
    layer = Function(lambda h: tf.reduce_sum(layer.table(h) * by(h != 0)[:, :, None], 1) * scale(h))
    return keras.Model(history, layer(history))


AXES = {"history": "row/history[]"}


def count(history):
    return tf.reduce_sum(by(history != 0), 1, keepdims=True)


@pytest.mark.parametrize("name", OPS)
def test_ops(name, rng):
    check(of_numbers(OPS[name]), rng.normal(size=(B, 6)).astype(np.float32))


@pytest.mark.parametrize("scale", [
    lambda h: by(count(h), "bool"), lambda h: by(count(h) / 2, "bool"), lambda h: by(count(h), "int32"),
    lambda h: tf.reduce_sum(by(h, "bool"), 1, keepdims=True),
    lambda h: tf.reduce_sum(by(by(h != 0) * 0.5, "bool"), 1, keepdims=True)])
def test_conversions_of_events(scale, rng):
    check(of_history(scale), ids(rng, 3, 5), axes=AXES)


@pytest.mark.parametrize("scale, got", [
    (lambda h: by(count(h) / 2, "int32"), "a conversion to int32"),
    (lambda h: tf.reduce_sum(by(by(h != 0) * 0.5, "int32"), 1, keepdims=True), "a conversion to int32"),
    (lambda h: by(tf.cast(count(h), "int32") - 9, "uint8"), "a conversion to uint8"),
    (lambda h: by(tf.raw_ops.Div(x=tf.cast(count(h), "int32"), y=2)), "'Div' of int32"),
    (lambda h: by(tf.reduce_mean(tf.cast(h != 0, "int32"), 1, keepdims=True)), "'Mean' of int32")])
def test_what_rounds_is_refused(scale, got):
    with pytest.raises(wr.InvalidArgument, match=f"expected floating-point numbers, got {got}"):
        wr.keras.export(of_history(scale), AXES)


def test_places_of_events_and_masks_of_truth_values(rng):
    class Places(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.table = keras.layers.Embedding(9, 4)
            self.places = keras.layers.Embedding(5, 4)

        def call(self, history, is_event):
            x = self.table(history) + self.places(tf.range(tf.shape(history)[1]))[None]
            kept = tf.cast(is_event, tf.float32)[:, :, None]
            return tf.concat([tf.reduce_sum(x * kept, 1), tf.reduce_max(tf.where(is_event[:, :, None], x, -1e9), 1)], 1)

    history = keras.Input((5,), dtype="int32", name="history")
    is_event = keras.Input((5,), dtype="bool", name="is_event")
    context = keras.Input((8,), name="context")
    model = keras.Model([history, is_event, context], Places()(history, is_event) + context)
    batch = [ids(rng, 9, 5), np.arange(5) < rng.integers(1, 6, (B, 1)), rng.normal(size=(B, 8)).astype(np.float32)]
    exported = check(model, batch, axes={"history": "row/history[]", "is_event": "row/history[]", "context": "row"})
    data, _ = exported.columns(batch)
    assert len(data["history"].values) == np.count_nonzero(batch[1])

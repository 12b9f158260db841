# SPDX-License-Identifier: Apache-2.0
"""xDeepFM's compressed interaction network and AutoInt's layers of Keras: a launch for each layer."""

import keras
import pytest
import tensorflow as tf
from test_export import B, check
from test_models import kinds

import warprank as wr
import warprank.keras

FIELDS, DIM = 5, 8


def outer_by_product(x, fields):
    return tf.reshape(x[:, :, None] * fields[:, None], [-1, x.shape[1] * FIELDS, DIM])


def outer_by_matrices(x, fields):
    made = tf.matmul(tf.split(x, DIM, 2), tf.split(fields, DIM, 2), transpose_b=True)
    return tf.transpose(tf.reshape(made, [DIM, -1, x.shape[1] * FIELDS]), [1, 2, 0])


class Cin(keras.layers.Layer):
    def __init__(self, outer):
        super().__init__()
        self.outer = outer
        self.maps = [keras.layers.Dense(size, "relu") for size in (6, 4)]

    def call(self, fields):
        first, last = self.maps
        halves = tf.split(tf.transpose(first(tf.transpose(self.outer(fields, fields), [0, 2, 1])), [0, 2, 1]), 2, 1)
        made = tf.transpose(last(tf.transpose(self.outer(halves[0], fields), [0, 2, 1])), [0, 2, 1])
        return tf.reduce_sum(tf.concat([halves[1], made], 1), -1)


class Interacting(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.parts = [keras.layers.Dense(DIM, use_bias=False) for _ in range(4)]

    def call(self, x):
        *projected, residual = (part(x) for part in self.parts)
        query, key, value = (tf.stack(tf.split(y, 2, 2)) for y in projected)
        weights = tf.nn.softmax(tf.matmul(query, key, transpose_b=True) / (DIM // 2) ** 0.5)
        made = tf.squeeze(tf.concat(tf.split(tf.matmul(weights, value), 2), -1), 0)
        return tf.reshape(tf.nn.relu(made + residual), [-1, FIELDS * DIM])


@pytest.mark.parametrize("part, op", [
    (lambda: Cin(outer_by_product), "field_linear"), (lambda: Cin(outer_by_matrices), "field_linear"),
    (Interacting, "field_attention")])
def test_layers_over_fields(part, op, rng, trained):
    x = keras.Input((FIELDS,), name="x", dtype="int32")
    made = part()(keras.layers.Embedding(20, DIM)(x))
    exported = check(trained(keras.Model(x, keras.layers.Dense(1)(made))), rng.integers(0, 20, (B, FIELDS)))
    assert kinds(exported).count(f'"op": "{op}"') == (2 if op == "field_linear" else 1)
    assert wr.compile(exported.graph).num_steps == (5 if op == "field_linear" else 3)

# SPDX-License-Identifier: Apache-2.0
"""xDeepFM's compressed interaction network in Keras: a launch for each layer."""

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


@pytest.mark.parametrize("outer", [outer_by_product, outer_by_matrices])
def test_cin(outer, rng, trained):
    x = keras.Input((FIELDS,), name="x", dtype="int32")
    made = Cin(outer)(keras.layers.Embedding(20, DIM)(x))
    exported = check(trained(keras.Model(x, keras.layers.Dense(1)(made))), rng.integers(0, 20, (B, FIELDS)))
    assert kinds(exported).count('"op": "field_linear"') == 2 and wr.compile(exported.graph).num_steps == 5

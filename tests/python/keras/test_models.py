# SPDX-License-Identifier: Apache-2.0
"""Whole models, exported as they are: scores as Keras', and planned into as many steps as the Builder's models."""

import keras
import models
import numpy as np
import pytest
import references
import tensorflow as tf
from test_export import B, check, ids

import warprank as wr
import warprank.keras


def padded(rng, high, length):
    """Histories of 1 to length ids, and zeros behind them."""
    return np.where(np.arange(length) < rng.integers(1, length + 1, (B, 1)), rng.integers(1, high, (B, length)), 0)


def planned_like(exported, reference):
    assert wr.compile(exported.graph).num_steps == wr.compile(reference).num_steps
    return exported


def kinds(exported):
    return wr.compile(exported.graph).graph.to_json()


def din_batch(rng):
    history = padded(rng, 80, 7)
    return {"user_id": ids(rng, 50, 1), "context": rng.normal(size=(B, 3)).astype(np.float32),
            "film_id": ids(rng, 80, 1), "genre_id": ids(rng, 9, 1), "hist_film_id": history,
            "hist_genre_id": np.where(history > 0, rng.integers(1, 9, history.shape), 0)}


DIN_AXES = {"user_id": "user", "context": "user", "film_id": "user/item", "genre_id": "user/item",
            "hist_film_id": "user/history[]", "hist_genre_id": "user/history[]"}


@pytest.fixture
def din(rng, trained):
    model, batch = models.DIN(), din_batch(rng)
    model(batch)
    return trained(model), batch


def test_din(din):
    model, batch = din
    exported = planned_like(check(model, batch, axes=DIN_AXES, example_batch=batch), references.din)
    assert '"op": "din_attention"' in kinds(exported)
    assert [a.name for a in wr.compile(exported.graph).axes] == ["user", "item", "history"]
    assert {"attention.0.dice.alpha", "tower/dense_3.dice.alpha"} <= exported.weights.keys()
    assert set(exported.tables) == {"embedding", "embedding_1", "embedding_2"}


@pytest.mark.parametrize("model, reference", [(models.mmoe, references.mmoe), (models.ple, references.ple)])
def test_mixtures(model, reference, rng, trained):
    exported = check(trained(model()), rng.normal(size=(B, 12)).astype(np.float32))
    assert '"op": "mix"' in kinds(planned_like(exported, reference))


@pytest.mark.parametrize("crosses, reference", [(0, references.dlrm), (3, references.dcn_v2)])
def test_models_of_examples(crosses, reference, rng, trained):
    batch = {"numbers": rng.normal(size=(B, 13)).astype(np.float32), "categories": ids(rng, 4, 26)}
    axes = {"numbers": "request/sample", "categories": "request/sample"}
    planned_like(check(trained(models.criteo(crosses)), batch, axes=axes), reference)


def test_two_towers_with_a_transformer(rng, trained):
    batch = {"context": rng.normal(size=(B, 3)).astype(np.float32), "film_id": ids(rng, 80, 1),
             "history": padded(rng, 80, 7)}
    axes = {"context": "user", "film_id": "user/item", "history": "user/history[]"}
    exported = planned_like(check(trained(models.two_towers()), batch, axes=axes), references.two_towers)
    assert kinds(exported).count('"op": "attention"') == 2
    assert sorted(table.shape for table in exported.tables.values()) == [(7, 16), (80, 16)]


def test_attention_with_masks_of_keras(rng, trained):
    history, context = keras.Input((7,), dtype="int32", name="history"), keras.Input((8,), name="context")
    x = keras.layers.Embedding(20, 8, mask_zero=True)(history)
    x = keras.layers.MultiHeadAttention(2, 4)(x, x)
    model = keras.Model([history, context], keras.layers.GlobalAveragePooling1D()(x) + context)
    batch = [padded(rng, 20, 7), rng.normal(size=(B, 8)).astype(np.float32)]
    exported = check(trained(model), batch, axes={"history": "row/history[]", "context": "row"})
    assert '"op": "attention"' in kinds(exported)


def test_deepfm_has_the_op(rng, trained):
    batch = {name: ids(rng, 10, 1) for name in "abc"} | {"numbers": rng.normal(size=(B, 2)).astype(np.float32)}
    text = kinds(planned_like(check(trained(models.deepfm(dict.fromkeys("abc", 10), 2)), batch), references.deepfm))
    assert text.count('"op": "fm"') == 1 and '"square"' not in text


ALPHA = np.float32([0.1, 0.2, 0.3, 0.4])


@pytest.mark.parametrize("sign, is_one, function", [
    ('"silu"', True, lambda x: x * tf.sigmoid(x)),
    ('"silu"', True, lambda x: tf.nn.silu(x)),
    ('"silu"', False, lambda x: x * tf.sigmoid(2 * x)),
    ('"silu"', False, lambda x: x * tf.sigmoid(tf.reverse(x, [1]))),
    ('"gelu"', True, lambda x: tf.nn.gelu(x)),
    ('"gelu"', True, lambda x: 0.5 * x * (1 + tf.math.erf(x / np.sqrt(2.0)))),
    ('"gelu_tanh"', True, lambda x: tf.nn.gelu(x, approximate=True)),
    ('"gelu_tanh"', False, lambda x: 0.5 * x * (1 + tf.tanh(0.8 * (x + 0.044715 * x**3)))),
    ('"gelu_tanh"', False, lambda x: 0.4 * x * (1 + tf.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))),
    ("prelu.alpha", True, lambda x: tf.nn.relu(x) - ALPHA * tf.nn.relu(-x)),
    ("prelu.alpha", True, lambda x: tf.nn.relu(x) + tf.nn.relu(-x) * ALPHA),
    ("prelu.alpha", False, lambda x: tf.nn.relu(x) - ALPHA * tf.nn.relu(x)),
    ("prelu.alpha", False, lambda x: tf.nn.relu(x) - ALPHA * tf.nn.relu(-tf.reverse(x, [1]))),
    ("prelu.alpha", False, lambda x: tf.nn.relu(x) - (ALPHA * tf.nn.relu(-x) + ALPHA)),
    ('"layer_norm"', True, lambda x: normed(x, *moments(x)) * ALPHA + 1),
    ('"layer_norm"', True, lambda x: tf.nn.batch_normalization(x, *moments(x), ALPHA, ALPHA, 1e-3)),
    ('"layer_norm"', True, lambda x: (x - moments(x)[0]) * tf.math.rsqrt(moments(x)[1] + 1e-3)),
    ('"layer_norm"', False, lambda x: normed(x, moments(x)[0], tf.reduce_mean(x**2, 1, keepdims=True))),
    ('"layer_norm"', False, lambda x: normed(x, *moments(x[:, :2]))),
    ('"layer_norm"', True, lambda x: normed(tf.reverse(x, [1]), *moments(x))),
    ('"layer_norm"', True, lambda x: (normed(x, *moments(x)) * ALPHA + ALPHA) * ALPHA),
    ('"layer_norm"', False, lambda x: normed(x, mean(x[:, :2]), mean(tf.square(x - mean(x[:, :2]))))),
    ('"layer_norm"', False, lambda x: normed(x, mean(x), mean(tf.square(
        x - tf.concat([mean(x), mean(x), x[:, :2]], 1))))),
    ('"layer_norm"', False, lambda x: x * root(x) + (-moments(x)[0] * root(x)) * ALPHA),
    ('"layer_norm"', True, lambda x: x * root(x) + (1 - moments(x)[0] * root(x))),
])
def test_what_is_an_op_and_what_is_nearly_one(sign, is_one, function, rng):
    class Function(keras.layers.Layer):
        def call(self, x):
            return function(x)

    x = keras.Input((4,), name="x")
    exported = check(keras.Model(x, Function()(x)), rng.normal(size=(B, 4)).astype(np.float32))
    assert (sign in exported.graph.to_json() + " ".join(exported.weights)) == is_one


def moments(x):
    return tf.nn.moments(x, [1], keepdims=True)


def mean(x):
    return tf.reduce_mean(x, 1, keepdims=True)


def root(x):
    return tf.math.rsqrt(moments(x)[1] + 1e-3)


def normed(x, mean, variance):
    return (x - mean) / tf.sqrt(variance + 1e-3)

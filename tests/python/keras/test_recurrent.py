# SPDX-License-Identifier: Apache-2.0
"""Keras' GRU over the events of a history."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops
from test_export import B, check, ids
from test_models import kinds

import warprank as wr
import warprank.keras

L, D, H = 5, 4, 3
AXES = {"history": "row/history[]", "film": "row"}


def batch_of(rng):
    """Histories of 5, 1, no, 3, 2 and 4 events, with padding behind them."""
    counts = np.array([5, 1, 0, 3, 2, 4, 5])
    return {"film": ids(rng, 20, 1), "history": ids(rng, 20, L, low=1) * (np.arange(L) < counts[:, None])}


def model(recurrent, mask_zero=True):
    history, film = keras.Input((L,), dtype="int32", name="history"), keras.Input((1,), dtype="int32", name="film")
    x = layers.Embedding(20, D, mask_zero=mask_zero)(history)
    pooled = recurrent(x, history)
    return keras.Model([history, film], layers.Dense(1)(layers.Concatenate()([
        pooled, layers.Flatten()(layers.Embedding(20, D)(film))])))


def mean(x, history):
    kept = ops.cast(ops.not_equal(history, 0), "float32")[:, :, None]
    return ops.sum(x * kept, 1) / ops.maximum(ops.sum(kept, 1), 1.0)


def of_states(x, history):
    states, last = layers.GRU(H, return_sequences=True, return_state=True)(x)
    return ops.concatenate([mean(states, history), last], -1)


RECURRENT = {
    "the last state": (lambda x, h: layers.GRU(H)(x), 1),
    "without biases": (lambda x, h: layers.GRU(H, use_bias=False)(x), 1),
    "all states": (lambda x, h: mean(layers.GRU(H, return_sequences=True)(x), h), 1),
    "all states, without a mask": (lambda x, h: mean(layers.GRU(H, return_sequences=True)(x + 0.0), h), 1),
    "states, and the last": (of_states, 1),
    "as many columns as an event has": (lambda x, h: layers.GRU(D)(x), 1),
    "two layers": (lambda x, h: layers.GRU(H)(layers.GRU(D, return_sequences=True)(x)), 2),
}


@pytest.mark.parametrize("case", RECURRENT)
def test_layers(case, rng, trained, tmp_path):
    recurrent, count = RECURRENT[case]
    made, batch = trained(model(recurrent)), batch_of(rng)
    exported = check(made, batch, axes=AXES)
    assert kinds(exported).count('"cell": "gru"') == count
    for rows in (slice(1, 3), slice(2, 4)):  # of one event, and of none
        assert exported.check({name: x[rows] for name, x in batch.items()})["output"].largest <= 1e-5
    made.export(str(tmp_path / "saved"))
    check(str(tmp_path / "saved"), batch, axes=AXES, example_batch=batch)


class Loop(layers.Layer):
    """Keras' loop over events, whose condition, step or list may be another."""

    def __init__(self, goes_on=lambda time, state: time < L, step=1, listed=lambda state: state):
        super().__init__()
        self.cell, self.goes_on, self.by, self.listed = layers.GRUCell(H), goes_on, step, listed

    def build(self, shape):
        self.cell.build((shape[0], shape[2]))

    def call(self, x):
        events = tf.TensorArray(tf.float32, L).unstack(tf.transpose(x, [1, 0, 2]))

        def step(time, states, state):
            made, _ = self.cell(events.read(time), state)
            return time + self.by, states.write(time, self.listed(made)), made
        _, states, _ = tf.while_loop(lambda time, states, state: self.goes_on(time, state), step, (
            0, tf.TensorArray(tf.float32, L, element_shape=(None, H)), tf.zeros((tf.shape(x)[0], H))), maximum_iterations=L)
        return tf.transpose(tf.reshape(states.stack(), (L, -1, H)), [1, 0, 2])


def test_a_loop_that_is_written(rng, trained):
    exported = check(trained(model(lambda x, h: mean(Loop()(x), h), mask_zero=False)), batch_of(rng), axes=AXES)
    assert kinds(exported).count('"cell": "gru"') == 1


@pytest.mark.parametrize("options", [
    {"goes_on": lambda time, state: time < L - 1}, {"goes_on": lambda time, state: (time < L) & (state[0, 0] < 9)},
    {"step": 2}, {"listed": lambda state: 2 * state}], ids=["fewer", "by a state", "every second", "other lists"])
def test_other_loops_are_refused(options, trained):
    with pytest.raises(wr.InvalidArgument, match="got another loop, While"):
        wr.keras.export(trained(model(lambda x, h: mean(Loop(**options)(x), h), mask_zero=False)), axes=AXES)


@pytest.mark.parametrize("recurrent, expected", [
    (lambda x, h: layers.GRU(H, reset_after=False)(x), "GRU with reset_after=True, got another loop, While"),
    (lambda x, h: layers.GRU(H, activation="relu")(x), "GRU with reset_after=True, got another loop, While"),
    (lambda x, h: layers.GRU(H, recurrent_activation="hard_sigmoid")(x), "got another loop, While"),
    (lambda x, h: layers.LSTM(H)(x), "GRU with reset_after=True, got another loop, While"),
    (lambda x, h: layers.SimpleRNN(H)(x), "GRU with reset_after=True, got another loop, While"),
    (lambda x, h: layers.GRU(H, go_backwards=True)(x), "expected all events of a sequence, got some of them"),
    (lambda x, h: layers.GRU(H)(x, initial_state=layers.Dense(H)(mean(x, h))), "got another loop, While"),
])
def test_other_layers_are_refused(recurrent, expected, trained):
    with pytest.raises(wr.InvalidArgument, match=expected):
        wr.keras.export(trained(model(recurrent)), axes=AXES)


def test_a_state_behind_padding_is_refused(trained):
    def unmasked(x, history):
        return layers.GRU(H)(x + 0.0) + ops.sum(mean(x, history), -1, keepdims=True)
    with pytest.raises(wr.InvalidArgument, match="got h_n of padded events, a state behind padding"):
        wr.keras.export(trained(model(unmasked, mask_zero=False)), axes=AXES)


def test_batches_with_padding_ahead_are_refused(rng, trained):
    exported = wr.keras.export(trained(model(RECURRENT["the last state"][0])), axes=AXES)
    batch = batch_of(rng) | {"history": np.array([[0, 1, 2, 0, 0]] * B)}
    with pytest.raises(wr.InvalidArgument, match="got padding ahead of an event in row 0"):
        exported.columns(batch)

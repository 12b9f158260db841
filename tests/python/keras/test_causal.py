# SPDX-License-Identifier: Apache-2.0
"""Attention of events to what came before them, in the ways in which Keras masks it."""

import keras
import numpy as np
import pytest
from keras import layers, ops
from test_export import B, check, ids
from test_models import kinds, padded

import warprank as wr
import warprank.keras

L, D = 7, 8
AXES = {"history": "row/history[]", "context": "row"}
TRIANGLE = np.tril(np.ones((L, L), bool))


def model(attended, mask_zero=True):
    """The mean of what events attend to."""
    history, context = keras.Input((L,), dtype="int32", name="history"), keras.Input((D,), name="context")
    x = attended(layers.Embedding(20, D, mask_zero=mask_zero)(history), history)
    mean = layers.GlobalAveragePooling1D()(x, mask=ops.not_equal(history, 0) if mask_zero else None)
    return keras.Model([history, context], mean + context)


def heads(x, mask=None, dropout=0.0, causal=True):
    attention = layers.MultiHeadAttention(2, 4, dropout=dropout, name="block")
    return attention(x, x, attention_mask=mask, use_causal_mask=causal)


def kept(history):
    return ops.not_equal(history, 0)[:, None]


class Written(layers.Layer):
    """Attention in ops of Keras."""

    def __init__(self, masked):
        super().__init__()
        self.supports_masking, self.masked = True, masked

    def call(self, x, history):
        scores = ops.matmul(x, ops.transpose(x, (0, 2, 1))) / np.float32(np.sqrt(D))
        return ops.matmul(ops.softmax(self.masked(scores, kept(history)), axis=-1), x)


def written(masked):
    return lambda x, history: Written(masked)(x, history)


PADDED = {
    "use_causal_mask": lambda x, h: heads(x),
    "use_causal_mask, with dropout": lambda x, h: heads(x, dropout=0.1),
    "attention_mask": lambda x, h: heads(x, TRIANGLE[None], causal=False),
    "both masks": lambda x, h: heads(x, ops.logical_and(TRIANGLE, kept(h)), causal=False),
    "layers.Attention": lambda x, h: layers.Attention()([x, x], use_causal_mask=True),
    "where": written(lambda s, kept: ops.where(ops.logical_and(TRIANGLE, kept), s, -1e9)),
    "numbers": written(lambda s, kept: s + (1 - TRIANGLE.astype("float32")) * -1e9 + ops.where(kept, 0.0, -1e9)),
}


@pytest.mark.parametrize("name", PADDED)
def test_padded(name, rng, trained):
    batch = [padded(rng, 20, L), rng.normal(size=(B, D)).astype(np.float32)]
    text = kinds(check(trained(model(PADDED[name])), batch, axes=AXES))
    assert text.count('"op": "attention"') == text.count('"causal": true') == 1


@pytest.mark.parametrize("dropout", [0, 0.1])
@pytest.mark.parametrize("causal", [False, True])
def test_without_padding(dropout, causal, rng, trained):
    batch = [ids(rng, 20, L), rng.normal(size=(B, D)).astype(np.float32)]
    made = model(lambda x, _: heads(x, None, dropout, causal), mask_zero=False)
    text = kinds(check(trained(made), batch, axes=AXES))
    assert text.count('"op": "attention"') == 1 and ('"causal": true' in text) == causal


def blocks(x, history):
    """SASRec: Kang and McAuley 2018."""
    x = x + layers.Embedding(L, D)(ops.arange(L))
    for i in range(2):
        y = layers.LayerNormalization()(x)
        y = layers.MultiHeadAttention(2, 4, dropout=0.2, name=f"block_{i}")(
            y, x, attention_mask=kept(history), use_causal_mask=True)
        x = layers.LayerNormalization()(x + y)
        x = x + layers.Dense(D)(layers.Dense(2 * D, activation="relu")(x))
    return x


def test_transformers(rng, trained):
    batch = [padded(rng, 20, L), rng.normal(size=(B, D)).astype(np.float32)]
    text = kinds(check(trained(model(blocks)), batch, axes=AXES))
    assert text.count('"op": "attention"') == text.count('"causal": true') == 2


# --- what is wrong


@pytest.mark.parametrize("attended, message", [
    (lambda x, h: heads(x, TRIANGLE.T[None], causal=False),
     "layer 'block': Einsum .* expected attention in which each event sees itself, too, got one without the diagonal"),
    (lambda x, h: heads(x, np.tri(L, k=1, dtype=bool)[None], 0.1, False), "layer 'block': .* a triangle, got another"),
    (written(lambda s, kept: s + ops.where(kept, 0.0, -1e9) + (1 - TRIANGLE.astype("float32"))),
     "expected a softmax in which what comes later is masked, got one of that, too"),
])
def test_other_masks(attended, message):
    with pytest.raises(wr.InvalidArgument, match=message):
        wr.keras.export(model(attended), axes=AXES)

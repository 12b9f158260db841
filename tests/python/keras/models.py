# SPDX-License-Identifier: Apache-2.0
"""Ranking models as users of Keras write them: none knows of warprank."""

import keras
from keras import layers, ops


def deepfm(vocabularies, num_dense, dim=8, hidden=(32, 16)):
    """Guo et al. 2017: a table and a weight for each field, FM over the embeddings, an MLP beside it."""
    ids = {name: keras.Input((1,), dtype="int32", name=name) for name in vocabularies}
    dense = keras.Input((num_dense,), name="numbers")
    embeddings = [layers.Embedding(n, dim, name=f"embed_{name}")(ids[name]) for name, n in vocabularies.items()]
    first = [layers.Flatten()(layers.Embedding(n, 1, name=f"first_{name}")(ids[name]))
             for name, n in vocabularies.items()]
    linear = layers.Add()([*first, layers.Dense(1, name="linear")(dense)])
    fields = layers.Concatenate(axis=1)(embeddings)
    square_of_sum = ops.square(ops.sum(fields, axis=1))
    sum_of_square = ops.sum(ops.square(fields), axis=1)
    fm = 0.5 * ops.sum(square_of_sum - sum_of_square, axis=1, keepdims=True)
    deep = layers.Concatenate()([layers.Flatten()(fields), dense])
    for size in hidden:
        deep = layers.Dense(size)(deep)
        deep = layers.BatchNormalization()(deep)
        deep = layers.Activation("relu")(deep)
        deep = layers.Dropout(0.2)(deep)
    logit = layers.Add()([linear, fm, layers.Dense(1)(deep)])
    return keras.Model([*ids.values(), dense], layers.Activation("sigmoid")(logit))


class Cross(layers.Layer):
    """DCN-v2's layer with a weight of its own, x0 * (x W + b) + x."""

    def build(self, x0_shape, x_shape):
        width = x_shape[-1]
        self.kernel = self.add_weight(shape=(width, width), name="kernel")
        self.bias = self.add_weight(shape=(width,), name="bias", initializer="random_normal")

    def call(self, x0, x):
        return x0 * (ops.matmul(x, self.kernel) + self.bias) + x


def dcn_v2(dim=8):
    """Wang et al. 2021, parallel, for users and films, with tags that are pooled."""
    user = keras.Input((1,), dtype="int64", name="user_id")
    film = keras.Input((1,), dtype="int64", name="film_id")
    tags = keras.Input((None,), dtype="int64", name="tags")
    context = keras.Input((3,), name="context")
    pooled = layers.GlobalAveragePooling1D()(layers.Embedding(20, dim, mask_zero=True, name="tag")(tags))
    x0 = layers.Concatenate()([
        layers.Flatten()(layers.Embedding(50, dim, name="user")(user)),
        layers.Flatten()(layers.Embedding(80, dim, name="film")(film)),
        pooled, layers.LayerNormalization()(context)])
    x = x0
    for i in range(2):
        x = Cross(name=f"cross_{i}")(x0, x)
    x = layers.Add()([layers.Multiply()([x0, layers.Dense(x0.shape[-1])(x)]), x])
    tower = keras.Sequential([layers.Dense(32, activation="gelu"), layers.Dense(16, activation="silu")], name="tower")
    both = layers.Concatenate()([x, tower(x0)])
    outputs = {name: layers.Dense(1, activation="sigmoid", name=name)(both) for name in ("ctr", "like")}
    return keras.Model([user, film, tags, context], outputs)


def din(length=6, dim=8, softmax=False):
    """Zhou et al. 2018: attention of the target over the history, whose padding is 0."""
    history = keras.Input((length,), dtype="int32", name="history")
    film = keras.Input((1,), dtype="int32", name="film_id")
    age = keras.Input((1,), name="age")
    table = layers.Embedding(40, dim, name="film")
    keys, query = table(history), table(film)
    queries = ops.repeat(query, length, axis=1)
    x = layers.Concatenate(axis=-1)([queries, keys, queries - keys, queries * keys])
    x = layers.Dense(16, name="att_0")(x)
    x = layers.PReLU(shared_axes=[1])(x)
    weights = layers.Dense(1, name="att_1")(x)
    mask = ops.cast(ops.not_equal(history, 0), "float32")[:, :, None]
    if softmax:
        weights = ops.softmax(weights + (1.0 - mask) * -1e9, axis=1)
    interest = ops.sum(weights * mask * keys, axis=1)
    x = layers.Concatenate()([interest, layers.Flatten()(query), age])
    for size in (16, 8):
        x = layers.Dense(size)(x)
        x = layers.PReLU()(x)
    return keras.Model([history, film, age], layers.Dense(1, activation="sigmoid", name="ctr")(x))

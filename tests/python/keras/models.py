# SPDX-License-Identifier: Apache-2.0
"""Ranking models as users of Keras write them: none knows of warprank."""

import keras
import tensorflow as tf
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


def criteo_deepfm(buckets=1000, dim=8, hidden=(32, 16), boundaries=(0, 1, 2, 4, 8, 16, 64, 256, 1024)):
    """A DeepFM of rows as Criteo's logs have them: intervals of 13 integers, buckets of 26 words. Missing integers are
    NaN, missing words empty."""
    integers = [keras.Input((1,), name=f"I{i}") for i in range(1, 14)]
    words = [keras.Input((1,), dtype="string", name=f"C{i}") for i in range(1, 27)]
    ids = [(layers.Discretization(list(map(float, boundaries)), name=f"interval_{x.name}")(x), len(boundaries) + 1)
           for x in integers]
    ids += [(layers.Hashing(buckets, mask_value="", name=f"bucket_{x.name}")(x), buckets) for x in words]
    fields = layers.Concatenate(axis=1)([layers.Embedding(n, dim)(x) for x, n in ids])
    wide = layers.Add()([layers.Flatten()(layers.Embedding(n, 1)(x)) for x, n in ids])
    squares = ops.square(ops.sum(fields, axis=1)) - ops.sum(ops.square(fields), axis=1)
    deep = mlp(layers.Flatten()(fields), hidden)
    logit = layers.Add()([wide, 0.5 * ops.sum(squares, axis=1, keepdims=True), layers.Dense(1)(deep)])
    return keras.Model([*integers, *words], layers.Activation("sigmoid", name="ctr")(logit))


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


def din(length=6, dim=8, softmax=False, words=None):
    """Zhou et al. 2018: attention of the target over the history, whose padding is 0, or no word."""
    given = [keras.Input((length,), dtype="string" if words else "int32", name="history"),
             keras.Input((1,), dtype="string" if words else "int32", name="film_id"), keras.Input((1,), name="age")]
    history, film, age = given
    if words:
        lookup = layers.StringLookup(vocabulary=words, mask_token="", name="lookup")
        history, film = lookup(history), lookup(film)
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
    return keras.Model(given, layers.Dense(1, activation="sigmoid", name="ctr")(x))


class Dice(layers.Layer):
    """As in DeepCTR, in TensorFlow's own functions."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.norm = layers.BatchNormalization(center=False, scale=False, epsilon=1e-9)

    def build(self, shape):
        self.alpha = self.add_weight(shape=(shape[-1],), name="alpha", initializer="random_uniform")

    def call(self, x):
        p = tf.sigmoid(self.norm(x))
        return self.alpha * (1.0 - p) * x + p * x


class Attention(layers.Layer):
    """The score of each event: an MLP of [q, k, q - k, q * k]."""

    def __init__(self, hidden=(16, 8), **kwargs):
        super().__init__(**kwargs)
        self.units = [(layers.Dense(size), Dice()) for size in hidden]
        self.last = layers.Dense(1)

    def call(self, query, keys, mask):
        queries = tf.tile(query, [1, tf.shape(keys)[1], 1])
        x = tf.concat([queries, keys, queries - keys, queries * keys], axis=-1)
        for dense, dice in self.units:
            x = dice(dense(x))
        scores = tf.matmul(tf.transpose(self.last(x) * tf.expand_dims(tf.cast(mask, tf.float32), -1), [0, 2, 1]), keys)
        return tf.squeeze(scores, 1)


class DIN(keras.Model):
    """Zhou et al. 2018, as a class: what of the history is like the candidate."""

    def __init__(self, num_users=50, num_films=80, num_genres=9, dim=8):
        super().__init__()
        self.user = layers.Embedding(num_users, dim)
        self.film = layers.Embedding(num_films, dim)
        self.genre = layers.Embedding(num_genres, dim)
        self.attention = Attention()
        self.tower = keras.Sequential([layers.Dense(32), Dice(), layers.Dense(1, activation="sigmoid")],
                                      name="tower")

    def event(self, film_id, genre_id):
        return tf.concat([self.film(film_id), self.genre(genre_id)], axis=-1)

    def call(self, inputs):
        query = self.event(inputs["film_id"], inputs["genre_id"])
        keys = self.event(inputs["hist_film_id"], inputs["hist_genre_id"])
        interest = self.attention(query, keys, tf.not_equal(inputs["hist_film_id"], 0))
        user = tf.concat([tf.squeeze(self.user(inputs["user_id"]), 1), inputs["context"]], axis=-1)
        return self.tower(tf.concat([user, interest, tf.squeeze(query, 1)], axis=-1))


def mlp(x, sizes):
    for size in sizes:
        x = layers.Dense(size, activation="relu")(x)
    return x


def mmoe(width=12, experts=4, sizes=(16, 8)):
    """Ma et al. 2018, with ESMM's product of two targets."""
    x = keras.Input((width,), name="x")
    mixed = ops.stack([mlp(x, sizes) for _ in range(experts)], axis=1)  # [B, E, D]
    scores = []
    for _ in range(2):
        gate = layers.Dense(experts, activation="softmax", use_bias=False)(x)
        state = ops.sum(gate[:, :, None] * mixed, axis=1)
        scores.append(layers.Dense(1, activation="sigmoid")(mlp(state, [8])))
    return keras.Model(x, {"ctr": scores[0], "ctcvr": scores[0] * scores[1]})


def ple(width=12, sizes=(16, 8), tasks=2, own=2, shared=2):
    """Tang et al. 2020."""
    x = keras.Input((width,), name="x")
    states = [x] * (tasks + 1)
    for level, size in enumerate(sizes):
        of_tasks = [[mlp(state, [size]) for _ in range(own)] for state in states[:-1]]
        of_all = [mlp(states[-1], [size]) for _ in range(shared)]
        made = []
        for state, experts in zip(states, [*(e + of_all for e in of_tasks), sum(of_tasks, []) + of_all]):
            gate = layers.Softmax()(layers.Dense(len(experts))(state))
            made.append(layers.Flatten()(layers.Dot(axes=1)([layers.Reshape((-1, 1))(gate), ops.stack(experts, 1)])))
            if level + 1 == len(sizes) and len(made) == tasks:
                break
        states = made
    return keras.Model(x, [layers.Dense(1, activation="sigmoid")(mlp(state, [4])) for state in states])


def two_towers(num_films=80, length=7, dim=16, heads=2):
    """The product of a user's vector and a film's, the user's from a transformer over the history."""
    context = keras.Input((3,), name="context")
    film = keras.Input((1,), dtype="int32", name="film_id")
    history = keras.Input((length,), dtype="int32", name="history")
    table = layers.Embedding(num_films, dim, mask_zero=True, name="film")
    x = table(history) + layers.Embedding(length, dim, name="position")(ops.arange(length))
    for _ in range(2):
        attended = layers.MultiHeadAttention(heads, dim // heads)(x, x, attention_mask=ops.not_equal(history, 0)[
            :, None, :])
        x = layers.LayerNormalization(epsilon=1e-5)(layers.Add()([x, layers.Dropout(0.1)(attended)]))
        inner = layers.Dense(dim)(layers.Dense(2 * dim, activation="relu")(x))
        x = layers.LayerNormalization(epsilon=1e-5)(layers.Add()([x, inner]))
    pooled = layers.GlobalAveragePooling1D()(x, mask=ops.not_equal(history, 0))
    user = layers.Dense(dim)(layers.Dense(16, activation="relu")(layers.Concatenate()([pooled, context])))
    item = layers.Dense(dim)(layers.Flatten()(table(film)))
    return keras.Model([context, film, history], ops.sum(user * item, axis=-1))


def criteo(crosses, rows=4, dim=128, rank=512):
    """13 numbers and 26 ids in the shape of MLPerf's DLRM; DCN-v2 with low-rank crosses, or DLRM's dots."""
    numbers = keras.Input((13,), name="numbers")
    categories = keras.Input((26,), dtype="int32", name="categories")
    bottom = mlp(numbers, [512, 256, dim])
    fields = [bottom] + [layers.Embedding(rows, dim)(categories[:, i]) for i in range(26)]
    if crosses:
        x0 = x = layers.Concatenate()(fields)
        for _ in range(crosses):
            x = x0 * layers.Dense(x0.shape[-1])(layers.Dense(rank, use_bias=False)(x)) + x
    else:
        stacked = ops.stack(fields, axis=1)
        products = ops.reshape(ops.matmul(stacked, ops.transpose(stacked, (0, 2, 1))), (-1, 27 * 27))
        lower = [27 * i + j for i in range(27) for j in range(i)]
        x = layers.Concatenate()([bottom, ops.take(products, lower, axis=1)])
    return keras.Model([numbers, categories], layers.Dense(1, activation="sigmoid")(mlp(x, [1024, 1024, 512, 256])))

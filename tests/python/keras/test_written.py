# SPDX-License-Identifier: Apache-2.0
"""Weights of models and of checkpoints for a graph that is written by hand."""

import os

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import warprank as wr
import warprank.keras

B = 6
IDS = np.array([7, 10**12, -3, 0, 99])
NAMES = {"tower.0.weight": "hidden/kernel", "tower.0.bias": "hidden/bias"}


def clicks(b):
    row = b.axis("row")
    user = b.embed(b.ids("user_id", row), b.hashed_table("user", dim=4))
    film = b.embed(b.ids("film_id", row), b.table("film", dim=4))
    x = b.batch_norm("norm", b.concat([user, film]), eps=1e-3)
    return {"ctr": b.sigmoid(b.linear("head", b.relu(b.linear("tower.0", x, 8)), 1))}


@pytest.fixture
def model(trained):
    user, film = (keras.Input((), dtype="int64", name=name) for name in ("user_id", "film_id"))
    x = layers.Concatenate()([layers.Embedding(5, 4, name="user")(user), layers.Embedding(9, 4, name="film")(film)])
    x = layers.Dense(8, activation="relu", name="hidden")(layers.BatchNormalization(name="norm")(x))
    return trained(keras.Model([user, film], layers.Dense(1, activation="sigmoid", name="head")(x)))


def checkpoint(model, path):
    """As TensorFlow 1 has one: the table in two parts, and what Adam keeps."""
    v1 = tf.compat.v1
    arrays = wr.keras.variables(model)
    film = arrays.pop("film/embeddings")
    arrays |= {"film/embeddings/part_0": film[:4], "film/embeddings/part_1": film[4:]}
    with tf.Graph().as_default(), v1.Session() as session:
        variables = {name: v1.Variable(array, name=name) for name, array in arrays.items()}
        v1.train.AdamOptimizer().minimize(sum(map(tf.reduce_sum, variables.values())))
        session.run(v1.global_variables_initializer())
        v1.train.Saver().save(session, str(path))
    return path


@pytest.fixture(params=["model", "file", "checkpoint"])
def source(request, model, tmp_path):
    if request.param == "file":
        model.save(tmp_path / "model.keras")
        return tmp_path / "model.keras"
    return model if request.param == "model" else checkpoint(model, tmp_path / "files/model.ckpt")


def wanted(model, users, films):
    return np.asarray(model([users, films]))[:, 0]


def test_scores_are_the_models(model, source, rng, tmp_path):
    """Kernels are transposed, and layers of the same names are found by them."""
    made = wr.keras.weights_of(source, clicks, names=NAMES, hashed={"user": IDS})
    made.save(tmp_path / "out")
    assert sorted(os.listdir(tmp_path / "out")) == ["dense.safetensors", "tables.safetensors"]
    made.plan.graph.save(str(tmp_path / "out/graph.json"))
    users, films = rng.integers(0, 5, B), rng.integers(0, 9, B)
    for ready in made.model(), wr.load(tmp_path / "out"):
        scores = ready.score({"user_id": IDS[users], "film_id": films})["ctr"]
        np.testing.assert_allclose(scores, wanted(model, users, films), atol=1e-6)


@pytest.mark.parametrize("rows, bound", [("f16", 2**-11), ("bf16", 2**-8), ("i8", 2**-8)])
def test_rows_of_other_types(model, rng, rows, bound):
    """Each off by less than half a step of its type, for an INT8 row a 255th of its range; both kinds of tables."""
    made = wr.keras.weights_of(model, clicks, names=NAMES, hashed={"user": IDS}, rows=rows)
    learned = wr.keras.variables(model)
    for name, error in made.row_errors.items():
        table = learned[f"{name}/embeddings"]
        assert error.type == rows and 0 < error.root_mean_square < error.largest
        assert error.largest <= bound * max(np.abs(table).max(), np.ptp(table, 1).max())
    assert made.tables["film"].dtype.itemsize == made.tables["user.rows"].dtype.itemsize == (1 if rows == "i8" else 2)
    users, films = rng.integers(0, 5, B), rng.integers(0, 9, B)
    scores = made.model().score({"user_id": IDS[users], "film_id": films})["ctr"]
    assert 0 < np.abs(scores - wanted(model, users, films)).max() < 0.02
    one = wr.keras.weights_of(model, clicks, names=NAMES, hashed={"user": IDS}, rows={"user": rows})
    assert one.row_errors["film"].largest == 0 and one.row_errors["user"] == made.row_errors["user"]


def test_all_problems_are_told_together(model, source, tmp_path):
    """Also where they are in a file or in a part of a partitioned variable."""
    film = np.asarray(model.get_layer("film").embeddings).copy()
    film[7, 1], film[5, 3] = np.nan, -np.inf
    model.get_layer("film").embeddings.assign(film)
    model.get_layer("hidden").bias.assign(np.float32([0, 0, 0, np.inf, 0, 0, 0, 0]))
    if os.path.exists(tmp_path / "model.keras"):
        model.save(tmp_path / "model.keras")
    if os.path.exists(tmp_path / "files"):
        checkpoint(model, tmp_path / "files/model.ckpt")
    with pytest.raises(wr.InvalidArgument) as raised:
        wr.keras.weights_of(source, clicks, names=NAMES | {"tower.0.weight": "hiden/kernel", "towr": "x"},
                            hashed={"user": [1, 2, 2, 4, 5]}, rows={"fil": "i8"})
    told = str(raised.value)
    for text in ("'film': variable 'film/embeddings', element [5, 3]: expected a finite number, got -inf, and 1 more "
                 "that are not finite",
                 "'tower.0.bias': variable 'hidden/bias', element [3]: expected a finite number, got inf",
                 "'tower.0.weight': expected a variable 'hiden/kernel' of the model, got none of that name (did you "
                 "mean 'hidden/kernel'?)", "hashed: 'user': expected a list of ids, each once, got 2 twice",
                 "'towr': expected a parameter or a table of the graph, got none of that name",
                 "variable 'hidden/kernel' of the model: expected one that the graph reads, or extra='ignore'",
                 "'fil': expected a table of the graph, whose rows have a type"):
        assert text in told
    assert len(raised.value.problems) == 7


def test_shapes_are_told_as_they_are_stored(model):
    def narrow(b):
        return {"y": b.linear("hidden", b.dense("x", b.axis("row"), 3), 8)}
    with pytest.raises(wr.InvalidArgument, match=r"'hidden.weight': variable 'hidden/kernel': expected shape \[3, 8\], "
                       r"got \[8, 8\]"):
        wr.keras.weights_of(model, narrow, extra="ignore")


def test_layers_without_a_bias(rng):
    model = keras.Sequential([keras.Input((3,)), layers.Dense(2, use_bias=False, name="head")])
    made = wr.keras.weights_of(model, lambda b: {"y": b.linear("head", b.dense("x", b.axis("row"), 3), 2, bias=False)})
    x = rng.normal(size=(B, 3)).astype(np.float32)
    np.testing.assert_allclose(made.model().score({"x": x})["y"], model(x), atol=1e-6)

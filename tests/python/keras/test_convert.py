# SPDX-License-Identifier: Apache-2.0
"""warprank convert, of what Keras and TensorFlow save: to a folder, and its comparison with the framework."""

import os

import keras
import models
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from test_export import AXES
from test_models import DIN_AXES, din  # noqa: F401: a fixture

import warprank as wr
import warprank.keras
from warprank import cli


def convert(path, out, axes, *options):
    return cli.main(["convert", str(path), "--out", str(out), *(f"--axis={n}={a}" for n, a in axes.items()), *options])


@pytest.fixture(params=["model.keras", "model.h5", "saved_model"])
def saved(request, trained, tmp_path):
    """A model in each form that there is, and its axes."""
    path = tmp_path / request.param
    if path.suffix == ".h5":  # which Keras cannot read where there are ops
        ids, x = keras.Input((1,), dtype="int32", name="film_id"), keras.Input((3,), name="context")
        film = layers.Flatten()(layers.Embedding(80, 8, name="film")(ids))
        outputs = layers.Dense(2, activation="softmax", name="ctr")(layers.Concatenate()([film, x]))
        trained(keras.Model([ids, x], outputs)).save(path)
        return path, {"film_id": "user/item", "context": "user"}
    model = trained(models.dcn_v2())
    if path.suffix:
        with keras.utils.custom_object_scope({"Cross": models.Cross}):
            model.save(path)
        keras.utils.get_custom_objects()["Cross"] = models.Cross
    else:
        model.export(str(path), verbose=False)
    return path, AXES


def test_convert(saved, tmp_path, capsys):
    path, axes = saved
    np.save(tmp_path / "ids.npy", np.arange(80) * 10**9)
    options = ["--rows", "f16", "--hashed", f"film={tmp_path / 'ids.npy'}"]
    out = tmp_path / "out"
    assert convert(path, out, axes, *options) == 0
    assert "table film as f16" in capsys.readouterr().out
    assert sorted(os.listdir(out)) == ["dense.safetensors", "graph.json", "samples.safetensors", "tables.safetensors"]
    assert cli.main(["check", str(out), "--most-difference", "1e-3"]) == 0
    assert "the framework took" in capsys.readouterr().out
    assert [t.name for t in wr.load(out).plan.tables if t.hashed] == ["film"]


def test_wrong_conversions_leave_nothing(trained, tmp_path, capsys):
    path, out = tmp_path / "model.keras", tmp_path / "out"
    x = keras.Input((6,), name="x")
    keras.Model(x, layers.Lambda(lambda x: x * 2)(x)).save(path)
    assert convert(path, out, {}) == 1
    assert "expected a model that Keras can load; with classes of your own or Lambda layers" in capsys.readouterr().err
    keras.Model(x, layers.GRU(2)(layers.Reshape((3, 2))(x))).save(path)
    assert convert(path, out, {}, "--output", "a", "--output", "b") == 1
    assert "outputs: expected 1 names, got 2" in capsys.readouterr().err
    assert convert(path, out, {}) == 1
    assert "layer 'gru'" in capsys.readouterr().err
    assert convert(tmp_path, out, {}) == 1 and convert(tmp_path / "none.keras", out, {}) == 1
    told = capsys.readouterr().err
    assert "a .pt2 of torch.export.save, a .keras, an .h5, an .onnx, or the folder of a SavedModel" in told
    assert "expected a file, got none" in told
    assert os.listdir(tmp_path) == ["model.keras"]


class Ranker(tf.Module):
    """What knows nothing of Keras."""

    def __init__(self, rng):
        self.table = tf.Variable(rng.normal(size=(9, 4)).astype(np.float32), name="film/table")
        self.kernel = tf.Variable(rng.normal(size=(5, 3)).astype(np.float32), name="deep/kernel")
        self.bias = tf.Variable(rng.normal(size=(3,)).astype(np.float32), name="deep/bias")

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64, "film_id"),
                                  tf.TensorSpec([None, 1], tf.float32, "x")])
    def __call__(self, film_id, x):
        hidden = tf.concat([tf.nn.embedding_lookup(self.table, film_id), x], 1) @ self.kernel
        hidden = self.inner(tf.nn.bias_add(hidden, self.bias))
        return {"ctr": tf.sigmoid(tf.reduce_sum(hidden, 1)), "shares": tf.nn.softmax(hidden)}

    @tf.function
    def inner(self, x):
        return tf.nn.relu(x) + tf.cast(tf.shape(x)[1], tf.float32)


def test_saved_models_without_keras(rng, tmp_path):
    ranker = Ranker(rng)
    tf.saved_model.save(ranker, str(tmp_path / "model"), signatures=ranker.__call__)
    exported = wr.keras.export(tmp_path / "model", axes={"film_id": "user/item", "x": "user"})
    assert list(exported.tables) == ["film/table"] and {"deep.weight", "deep.bias"} <= exported.weights.keys()
    batch = {"film_id": np.arange(5), "x": np.float32([[1], [2], [3], [4], [5]])}
    assert all(d.largest <= 1e-5 for d in exported.check(batch).values())
    scores = exported.score(batch)
    np.testing.assert_allclose(scores["shares"], ranker(**batch)["shares"], atol=1e-5)


def test_saved_models_that_cannot_be_expressed(tmp_path):
    class Counts(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32, "x")])
        def __call__(self, x):
            return {"y": tf.cumsum(x, 1) + tf.math.digamma(x)}
    counts = Counts()
    tf.saved_model.save(counts, str(tmp_path / "model"), signatures=counts.__call__)
    with pytest.raises(wr.InvalidArgument) as raised:
        wr.keras.export(tmp_path / "model")
    assert [p.what.split(" ")[0] for p in raised.value.problems] == ["Cumsum", "Digamma"]


def test_random_examples_have_padding():
    exported = wr.keras.export(models.din(), axes={"history": "row/history[]", "film_id": "row", "age": "row"})
    is_event = exported._example["history"] != 0
    assert is_event[:, 0].all() and 0.2 < is_event.mean() < 0.8 and (np.diff(is_event.astype(int)) <= 0).all()
    assert exported.check()["output"].largest <= 1e-5


def test_biases_behind_layers_that_have_one(rng):
    x = keras.Input((4,), name="x")
    bias = rng.normal(size=3).astype(np.float32)
    made = layers.Dense(3, bias_initializer="random_normal")(x) + bias
    assert wr.keras.export(keras.Model(x, made)).check()["output"].largest <= 1e-5


def test_classes_need_an_example(din):  # noqa: F811
    model, batch = din
    with pytest.raises(wr.InvalidArgument, match="expected example_batch, since its inputs are known only then"):
        wr.keras.export(model, axes=DIN_AXES)
    exported = wr.keras.export(model, axes=DIN_AXES, example_batch=batch)
    assert exported.outputs == ["output"] and exported.check()["output"].largest <= 1e-5

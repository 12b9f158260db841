# SPDX-License-Identifier: Apache-2.0
"""Variables of each kind of file, by their names and as the library's weights."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import warprank as wr
import warprank.keras


@pytest.fixture
def model():
    x = keras.Input((3,), name="x")
    tower = keras.Sequential([layers.Dense(4, name="hidden")], name="tower")
    return keras.Model(x, layers.Dense(2, name="head")(layers.BatchNormalization(name="norm")(tower(x))))


@pytest.mark.parametrize("ending", ["keras", "weights", "saved_model"])
def test_models_of_keras(model, tmp_path, ending):
    model(np.zeros((1, 3), np.float32))
    if ending == "saved_model":
        model.export(str(tmp_path / "model"), verbose=False)
        found = wr.keras.variables(tmp_path / "model")
        assert sorted(a.shape for a in found.values()) == sorted(tuple(w.shape) for w in model.weights)
        assert any(np.array_equal(a, model.get_layer("head").kernel) for a in found.values())
        return
    path = model
    if ending == "keras":
        path = tmp_path / "model.keras"
        model.save(path)
    found = wr.keras.variables(path)
    assert {"tower/hidden/kernel", "norm/moving_variance", "head/bias"} <= found.keys()
    np.testing.assert_array_equal(found["head/kernel"], model.get_layer("head").kernel)


def test_checkpoints_of_tensorflow_1(tmp_path, rng):
    table, kernel = rng.normal(size=(7, 2)).astype(np.float32), rng.normal(size=(3, 2)).astype(np.float32)
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        v1.get_variable("input/table", table.shape, partitioner=v1.fixed_size_partitioner(3), initializer=lambda shape,
                        dtype, partition_info: table[partition_info.var_offset[0]:][:shape[0]])
        kept = {f"old/emb/part_{i}": v1.Variable(part, name=f"p{i}") for i, part in enumerate(np.split(table, [4]))}
        kernel_variable = v1.get_variable("dense/kernel", initializer=kernel)
        v1.train.AdamOptimizer().minimize(sum(map(tf.reduce_sum, (kernel_variable, *kept.values()))))
        v1.train.get_or_create_global_step()
        session.run(v1.global_variables_initializer())
        v1.train.Saver().save(session, str(tmp_path / "whole"))
        v1.train.Saver(kept | {"dense/kernel": kernel_variable}).save(session, str(tmp_path / "parts/model"))
    whole = wr.keras.variables(tmp_path / "whole")
    np.testing.assert_array_equal(whole["input/table"], table)
    np.testing.assert_array_equal(whole["dense/kernel"], kernel)
    assert whole.keys() == {"input/table", "dense/kernel", "p0", "p1"}  # without Adam's
    parts = wr.keras.variables(tmp_path / "parts")
    assert parts.keys() == {"old/emb", "dense/kernel"}
    np.testing.assert_array_equal(parts["old/emb"], table)


def test_files_that_are_none(tmp_path):
    with pytest.raises(wr.InvalidArgument, match="expected a .keras, an .h5, a SavedModel or a checkpoint"):
        wr.keras.variables(tmp_path / "nothing")
    from warprank.keras.variables import _joined
    with pytest.raises(wr.InvalidArgument, match="variable 't': expected all of its parts, got parts"):
        _joined({"t/part_1": np.zeros(1)})

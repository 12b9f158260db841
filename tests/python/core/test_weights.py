# SPDX-License-Identifier: Apache-2.0
"""Weights and tables: from arrays, from files, updated; and what is said of wrong ones."""

import numpy as np
import pytest

import warprank as wr


def one_layer(b):
    user = b.axis("user")
    rows = b.embed(b.ids("id", user), b.hashed_table("t", dim=2))
    return {"o": b.linear("layer", b.concat([b.dense("x", user, 2), rows]),
                          1, bias=False)}


def bound(weights, tables, **options):
    plan = wr.compile(one_layer)
    loaded = wr.Tables.load(plan, wr.Weights.from_arrays(tables), **options)
    return wr.bind(plan, weights, loaded)


TABLE = {"t.keys": np.array([7, 2**63 - 1]), "t.rows": np.float32([[1, 2], [3, 4]])}
DATA = {"x": np.float32([[1, 10], [2, 20]]), "id": np.array([7, 8])}


def test_layouts_and_names():
    kernel = np.float32([[1], [2], [3], [4]])
    keras = wr.Weights.from_arrays({"k": kernel}, layout="keras", names={"layer.weight": "k"})
    torch = wr.Weights.from_arrays({"layer.weight": kernel.T})
    assert keras.names == ["k"]
    for weights in (keras, torch):
        np.testing.assert_array_equal(bound(weights, TABLE).score(DATA)["o"], [1 + 20 + 3 + 8, 2 + 40])


def test_arrays_are_kept_and_not_copied():
    rows = np.float32([[1, 0, 0, 0]])
    weights = wr.Weights.from_arrays({"layer.weight": rows})
    rows[0, 0] = 5  # which a copy would not see
    np.testing.assert_array_equal(weights["layer.weight"], rows)
    view = wr.Weights.from_arrays({"layer.weight": np.float32([[1, 9, 2, 9, 3, 9, 4, 9]])[:, ::2]})
    np.testing.assert_array_equal(view["layer.weight"], [[1, 2, 3, 4]])


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8, np.int64])
def test_files_give_back_what_was_written(tmp_path, dtype):
    array = np.arange(6).reshape(2, 3).astype(dtype)
    wr.write_safetensors(tmp_path / "w.safetensors", {"a": array, "b": array[0]}, {"by": "a test"})
    weights = wr.Weights.open(tmp_path / "w.safetensors")
    assert weights.names == ["a", "b"] and weights["a"].dtype == dtype
    np.testing.assert_array_equal(weights["a"], array)


def test_bf16(tmp_path):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = np.float32([1, -2.5, 3e38]).astype(ml_dtypes.bfloat16)
    wr.write_safetensors(tmp_path / "w.safetensors", {"a": array})
    np.testing.assert_array_equal(wr.Weights.open(tmp_path / "w.safetensors")["a"], array.astype(np.float32))


def test_tables_are_updated():
    weights = wr.Weights.from_arrays({"layer.weight": np.float32([[0, 0, 1, 1]])})
    model = bound(weights, TABLE, updatable=True)
    np.testing.assert_array_equal(model.score(DATA)["o"], [3, 0])
    report = model.tables.update(wr.Weights.from_arrays(
        {"t.keys": np.array([7, 8]), "t.rows": np.float32([[5, 5], [6, 6]])}))
    assert report["t"]["updated"] == 1 and report["t"]["inserted"] + report["t"]["full"] == 1
    assert model.score(DATA)["o"][0] == 10
    with pytest.raises(wr.InvalidArgument, match="updatable"):
        bound(weights, TABLE).tables.update(wr.Weights.from_arrays(TABLE))


def test_what_is_wrong_with_weights_is_told_together():
    with pytest.raises(wr.InvalidArgument) as raised:
        bound(wr.Weights.from_arrays({"layr.weight": np.zeros(
            (1, 4), np.float32), "more": np.zeros(3, np.float32)}), TABLE)
    assert len(raised.value.problems) == 3 and "layer.weight" in str(raised.value)
    model = wr.bind(wr.compile(one_layer), wr.Weights.from_arrays({"layer.weight": np.zeros((1, 4), np.float32),
                                                                  "more": np.zeros(3, np.float32)}),
                    wr.Tables.load(wr.compile(one_layer), wr.Weights.from_arrays(TABLE)), extra="ignore")
    assert model.score(DATA)["o"].shape == (2,)


def test_types_that_no_engine_reads_are_told():
    with pytest.raises(wr.InvalidArgument) as raised:
        wr.Weights.from_arrays({"a": np.zeros(2), "b": np.zeros(2, np.int32), "c": np.zeros(2, np.float32)})
    assert [p.what for p in raised.value.problems] == ["tensor 'a'", "tensor 'b'"]
    with pytest.raises(wr.InvalidArgument, match="layout: expected one of pytorch, keras, got 'tf'"):
        wr.Weights.from_arrays({}, layout="tf")


def test_a_folder_is_a_model(tmp_path):
    wr.compile(one_layer).graph.save(str(tmp_path / "graph.json"))
    wr.write_safetensors(tmp_path / "dense.safetensors", {"layer.weight": np.float32([[1, 2, 3, 4]])})
    wr.write_safetensors(tmp_path / "tables.safetensors", TABLE)
    np.testing.assert_array_equal(wr.load(tmp_path).score(DATA)["o"], [32, 42])
    (tmp_path / "dense.safetensors").unlink()
    with pytest.raises(wr.InvalidArgument, match="dense.safetensors"):
        wr.load(tmp_path)

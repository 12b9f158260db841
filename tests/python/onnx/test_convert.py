# SPDX-License-Identifier: Apache-2.0
"""warprank convert: from a file of ONNX to a folder, and its comparison with onnxruntime."""

import os

import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnx  # noqa: E402
from graphs import model  # noqa: E402

import warprank as wr  # noqa: E402
from warprank import cli  # noqa: E402

NODES = """q = Gather(film, film_id) k = Gather(film, history) m = Equal(history, zero) n = Not(m) f = Cast<to = 1>(n)
    u = Unsqueeze(f, last) r = Mul(k, u) s = ReduceSum<keepdims = 0>(r, one) x = Concat<axis = 1>(q, s, context)
    z = Gemm(x, head) a = Sigmoid(z) y = Squeeze(a, one)"""
WEIGHTS = """float[4,2] film = {1, 2, -1, 0.5, 0.25, -2, 1.5, 1}, float[5,1] head = {1, -1, 0.5, 0.25, 2},
    int64 zero = {0}, int64[1] last = {2}, int64[1] one = {1}"""
INPUTS = "int64[N] film_id, int64[N,5] history, float[N,1] context"
AXES = ("--axis", "film_id=user/item", "--axis", "history=user/history[]", "--axis", "context=user")


@pytest.fixture
def path(tmp_path):
    onnx.save(model(NODES, INPUTS, WEIGHTS), tmp_path / "ranker.onnx")
    return str(tmp_path / "ranker.onnx")


def test_convert(path, tmp_path, capsys):
    out = str(tmp_path / "model")
    assert cli.main(["convert", path, "--out", out, *AXES, "--output", "ctr", "--rows", "film=f16"]) == 0
    assert sorted(os.listdir(out)) == ["dense.safetensors", "graph.json", "samples.safetensors", "tables.safetensors"]
    assert cli.main(["check", out, "--most-difference", "1e-5"]) == 0
    told = capsys.readouterr().out
    assert "ctr: 11 scores, differ by " in told and "the framework took" in told
    assert [a.name for a in wr.load(out).plan.axes] == ["user", "item", "history"]


def test_wrong_conversions_leave_nothing(path, tmp_path, capsys):
    out = str(tmp_path / "model")
    assert cli.main(["convert", path, "--out", out, "--axis", "film_id=item"]) == 1
    told = capsys.readouterr().err
    assert "axes: input 'context': expected its axis, got none" in told and "axes: input 'history'" in told
    assert cli.main(["convert", path, "--out", out, *AXES, "--rows", "film=f8"]) == 1
    assert cli.main(["convert", path, "--out", out, *AXES, "--hashed", "films=" + path]) == 1
    assert os.listdir(tmp_path) == ["ranker.onnx"]

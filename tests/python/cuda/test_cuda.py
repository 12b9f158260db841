# SPDX-License-Identifier: Apache-2.0
"""A wheel that was built with CUDA, on a machine with a card or without."""

import subprocess

import numpy as np
import pytest

import warprank as wr
from warprank import _core, cli, folder


@pytest.fixture
def model(rng):
    def clicks(b):
        row = b.axis("row")
        x = b.embed(b.ids("film", row), b.table("film", dim=8))
        return {"ctr": b.sigmoid(b.mlp("tower", x, [16, 1], "relu"))}
    plan = wr.compile(clicks)
    weights = {p.name: rng.normal(size=p.shape).astype(np.float32) for p in plan.parameters}
    return plan, weights, {"film": rng.normal(size=(10, 8)).astype(np.float32)}


def scores(model, device):
    plan, weights, tables = model
    loaded = wr.Tables.load(plan, wr.Weights.from_arrays(tables), device)
    return wr.bind(plan, wr.Weights.from_arrays(weights), loaded).score({"film": np.arange(10)})["ctr"]


def test_the_extension_needs_no_library_of_cuda():
    assert wr.has_cuda
    libraries = subprocess.run(["ldd", _core.__file__], capture_output=True, text=True, check=True).stdout
    assert "libcud" not in libraries and "libcublas" not in libraries and "not found" not in libraries


def test_scores_are_the_hosts_or_what_is_missing_is_said(model, tmp_path, capsys):
    plan, weights, tables = model
    host = scores(model, "host")
    folder.write_folder(tmp_path / "model", plan.graph, weights, tables)
    (tmp_path / "rows.csv").write_text("film\n" + "".join(f"{i}\n" for i in range(10)))
    score = ["score", str(tmp_path / "model"), "--data", str(tmp_path / "rows.csv"), "--out", str(tmp_path / "scores"),
             "--device", "cuda", "--quiet"]
    try:
        np.testing.assert_allclose(scores(model, "cuda"), host, atol=1e-3)
        assert cli.main(score) == 0
    except wr.CudaError as error:
        assert "use device 0: expected a" in str(error) and "got no" in str(error)
        assert cli.main(score) == 1
        told = capsys.readouterr().err
        assert told.startswith("warprank score: use device 0: expected a") and not (tmp_path / "scores").exists()


def test_devices_that_are_none(model):
    with pytest.raises(wr.InvalidArgument, match="expected host, cuda or cuda:0 to cuda:9, got"):
        scores(model, "cuda:x")

# SPDX-License-Identifier: Apache-2.0
"""warprank convert: from a file of torch.export to a folder, and its comparison with PyTorch."""

import os

import models
import numpy as np
import pytest
import torch
from test_models import DIN_AXES, din_batch

import warprank as wr
import warprank.torch
from warprank import cli


@pytest.fixture
def program(tmp_path):
    torch.manual_seed(3)
    path = str(tmp_path / "din.pt2")
    torch.export.save(torch.export.export(models.DIN().eval(), (), din_batch()), path)
    return path


def convert(program, *options):
    axes = [f"--axis={name}={axis}" for name, axis in DIN_AXES.items()]
    return cli.main(["convert", program, *axes, *options])


def test_convert(program, tmp_path, capsys):
    out = str(tmp_path / "model")
    np.save(tmp_path / "ids.npy", np.arange(50) * 10**9)
    assert convert(program, "--out", out, "--rows", "genre=f16", "--output", "ctr", "--hashed",
                   f"user={tmp_path / 'ids.npy'}") == 0
    assert "table genre as f16" in capsys.readouterr().out
    assert sorted(os.listdir(out)) == ["dense.safetensors", "graph.json", "samples.safetensors", "tables.safetensors"]
    assert cli.main(["check", out, "--most-difference", "1e-3"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("ctr: 6 scores, differ by ") and "the framework took" in told
    plan = wr.load(out).plan
    assert '"op": "din_attention"' in plan.graph.to_json() and [t.name for t in plan.tables if t.hashed] == ["user"]


def test_wrong_conversions_leave_nothing(program, tmp_path, capsys):
    out = tmp_path / "model"
    assert cli.main(["convert", program, "--out", str(out), "--axis", "film_id=item"]) == 1
    told = capsys.readouterr().err
    assert "axes: input 'context': expected its axis, got none" in told and "axes: input 'user_id'" in told
    assert convert(program, "--out", str(out), "--rows", "f16", "--rows", "film=f32") == 1
    assert convert(program, "--out", str(out), "--axis", "x") == 1
    assert convert(program, "--out", program) == 1
    assert cli.main(["convert", str(tmp_path / "none.pt2"), "--out", str(out)]) == 1
    told = capsys.readouterr().err
    assert "expected NAME=VALUE, got 'x'" in told and "expected a file, got none" in told
    assert "expected one type, or types by table, got f16 film=f32" in told
    assert sorted(os.listdir(tmp_path)) == ["din.pt2"]


def test_samples_of_another_batch(tmp_path):
    exported = wr.torch.export(models.DIN(), din_batch(), axes=DIN_AXES)
    exported.save(tmp_path / "model", din_batch())
    assert cli.main(["check", str(tmp_path / "model"), "--most-difference", "1e-5"]) == 0

# SPDX-License-Identifier: Apache-2.0
"""warprank convert: from a file of torch.export to a folder, and its comparison with PyTorch."""

import os
import random
import sys
from pathlib import Path

import models
import numpy as np
import pytest
import torch
from test_models import DIN_AXES, din_batch
from torch import nn

import warprank as wr
import warprank.torch
from warprank import cli

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests/ids")]
import criteo_sample  # noqa: E402


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
    (tmp_path / "ids.npy").write_text("7 8 9")
    assert convert(program, "--out", str(out), "--hashed", f"user={tmp_path / 'ids.npy'}") == 1
    assert cli.main(["convert", str((tmp_path / "ids.npy").rename(tmp_path / "text.pt2")), "--out", str(out)]) == 1
    more = capsys.readouterr().err
    assert "ids.npy': expected an array that numpy.save wrote, got " in more
    assert "text.pt2': expected what torch.export.save wrote, got " in more
    assert "expected NAME=VALUE, got 'x'" in told and "expected a file, got none" in told
    assert "expected one type, or types by table, got f16 film=f32" in told
    assert sorted(os.listdir(tmp_path)) == ["din.pt2", "text.pt2"]


def test_samples_of_another_batch(tmp_path):
    exported = wr.torch.export(models.DIN(), din_batch(), axes=DIN_AXES)
    exported.save(tmp_path / "model", din_batch())
    assert cli.main(["check", str(tmp_path / "model"), "--most-difference", "1e-5"]) == 0


class Clicks(nn.Module):
    """Of 39 ids, 13 of them intervals of integers and 26 buckets of words."""

    def __init__(self):
        super().__init__()
        sizes = [len(criteo_sample.BOUNDARIES) + 1] * 13 + [criteo_sample.BUCKETS + 1] * 26
        self.tables = nn.ModuleList(nn.Embedding(n, 4) for n in sizes)
        self.deep = nn.Sequential(nn.Linear(4 * 39, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, fields):
        x = torch.cat([table(fields[:, i]) for i, table in enumerate(self.tables)], 1)
        return torch.sigmoid(self.deep(x)).squeeze(1)


def test_from_text_of_criteos_layout_to_scores(tmp_path):
    """PyTorch has no layers for text: a file of transforms says what training made of it."""
    torch.manual_seed(3)
    parquet = pytest.importorskip("pyarrow.parquet")
    module = Clicks().eval()
    batch = torch.export.Dim("batch")
    program = torch.export.export(module, (torch.zeros(4, 39, dtype=torch.int64),), dynamic_shapes=({0: batch},))
    torch.export.save(program, str(tmp_path / "clicks.pt2"))
    columns = criteo_sample.INTEGERS + criteo_sample.WORDS
    document = criteo_sample.transforms()
    for feature in document["features"]:
        feature["name"] = f"fields.{columns.index(feature['name'])}"
    wr.Transforms(document).save(tmp_path / "transforms.json")
    generator = random.Random(5)
    rows = [criteo_sample.row(generator) for _ in range(300)]
    (tmp_path / "day.tsv").write_text("".join(row + "\n" for row in rows))
    out = tmp_path / "model"
    convert = ["convert", str(tmp_path / "clicks.pt2"), "--out", str(out), "--output", "ctr", "--transforms"]
    assert cli.main([*convert, str(tmp_path / "transforms.json")]) == 0
    assert cli.main(["score", str(out), "--data", str(tmp_path / "day.tsv"), "--columns", ",".join(["label", *columns]),
                     "--out", str(tmp_path / "scores.parquet"), "--quiet"]) == 0
    ids = criteo_sample.ids_of(rows)
    with torch.no_grad():
        wanted = module(torch.tensor(np.stack([ids[name] for name in columns], 1))).numpy()
    made = parquet.read_table(tmp_path / "scores.parquet")["ctr"].to_numpy()
    np.testing.assert_allclose(made, wanted, rtol=0, atol=1e-5)
    # Of a feature that is no input's.
    document["features"][0] |= {"name": "fields.1", "op": "numbers", "settings": {}}
    document["features"].pop(1)
    wr.Transforms(document).save(tmp_path / "wrong.json")
    out = tmp_path / "other"
    assert cli.main([*convert[:3], str(out), *convert[4:], str(tmp_path / "wrong.json")]) == 1 and not out.exists()

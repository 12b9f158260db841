# SPDX-License-Identifier: Apache-2.0
"""Weights of a module for a graph that is written by hand; those of the MovieLens example are written so."""

import os
import types

import numpy as np
import pytest
import torch
from torch import nn

import warprank as wr
import warprank.torch

B = 6


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(5)


def clicks(b):
    row = b.axis("row")
    user = b.embed(b.ids("user_id", row), b.hashed_table("user", dim=4))
    film = b.embed(b.ids("film_id", row), b.table("film", dim=4))
    return {"ctr": b.sigmoid(b.mlp("tower", b.concat([user, film]), [8, 1], "relu"))}


class Clicks(nn.Module):
    def __init__(self):
        super().__init__()
        self.user = nn.Parameter(torch.randn(5, 4))
        self.film = nn.Embedding(9, 4)
        self.head = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, user, film):
        return torch.sigmoid(self.head(torch.cat([self.user[user], self.film(film)], 1))).squeeze(1)


NAMES = {f"tower.{i}.{kind}": f"head.{2 * i}.{kind}" for i in (0, 1) for kind in ("weight", "bias")}
IDS = np.array([7, 10**12, -3, 0, 99])


def test_scores_are_the_modules(tmp_path):
    module = Clicks()
    made = wr.torch.weights_of(module, clicks, names=NAMES, hashed={"user": IDS})
    made.save(tmp_path / "model")
    assert sorted(os.listdir(tmp_path / "model")) == ["dense.safetensors", "tables.safetensors"]
    made.plan.graph.save(str(tmp_path / "model/graph.json"))
    users, films = torch.randint(0, 5, (B,)), torch.randint(0, 9, (B,))
    with torch.no_grad():
        wanted = module(users, films).numpy()
    for model in made.model(), wr.load(tmp_path / "model"):
        scores = model.score({"user_id": IDS[users.numpy()], "film_id": films.numpy()})
        np.testing.assert_allclose(scores["ctr"], wanted, atol=1e-6)


@pytest.mark.parametrize("rows, bound", [("f16", 2**-11), ("bf16", 2**-8), ("i8", 2**-8)])
def test_rows_of_other_types(tmp_path, rows, bound):
    """Each off by less than half a step of its type, for an INT8 row a 255th of its range; both kinds of tables."""
    module = Clicks()
    trained = {"user": module.user.detach().numpy(), "film": module.film.weight.detach().numpy()}
    made = wr.torch.weights_of(module, clicks, names=NAMES, hashed={"user": IDS}, rows=rows)
    for name, error in made.row_errors.items():
        assert error.type == rows and 0 < error.root_mean_square < error.largest
        assert error.largest <= bound * max(np.abs(trained[name]).max(), np.ptp(trained[name], 1).max())
    stored = {name: array.dtype.itemsize for name, array in made.tables.items()}
    assert stored["film"] == stored["user.rows"] == (1 if rows == "i8" else 2) and stored["user.keys"] == 8
    made.save(tmp_path)
    made.plan.graph.save(str(tmp_path / "graph.json"))
    users, films = torch.randint(0, 5, (B,)), torch.randint(0, 9, (B,))
    with torch.no_grad():
        wanted = module(users, films).numpy()
    scores = wr.load(tmp_path).score({"user_id": IDS[users.numpy()], "film_id": films.numpy()})["ctr"]
    assert 0 < np.abs(scores - wanted).max() < 0.02
    one = wr.torch.weights_of(module, clicks, names=NAMES, hashed={"user": IDS}, rows={"user": rows})
    assert one.row_errors["film"].largest == 0 and one.row_errors["user"] == made.row_errors["user"]


def test_wrong_rows_are_told_with_the_rest():
    module = Clicks()
    with torch.no_grad():
        module.user[1, 2], module.film.weight[3, 1], module.head[0].bias[3] = float("inf"), 1e6, float("nan")
    with pytest.raises(wr.InvalidArgument) as raised:
        wr.torch.weights_of(module, clicks, names=NAMES, hashed={"user": IDS},
                            rows={"film": "f16", "user": "i8", "fil": "i8"})
    assert sorted((p.what, p.got) for p in raised.value.problems) == [
        ("'fil'", "none of that name (did you mean 'film'?)"),
        ("'tower.0.bias': tensor 'head.0.bias', element [3]", "nan"),
        ("'user': tensor 'user', element [1, 2]", "inf"), ("rows of table 'film'", "1000000.0")]
    with pytest.raises(wr.InvalidArgument, match="'film': expected one of f32, f16, bf16, i8, got 'f8'"):
        wr.torch.weights_of(Clicks(), clicks, names=NAMES, hashed={"user": IDS}, rows={"film": "f8"})


def test_arrays_are_copies():
    module = Clicks()
    made = wr.torch.weights_of(module, clicks, names=NAMES, hashed={"user": IDS})
    before = made.tables["film"].copy()
    with torch.no_grad():
        module.film.weight.zero_()
    np.testing.assert_array_equal(made.tables["film"], before)


def test_all_problems_are_told_together():
    module = Clicks()
    module.film = nn.Embedding(9, 5)
    module.other = nn.Linear(2, 2)
    with torch.no_grad():
        module.head[0].bias[3] = float("nan")
    with pytest.raises(wr.InvalidArgument) as raised:
        wr.torch.weights_of(module, clicks, names=NAMES | {"tower.1.bias": "head.2.bia", "towr": "x"},
                            hashed={"user": [1, 2, 2, 4, 5], "film": IDS})
    text = str(raised.value)
    for told in ("'film': tensor 'film.weight': expected shape [any, 4], got [9, 5]",
                 "'tower.0.bias': tensor 'head.0.bias', element [3]: expected a finite number, got nan",
                 "'tower.1.bias': expected a tensor 'head.2.bia' of the module, got none of that name (did you mean "
                 "'head.2.bias'?)", "hashed: 'user': expected a list of ids, each once, got 2 twice",
                 "'towr': expected a parameter or a table of the graph, got none of that name",
                 "'film': expected a hashed table of the graph, got none of that name",
                 "tensor 'other.weight' of the module: expected one that the graph reads, or extra='ignore'",
                 "tensor 'other.bias' of the module"):
        assert told in text
    assert len(raised.value.problems) == 9  # 'head.2.bias' is not read, either


def test_wrong_ids_and_options():
    with pytest.raises(wr.InvalidArgument, match="hashed: 'user': expected the ids of its rows, got none"):
        wr.torch.weights_of(Clicks(), clicks, names=NAMES)
    with pytest.raises(wr.InvalidArgument, match="expected 5 ids, one for each row of the table, got 4"):
        wr.torch.weights_of(Clicks(), clicks, names=NAMES, hashed={"user": IDS[:4]})
    with pytest.raises(wr.InvalidArgument, match="expected one of refuse, ignore, got 'keep'"):
        wr.torch.weights_of(Clicks(), clicks, names=NAMES, hashed={"user": IDS}, extra="keep")
    module = Clicks()
    module.other = nn.Linear(2, 2)
    made = wr.torch.weights_of(module, clicks, names=NAMES, hashed={"user": IDS}, extra="ignore")
    assert set(made.weights) == set(NAMES) and set(made.tables) == {"user.keys", "user.rows", "film"}


def test_what_cannot_be_written_leaves_what_there_was(tmp_path):
    made = wr.torch.weights_of(Clicks(), clicks, names=NAMES, hashed={"user": IDS})
    made.save(tmp_path)
    before = {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)}
    made.weights["tower.0.bias"] += 1
    made.tables["film"] = np.zeros(2, np.float64)
    with pytest.raises(wr.InvalidArgument):
        made.save(tmp_path)
    assert {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)} == before


def test_weights_of_the_movielens_example(root, tmp_path, monkeypatch):
    """The committed ones, in PyTorch and out again."""
    monkeypatch.syspath_prepend(str(root / "tools"))
    import train_movielens
    folder = root / "examples/movielens/weights"
    dense, tables = wr.Weights.open(folder / "dense.safetensors"), wr.Weights.open(folder / "tables.safetensors")
    user_ids = tables["user.keys"]
    sizes = types.SimpleNamespace(user_ids=user_ids, year=np.zeros(len(tables["film"])), user_context=np.zeros((0, 3)),
                                  film_context=np.zeros((0, 1)))
    model = train_movielens.DinMmoe(sizes)
    learned = {name: dense[name] for name in dense.names} | {
        name.removesuffix(".rows"): tables[name] for name in tables.names if name != "user.keys"}
    model.load_state_dict({name: torch.from_numpy(array) for name, array in learned.items()})
    train_movielens.write_weights(model, torch.from_numpy(user_ids), tmp_path)
    for name in "dense.safetensors", "tables.safetensors":
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()

# SPDX-License-Identifier: Apache-2.0
"""A wheel that was built with CUDA, on a machine with a card or without."""

import subprocess

import cards
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


def nested(b):
    user = b.axis("user")
    item = b.axis("item", user)
    x = b.concat([b.expand(b.dense("context", user, 2), item), b.dense("price", item, 1),
                  b.embed(b.ids("film", item), b.table("film", dim=8))])
    return {"ctr": b.sigmoid(b.mlp("tower", x, [16, 1], "relu")), "both": b.linear("two", x, 2)}


@pytest.fixture
def contexts(rng):
    """A context on the card and one on the host, or the test is skipped."""
    plan = wr.compile(nested, [wr.Capacity(requests=4, items=600)])
    weights = wr.Weights.from_arrays({p.name: rng.normal(size=p.shape).astype(np.float32) for p in plan.parameters})
    tables = wr.Weights.from_arrays({"film": rng.normal(size=(50, 8)).astype(np.float32)})
    if not cards.has_card():
        pytest.skip("needs a card, and CUDA's runtime as a library")
    return [wr.bind(plan, weights, wr.Tables.load(plan, tables, device)).context() for device in ("cuda", "host")]


def test_columns_and_scores_in_a_cards_memory(contexts, rng):
    context, on_host = contexts
    for lengths in ([3, 0, 40, 1], [0, 0], [200] * 3):
        offsets = np.cumsum([0] + lengths)
        data = {"context": rng.normal(size=(len(lengths), 2)).astype(np.float32),
                "price": (rng.normal(size=(offsets[-1], 1)).astype(np.float32), offsets),
                "film": (rng.integers(0, 50, offsets[-1]), offsets)}
        expected = context.score(data)
        np.testing.assert_allclose(expected["both"], on_host.score(data)["both"], atol=0.02)
        film, price = cards.on_card(data["film"][0]), cards.on_card(data["price"][0][:, 0])
        for some in (data | {"film": (film, offsets)},
                     data | {"film": (film, offsets), "price": (price, offsets)},
                     {name: cards.on_card(data[name]) for name in ["context"]} | {"film": data["film"],
                                                                                 "price": (price, offsets)}):
            scores = context.score(some)
            on_card = context.score_on_device(some)
            for name in ("ctr", "both"):
                np.testing.assert_array_equal(scores[name], expected[name])
                kept = cards.read(on_card[name])
                np.testing.assert_array_equal(kept.reshape(scores[name].shape), expected[name])
        assert film.asked and set(film.asked) == {1}, "values are asked for behind the default stream's work"
        before = {name: cards.read(array) for name, array in on_card.items()}
        context.score(data | {"context": data["context"] + 1})
        for name, array in on_card.items():
            np.testing.assert_array_equal(cards.read(array), before[name], "a later batch has changed the scores")


def test_columns_that_do_not_fit(contexts):
    context, on_host = contexts
    film = cards.on_card(np.arange(3))
    data = {"context": np.zeros((1, 2), np.float32), "price": (np.zeros((3, 1), np.float32), [0, 3]), "film": (film, [0, 3])}
    with pytest.raises(wr.InvalidArgument, match="expected a model on a GPU, got one on the host"):
        on_host.score(data)
    film.device = 1
    with pytest.raises(wr.InvalidArgument, match="columns on cuda:0, got some on cuda:1"):
        context.score(data)
    assert context.score(data | {"film": (np.arange(3), [0, 3])})["ctr"].shape == (3,)

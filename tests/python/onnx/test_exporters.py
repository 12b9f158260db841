# SPDX-License-Identifier: Apache-2.0
"""Models of PyTorch through both of its exporters of ONNX: scores as the module's and as onnxruntime's, and planned as
the module itself is."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
sys.path.append(str(Path(__file__).parents[1] / "torch"))

import models  # noqa: E402
import references  # noqa: E402
import test_candidates_within  # noqa: E402
import test_fields  # noqa: E402

import warprank as wr  # noqa: E402
import warprank.onnx  # noqa: E402
import warprank.torch  # noqa: E402

B = 6
EXPORTERS = ("dynamo", "legacy")


def written(module, batch, exporter, path):
    """The file that PyTorch writes, with any number of rows."""
    names = list(batch)
    if exporter == "legacy":
        torch.onnx.export(module.eval(), tuple(batch.values()), path, dynamo=False, input_names=names,
                          dynamic_axes={name: {0: "rows"} for name in names})
        return path
    torch.onnx.export(module.eval(), (), path, kwargs=batch, dynamo=True, verbose=False, external_data=False,
                      dynamic_shapes={name: {0: torch.export.Dim("rows")} for name in names})
    return path


def check(module, batch, exporter, path, axes=None):
    """Scores of the batch as the module's, of random ones as onnxruntime's."""
    torch.manual_seed(3)
    exported = wr.onnx.export(written(module, batch, exporter, path), axes)
    scores = exported.score({name: tensor.numpy() for name, tensor in batch.items()})
    with torch.no_grad():
        wanted = torch.utils._pytree.tree_leaves(module(**batch))
    assert len(wanted) == len(exported.outputs)
    for name, tensor in zip(exported.outputs, wanted):
        np.testing.assert_allclose(scores[name].reshape(-1), tensor.numpy().reshape(-1), atol=1e-5)
    for difference in exported.check().values():
        assert difference.largest < 1e-5
    return exported


def ids(high, *shape):
    return torch.randint(0, high, (B, *shape))


def histories(high, length):
    rows = torch.randint(1, high, (B, length))
    for row, kept in zip(rows, (1, 1, length, 3, 2, length - 1)):
        row[kept:] = 0
    return rows


def din_batch():
    hist = histories(80, 7)
    return {"user_id": ids(50), "context": torch.randn(B, 3), "film_id": ids(80), "genre_id": ids(9),
            "hist_film_id": hist, "hist_genre_id": torch.where(hist > 0, torch.randint(1, 9, hist.shape), 0)}


DIN_AXES = {"user_id": "user", "context": "user", "film_id": "user/item", "genre_id": "user/item",
            "hist_film_id": "user/history[]", "hist_genre_id": "user/history[]"}
TOWERS_AXES = {"context": "user", "film_id": "user/item", "hist_film_id": "user/history[]"}
CASES = {
    "wide and deep, FM": (lambda: models.DeepFM([10, 20, 30], 2), lambda: {
        "sparse": torch.cat([ids(10, 1), ids(20, 1), ids(30, 1)], 1), "dense": torch.randn(B, 2)}, None,
        references.deepfm),
    "DCN-v2": (lambda: models.Criteo(3, dim=16, rank=16), lambda: {
        "dense": torch.randn(B, 13), "categories": ids(4, 26)}, None, None),
    "DLRM": (lambda: models.Criteo(0, dim=16), lambda: {
        "dense": torch.randn(B, 13), "categories": ids(4, 26)}, None, None),
    "DIN": (models.DIN, din_batch, DIN_AXES, references.din),
    "MMoE": (models.MMoE, lambda: {"x": torch.randn(B, 12)}, None, references.mmoe),
    "PLE": (models.PLE, lambda: {"x": torch.randn(B, 12)}, None, references.ple),
    "xDeepFM": (lambda: test_fields.OfFields(test_fields.Cin(test_fields.outer_by_einsum, "first", torch.relu), 9),
                lambda: {"x": ids(20, 5)}, None, None),
    "AutoInt": (lambda: test_fields.OfFields(test_fields.Interacting(), 40), lambda: {"x": ids(20, 5)}, None, None),
    "transformer": (models.TwoTowers, lambda: {
        "context": torch.randn(B, 3), "film_id": ids(80), "hist_film_id": histories(80, 7)}, TOWERS_AXES,
        references.two_towers),
    "BST": (test_candidates_within.Transformer, lambda: {"film": ids(19) + 1, "history": histories(20, 5)},
            test_candidates_within.AXES, None),
}


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(3)


@pytest.mark.parametrize("exporter", EXPORTERS)
@pytest.mark.parametrize("case", CASES)
def test_models(case, exporter, tmp_path):
    make, batch, axes, reference = CASES[case]
    module, batch = make(), batch()
    exported = check(module, batch, exporter, tmp_path / "model.onnx", axes)
    like = wr.torch.export(module, batch, axes).graph if reference is None else reference
    assert wr.compile(exported.graph).num_steps == wr.compile(like).num_steps


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_weights_and_tables_have_the_modules_names(exporter, tmp_path):
    exported = check(models.DIN(), din_batch(), exporter, tmp_path / "model.onnx", DIN_AXES)
    assert set(exported.tables) == {"user", "film", "genre"}
    assert {"tower.0.weight", "tower.0.dice.alpha", "tower.2.bias"} <= set(exported.weights)


class Bag(nn.Module):
    """An EmbeddingBag, which both exporters write as a loop over rows."""

    def __init__(self, mode):
        super().__init__()
        self.bag = nn.EmbeddingBag(20, 8, mode=mode)
        self.head = nn.Linear(8, 1)

    def forward(self, tags):
        return self.head(self.bag(tags)).squeeze(1)


@pytest.mark.parametrize("exporter", EXPORTERS)
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags(mode, exporter, tmp_path):
    exported = check(Bag(mode), {"tags": ids(20, 4)}, exporter, tmp_path / "model.onnx")
    assert list(exported.tables) == ["bag"]
    of_axis = wr.onnx.export(tmp_path / "model.onnx", {"tags": "row/tags[]"})
    assert next(iter(of_axis.check().values())).largest < 1e-5 and "embed_bag" in of_axis.graph.to_json()


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_bags_of_dlrm(exporter, tmp_path):
    class Named(models.DLRM):
        def forward(self, dense, a, b):
            return super().forward(dense, a, b)
    batch = {"dense": torch.randn(B, 3), "a": ids(10, 2), "b": ids(20, 4)}
    exported = check(Named([10, 20], 3), batch, exporter, tmp_path / "model.onnx")
    assert '"op": "dot"' in exported.graph.to_json()


def test_bags_that_leave_out_padding_are_told(tmp_path):
    """Of which PyTorch writes a loop over ids within the one over rows."""
    batch = {"user_id": ids(50), "film_id": ids(80), "tags": ids(20, 4), "context": torch.randn(B, 3)}
    path = written(models.DCNv2(), batch, "dynamo", tmp_path / "model.onnx")
    with pytest.raises(wr.InvalidArgument) as raised:
        wr.onnx.export(path)
    assert [(p.what.partition("(")[2], p.expected) for p in raised.value.problems] == [
        ("If)", "a condition that is known without a batch")]


class Lengths(nn.Module):
    """A mean of events, of which an input says how many there are."""

    def __init__(self):
        super().__init__()
        self.film = nn.Embedding(80, 8)
        self.head = nn.Linear(16, 1)

    def forward(self, film_id, hist, length):
        is_event = (torch.arange(hist.shape[1]) < length[:, None]).unsqueeze(-1).float()
        mean = (self.film(hist) * is_event).sum(1) / length[:, None].float()
        return self.head(torch.cat([self.film(film_id), mean], 1)).squeeze(1)


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_lengths_of_histories(exporter, tmp_path):
    batch = {"film_id": ids(80), "hist": ids(80, 7), "length": torch.tensor([1, 2, 3, 7, 1, 5])}
    axes = {"film_id": "user/item", "hist": "user/history[]", "length": "user/history[]"}
    exported = check(Lengths(), batch, exporter, tmp_path / "model.onnx", axes)
    assert wr.compile(exported.graph).num_steps == 3


class LengthsBesideIds(nn.Module):
    """A sum of events that their ids tell from padding, by how many there are."""

    def __init__(self):
        super().__init__()
        self.film = nn.Embedding(80, 8)

    def forward(self, hist, length):
        return ((self.film(hist) * (hist != 0).unsqueeze(-1)).sum(1) / (length[:, None] + 1)).sum(-1)


def test_requests_without_an_example_have_as_many_events_as_they_say(tmp_path):
    hist = histories(80, 7)
    path = written(LengthsBesideIds(), {"hist": hist, "length": (hist != 0).sum(1)}, "dynamo", tmp_path / "model.onnx")
    exported = wr.onnx.export(path, {"hist": "user/history[]", "length": "user/history[]"})
    assert all(difference.largest < 1e-5 for difference in exported.check().values())


def test_histories_of_any_length(tmp_path):
    batch, axes = din_batch(), DIN_AXES
    rows, events = torch.export.Dim("rows"), torch.export.Dim("events")
    shapes = {name: {0: rows, 1: events} if "hist" in name else {0: rows} for name in batch}
    torch.onnx.export(models.DIN().eval(), (), tmp_path / "model.onnx", kwargs=batch, dynamo=True, verbose=False,
                      dynamic_shapes=shapes, external_data=False)
    exported = wr.onnx.export(tmp_path / "model.onnx", axes)
    longer = {name: np.repeat(tensor.numpy(), 2, 1) if "hist" in name else tensor.numpy()
              for name, tensor in batch.items()}
    for given in None, longer, {name: array[:1] for name, array in longer.items()}:
        assert exported.check(given)["squeeze"].largest < 1e-5
    with pytest.raises(wr.InvalidArgument, match="sizes that are known, but for rows and the events of an axis"):
        wr.onnx.export(tmp_path / "model.onnx", axes | {"hist_film_id": "user/item"})


def test_rows_of_tables_and_hashed_ids(tmp_path):
    path = written(models.DIN(), din_batch(), "dynamo", tmp_path / "model.onnx")
    exported = wr.onnx.export(path, DIN_AXES, rows={"genre": "f16"}, hashed={"user": np.arange(50) * 10**9},
                              outputs=["ctr"])
    assert exported.check()["ctr"].largest < 1e-3 and exported.row_errors["genre"].type == "f16"
    assert "user.keys" in exported.tables


def test_batches_that_do_not_fit(tmp_path):
    exported = wr.onnx.export(written(models.MMoE(), {"x": torch.randn(B, 12)}, "dynamo", tmp_path / "model.onnx"),
                              example_batch={"x": np.ones((3, 12), np.float32)})
    with pytest.raises(wr.InvalidArgument) as raised:
        exported.check({"X": np.ones((2, 12), np.float32)})
    assert "batch: input 'x': expected a tensor, got none" in str(raised.value)
    with pytest.raises(wr.InvalidArgument, match=r"shape \[2, 12\], got \[2, 11\]"):
        exported.check({"x": np.ones((2, 11), np.float32)})
    with pytest.raises(wr.InvalidArgument, match="arrays by the names of the model's inputs, got ndarray"):
        exported.check(np.ones((2, 12), np.float32))


@pytest.mark.parametrize("opset", [13, 17])
def test_gelu_of_opsets_that_have_none(opset, tmp_path):
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU(), torch.nn.Linear(4, 1)).eval()
    torch.onnx.export(module, (torch.randn(B, 4),), tmp_path / "model.onnx", dynamo=False, input_names=["x"],
                      output_names=["y"], dynamic_axes={"x": {0: "rows"}}, opset_version=opset)
    exported = wr.onnx.export(tmp_path / "model.onnx")
    assert exported.check()["y"].largest < 1e-6 and '"gelu"' in exported.graph.to_json()


def test_infinity_of_rows_without_events(tmp_path):
    class Maximum(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.films, self.score = torch.nn.Embedding(80, 3, padding_idx=0), torch.nn.Linear(3, 1)

        def forward(self, history):
            x = self.films(history).masked_fill((history == 0).unsqueeze(-1), -torch.inf).amax(1)
            return self.score(torch.nan_to_num(x, neginf=0.25))
    history = histories(80, 7)
    history[0] = 0
    torch.onnx.export(Maximum().eval(), (history,), tmp_path / "model.onnx", dynamo=True, verbose=False,
                      input_names=["history"], output_names=["y"], dynamic_shapes={"history": {0: torch.export.Dim("rows")}})
    assert wr.onnx.export(tmp_path / "model.onnx", {"history": "row/history[]"}).check(
        {"history": history.numpy()})["y"].largest < 1e-6

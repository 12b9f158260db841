# SPDX-License-Identifier: Apache-2.0
"""GRUs of ONNX: as PyTorch's exporters write them, and as a file may have them."""

import numpy as np
import pytest
import torch

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

from graphs import kinds, model  # noqa: E402
from test_exporters import EXPORTERS, check, histories, ids  # noqa: E402
from torch import nn  # noqa: E402

import warprank as wr  # noqa: E402
import warprank.onnx  # noqa: E402


class OfHistory(nn.Module):
    """The last state of a GRU over the films that a user saw."""

    def __init__(self, layers):
        super().__init__()
        self.films = nn.Embedding(20, 4, padding_idx=0)
        self.gru = nn.GRU(4, 3, layers, batch_first=True)
        self.head = nn.Linear(7, 1)

    def forward(self, film, seen):
        states, _ = self.gru(self.films(seen))
        place = (seen != 0).sum(1).clamp(min=1) - 1
        last = states.gather(1, place.view(-1, 1, 1).expand(-1, 1, 3)).squeeze(1)
        return self.head(torch.cat([last, self.films(film)], -1))


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("exporter", EXPORTERS)
def test_of_exporters(exporter, layers, tmp_path):
    batch = {"film": ids(20), "seen": histories(20, 5)}
    exported = check(OfHistory(layers), batch, exporter, tmp_path / "model.onnx",
                     {"film": "user/item", "seen": "user/seen[]"})
    assert kinds(exported).count('"op": "recurrent"') == layers


def graph(attributes="linear_before_reset = 1"):
    rng = np.random.default_rng(2)

    def constant(name, *shape):
        numbers = ", ".join(f"{n:.3f}" for n in rng.uniform(-1, 1, int(np.prod(shape))))
        return f"float[{','.join(map(str, shape))}] {name} = {{{numbers}}}"
    weights = ", ".join([constant("w", 1, 6, 3), constant("r", 1, 6, 2), constant("b", 1, 12)])
    turned = "x" if "layout" in attributes else "t"
    nodes = f"t = Transpose<perm = [1, 0, 2]>(x) s, l = GRU<hidden_size = 2, {attributes}>({turned}, w, r, b) "
    out = "z = ReduceSum<keepdims = 0>(s, axes) y = Squeeze(z, axes)"
    return model(nodes + out, "float[N,4,3] x", f"{weights}, int64[1] axes = {{{1 if 'layout' in attributes else 0}}}")


@pytest.mark.parametrize("attributes", ["linear_before_reset = 1", "linear_before_reset = 1, layout = 1"])
def test_layouts(attributes):
    """Without a mask all events are none of padding."""
    axes = {"x": "user/seen[]"}
    made, plain = wr.onnx.export(graph(attributes), axes), wr.onnx.export(graph(), axes)
    batch = {"x": np.random.default_rng(3).standard_normal((5, 4, 3), np.float32)}
    assert plain.check(batch)["y"].largest < 1e-5  # of the one layout that onnxruntime has
    np.testing.assert_array_equal(made.score(batch)["y"], plain.score(batch)["y"])
    assert '"op": "recurrent"' in kinds(made)


@pytest.mark.parametrize("attributes, expected", [
    ("linear_before_reset = 0", "as PyTorch has it, got direction forward, linear_before_reset 0"),
    ('linear_before_reset = 1, activations = ["Sigmoid", "Relu"]', "activations Sigmoid, Relu"),
    ("linear_before_reset = 1, clip = 1.0", "clip 1.0"),
    ('linear_before_reset = 1, direction = "reverse"', "direction reverse"),
])
def test_other_grus_are_refused(attributes, expected):
    with pytest.raises(wr.InvalidArgument, match=expected):
        wr.onnx.export(graph(attributes), {"x": "user/seen[]"})

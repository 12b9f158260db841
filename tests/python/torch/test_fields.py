# SPDX-License-Identifier: Apache-2.0
"""xDeepFM's compressed interaction network, as modules write it: a launch for each layer."""

import json

import numpy as np
import pytest
import torch
from test_export import B, check, ids
from torch import nn
from torch.nn import functional as F

import warprank as wr

FIELDS, DIM = 5, 8


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(3)


class OfFields(nn.Module):
    """A part that is between the embeddings of fields and a head."""

    def __init__(self, part, width):
        super().__init__()
        self.table = nn.Embedding(20, DIM)
        self.part = part
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        return torch.sigmoid(self.head(self.part(self.table(x)).flatten(1))).squeeze(1)


def exported(part, width=None):
    """Scores as the module's in FP32, and near those in FP64."""
    batch = ids(20, FIELDS)
    with torch.no_grad():
        width = part(torch.randn(B, FIELDS, DIM)).flatten(1).shape[1]
    module = OfFields(part, width)
    made = check(module, batch)
    with torch.no_grad():
        exact = module.double()(batch).numpy()
    np.testing.assert_allclose(made.score({"x": batch})["output"], exact, atol=1e-6)
    return made


def steps(made):
    return wr.compile(made.graph).num_steps


def ops(made, kind):
    nodes = json.loads(wr.compile(made.graph).graph.to_json())["nodes"]
    return [node["settings"] for node in nodes if node["op"] == kind]


# --- xDeepFM


def outer_by_einsum(x, fields):
    return torch.einsum("bhd,bmd->bhmd", x, fields).flatten(1, 2)


def outer_by_product(x, fields):
    return (fields.unsqueeze(2) * x.unsqueeze(1)).reshape(len(x), -1, x.shape[2])


def outer_turned(x, fields):
    return (x.unsqueeze(1) * fields.unsqueeze(2)).reshape(len(x), -1, x.shape[2])


def summed_at_once(maps):
    return torch.cat(maps, 1).sum(-1)


def summed_by_layer(maps):
    return torch.cat([m.sum(2) for m in maps], 1)


class Cin(nn.Module):
    """goes_on: which half of the maps the next layer reads, "first" or "second"; "both": all are read and summed"""

    def __init__(self, outer, goes_on, activation, summed=summed_at_once, layers=(6, 4, 4), bias=True):
        super().__init__()
        self.outer, self.goes_on, self.activation, self.summed = outer, goes_on, activation, summed
        self.layers = nn.ModuleList()
        before = FIELDS
        for size in layers:
            self.layers.append(nn.Conv1d(before * FIELDS, size, 1, bias=bias))
            before = size if goes_on == "both" else size // 2

    def forward(self, fields):
        x, found = fields, []
        for i, layer in enumerate(self.layers):
            x = self.activation(layer(self.outer(x, fields)))
            if self.goes_on == "both" or i + 1 == len(self.layers):
                found.append(x)
            else:
                halves = x.chunk(2, 1)
                x, direct = halves if self.goes_on == "first" else halves[::-1]
                found.append(direct)
        return self.summed(found)


@pytest.mark.parametrize("outer", [outer_by_einsum, outer_by_product, outer_turned])
@pytest.mark.parametrize("goes_on", ["first", "second", "both"])
@pytest.mark.parametrize("activation, summed, bias", [(torch.relu, summed_at_once, True),
                                                      (nn.Identity(), summed_by_layer, False)])
def test_cin(outer, goes_on, activation, summed, bias):
    made = exported(Cin(outer, goes_on, activation, summed, bias=bias))
    found = ops(made, "field_linear")
    assert [(op["out"], op["kept"], op["summed"]) for op in found] == {
        "both": [(6, 6, 6), (4, 4, 4), (4, 0, 4)]}.get(goes_on, [(6, 3, 3), (4, 2, 2), (4, 0, 4)])
    assert steps(made) == 3 + 3  # look-ups, the sums of all layers side by side, the head


def test_weights_of_cin_have_the_names_of_its_layers():
    made = exported(Cin(outer_by_einsum, "both", torch.relu))
    assert [op["name"] for op in ops(made, "field_linear")] == [f"part.layers.{i}" for i in range(3)]


def test_maps_that_others_read():
    layer = nn.Conv1d(FIELDS * FIELDS, 6, 1)

    class Part(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, fields):
            maps = torch.relu(self.layer(outer_by_einsum(fields, fields)))
            return torch.cat([maps[:, 4], maps[:, 1:3].sum(2), maps[:, 2, 3:5]], 1)
    made = exported(Part())
    assert [(op["out"], op["kept"], op["summed"]) for op in ops(made, "field_linear")] == [(6, 6, 2)]


@pytest.mark.parametrize("dim, kept, summed", [(64, 0, 6), (65, 6, 0)])
def test_fields_of_many_columns_are_summed_by_themselves(dim, kept, summed):
    class Wide(nn.Module):
        def __init__(self):
            super().__init__()
            self.widen, self.layer = nn.Linear(DIM, dim, bias=False), nn.Conv1d(FIELDS * FIELDS, 6, 1)

        def forward(self, fields):
            x = self.widen(fields)
            return torch.relu(self.layer(outer_by_einsum(x, x))).sum(2)
    assert [(op["kept"], op["summed"]) for op in ops(exported(Wide()), "field_linear")] == [(kept, summed)]


def test_fields_of_two_axes():
    class Part(nn.Module):
        def __init__(self):
            super().__init__()
            self.user, self.item = nn.Embedding(20, DIM), nn.Embedding(20, DIM)
            self.cin, self.head = Cin(outer_by_einsum, "first", torch.relu), nn.Linear(9, 1)

        def forward(self, user, item):
            fields = torch.cat([self.user(user), self.item(item)], 1)
            return self.head(self.cin(fields)).squeeze(1)
    made = check(Part(), {"user": ids(20, 2), "item": ids(20, 3)}, axes={"user": "user", "item": "user/item"})
    assert len(ops(made, "field_linear")) == 3


def test_a_norm_of_maps():
    class Part(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.norm = nn.Conv1d(FIELDS * FIELDS, 6, 1), nn.BatchNorm1d(6)

        def forward(self, fields):
            return torch.relu(self.norm(self.layer(outer_by_einsum(fields, fields)))).sum(2)
    assert len(ops(exported(Part().eval()), "field_linear")) == 1


def test_maps_with_other_activations_and_without_sums():
    class Part(nn.Module):
        def __init__(self, activation):
            super().__init__()
            self.layer, self.activation = nn.Conv1d(FIELDS * FIELDS, 6, 1), activation

        def forward(self, fields):
            maps = self.layer(outer_by_einsum(fields, fields))
            return torch.cat([self.activation(maps), maps[:, :2]], 1)
    for activation in (torch.sigmoid, torch.tanh, F.silu, F.gelu, F.leaky_relu, lambda x: x * torch.sigmoid(x)):
        assert ops(exported(Part(activation)), "field_linear")


def test_layers_of_products_that_are_no_cin():
    class Part(nn.Module):
        def __init__(self, products):
            super().__init__()
            self.products, self.layer = products, nn.Conv1d(FIELDS * FIELDS, 3, 1)

        def forward(self, fields):
            return self.layer(self.products(fields))
    order = torch.randperm(FIELDS * FIELDS)

    def of_next_column(fields):
        return outer_by_einsum(fields, fields.roll(1, 2))

    def with_a_product_twice(fields):
        return outer_by_einsum(fields, fields)[:, [1, *range(1, FIELDS * FIELDS)]]
    assert ops(exported(Part(of_next_column)), "field_linear")
    for products in (with_a_product_twice, lambda x: outer_by_einsum(x, x)[:, order]):
        assert not ops(exported(Part(products)), "field_linear")

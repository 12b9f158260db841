# SPDX-License-Identifier: Apache-2.0
"""What modules compute of the fields of a row, as they write it: xDeepFM's compressed interaction network and AutoInt's
layers, a launch for each, products of pairs, sums, and multiples as in DCN's cross layers."""

import json

import numpy as np
import pytest
import torch
from test_export import B, Function, check, ids
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


def nodes(made, kind):
    return [node for node in json.loads(wr.compile(made.graph).graph.to_json())["nodes"] if node["op"] == kind]


def ops(made, kind):
    return [node.get("settings") for node in nodes(made, kind)]


def inputs_of(made, kind):
    return [len(node["inputs"]) for node in nodes(made, kind)]


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
            self.cin, self.interacting = Cin(outer_by_einsum, "first", torch.relu), Interacting()
            self.head = nn.Linear(9 + FIELDS * DIM, 1)

        def forward(self, user, item):
            fields = torch.cat([self.user(user), self.item(item)], 1)
            return self.head(torch.cat([self.cin(fields), self.interacting(fields).flatten(1)], 1)).squeeze(1)
    made = check(Part(), {"user": ids(20, 2), "item": ids(20, 3)}, axes={"user": "user", "item": "user/item"})
    assert len(ops(made, "field_linear")) == 3 and len(ops(made, "field_attention")) == 1


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
    assert inputs_of(exported(Part(of_next_column)), "field_linear") == [2]
    for products in (with_a_product_twice, lambda x: outer_by_einsum(x, x)[:, order]):
        assert inputs_of(exported(Part(products)), "field_linear") == [1]  # the products themselves


# --- AutoInt


class Interacting(nn.Module):
    """Heads that are split and stacked; residual: "projected", "itself", None"""

    def __init__(self, dim=DIM, columns=DIM, heads=2, residual="projected", scaled=True, activation=torch.relu):
        super().__init__()
        self.heads, self.residual, self.scaled, self.activation = heads, residual, scaled, activation
        names = ("query", "key", "value", "rest") if residual == "projected" else ("query", "key", "value")
        for name in names:
            setattr(self, name, nn.Parameter(torch.randn(dim, columns) / 2))

    def projected(self, x):
        return (torch.tensordot(x, w, dims=([-1], [0])) for w in (self.query, self.key, self.value))

    def attended(self, x):
        q, k, v = (torch.stack(torch.split(y, y.shape[2] // self.heads, 2)) for y in self.projected(x))
        scores = torch.einsum("hbik,hbjk->hbij", q, k)
        if self.scaled:
            scores /= q.shape[-1] ** 0.5
        made = torch.matmul(F.softmax(scores, -1), v)
        return torch.cat(torch.split(made, 1), -1).squeeze(0)

    def forward(self, x):
        made = self.attended(x)
        if self.residual == "projected":
            made += torch.tensordot(x, self.rest, dims=([-1], [0]))
        elif self.residual == "itself":
            made = x + made
        return self.activation(made)


class InteractingByView(Interacting):
    """Heads side by side in a dimension of their own."""

    def attended(self, x):
        q, k, v = (y.view(len(y), FIELDS, self.heads, -1).transpose(1, 2) for y in self.projected(x))
        scores = torch.matmul(q, k.transpose(-1, -2))
        if self.scaled:
            scores = scores / q.shape[-1] ** 0.5
        return torch.matmul(scores.softmax(-1), v).transpose(1, 2).reshape(len(x), FIELDS, -1)


class InteractingByFunction(Interacting):
    def attended(self, x):
        q, k, v = (y.unflatten(2, (self.heads, -1)).transpose(1, 2) for y in self.projected(x))
        made = F.scaled_dot_product_attention(q, k, v, scale=None if self.scaled else 1.0)
        return made.transpose(1, 2).flatten(2)


@pytest.mark.parametrize("layer", [Interacting, InteractingByView, InteractingByFunction])
@pytest.mark.parametrize("heads, residual, scaled, activation", [
    (2, "projected", True, torch.relu), (1, "itself", False, torch.relu), (4, None, True, nn.Identity()),
    (2, "projected", False, torch.tanh)])
def test_auto_int(layer, heads, residual, scaled, activation):
    parts = [layer(heads=heads, residual=residual, scaled=scaled, activation=activation) for _ in range(2)]
    made = exported(nn.Sequential(*parts))
    for op in ops(made, "field_attention"):
        assert (op["heads"], op["head_dim"], op["residual"]) == (heads, DIM // heads, residual is not None)
        assert op["scale"] == pytest.approx((DIM // heads) ** -0.5 if scaled else 1)
    assert len(ops(made, "field_attention")) == 2 and steps(made) == 2 + 2  # look-ups, the head


def test_auto_int_with_more_columns_than_fields_have():
    made = exported(nn.Sequential(Interacting(columns=12), Interacting(12, 4, heads=1)))
    assert [(op["dim"], op["head_dim"]) for op in ops(made, "field_attention")] == [(8, 6), (12, 4)]
    assert steps(made) == 2 + 2


def test_attention_over_fields_that_is_not_auto_int():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(DIM, 2, batch_first=True)

        def forward(self, x):
            return self.attention(x, x, x)[0]
    biased = Attention()
    nn.init.normal_(biased.attention.in_proj_bias)

    class Masked(Interacting):
        def attended(self, x):
            q, k, v = self.projected(x)
            scores = q @ k.transpose(1, 2) + torch.eye(FIELDS, dtype=x.dtype)
            return scores.softmax(-1) @ v

    class OfOthers(Interacting):
        def attended(self, x):
            q, k, _ = self.projected(x)
            return (q @ k.transpose(1, 2)).softmax(-1) @ (x.flip(1) @ self.value)

    class OverQueries(Interacting):
        def attended(self, x):
            q, k, v = self.projected(x)
            return (q @ k.transpose(1, 2)).softmax(1) @ v
    for part in (biased, Masked(), OfOthers(), OverQueries()):
        assert not ops(exported(part), "field_attention")


def test_a_residual_of_other_fields_is_added():
    class Part(Interacting):
        def forward(self, x):
            return torch.relu(self.attended(x) + x.flip(1) @ self.rest)
    assert [op["residual"] for op in ops(exported(Part()), "field_attention")] == [False]


# --- Wukong


class Mixed(nn.Module):
    """A linear layer over fields, with and without a bias, as modules write it."""

    def __init__(self, write, bias):
        super().__init__()
        self.layer, self.write = nn.Linear(FIELDS, 3, bias=bias), write

    def forward(self, x):
        return torch.relu(self.write(self.layer, x))


@pytest.mark.parametrize("bias", (False, True))
@pytest.mark.parametrize("write", (lambda layer, x: layer(x.transpose(1, 2)).transpose(1, 2),
                                   lambda layer, x: layer(x.permute(0, 2, 1))))
def test_a_linear_layer_over_fields_is_one(write, bias):
    made = exported(Mixed(write, bias))
    found, = ops(made, "field_linear")
    assert (found["name"], found["dim"], found["out"], found["bias"]) == ("part.layer", DIM, 3, bias)
    assert found["activation"]["kind"] == "relu"
    assert len(ops(made, "linear")) == 1  # the head


class Machine(nn.Module):
    """Products of all fields with mixtures of them, [B, FIELDS * rank]."""

    def __init__(self, fields=FIELDS, rank=3):
        super().__init__()
        self.mixtures = nn.Parameter(torch.randn(fields, rank))

    def forward(self, x):
        return torch.bmm(x, x.transpose(1, 2) @ self.mixtures).flatten(1)


def test_products_with_mixtures_of_fields_are_one_dot():
    made = exported(Machine())
    found, = ops(made, "dot")
    assert found["num_left"] == FIELDS
    assert len(ops(made, "field_linear")) == 1 and len(ops(made, "linear")) == 1


def test_products_of_fields_of_two_sets_are_between_them():
    class Halves(nn.Module):
        def forward(self, x):
            return x[:, 3:] @ x[:, [2, 0, 2]].transpose(1, 2)

    found, = ops(exported(Halves()), "dot")
    assert found["num_left"] == 2


class WukongLayer(nn.Module):
    """LN(concat(FMB(x), LCB(x)) + x) (Zhang et al. 2024)."""

    def __init__(self):
        super().__init__()
        self.machine, self.compression = Machine(), nn.Linear(FIELDS, 2, bias=False)
        self.products, self.norm = nn.LayerNorm(FIELDS * 3), nn.LayerNorm(DIM)
        self.mlp = nn.Sequential(nn.Linear(FIELDS * 3, 16), nn.ReLU(), nn.Linear(16, (FIELDS - 2) * DIM))

    def forward(self, x):
        fields = self.mlp(self.products(self.machine(x))).view(len(x), FIELDS - 2, DIM)
        compressed = self.compression(x.transpose(1, 2)).transpose(1, 2)
        return self.norm(torch.cat([fields, compressed], 1) + x)


def test_a_layer_of_wukong_is_few_launches():
    one, two = (exported(nn.Sequential(*[WukongLayer() for _ in range(n)])) for n in (1, 2))
    assert len(ops(two, "field_linear")) == len(ops(two, "dot")) == 2
    assert steps(two) - steps(one) == 5


@pytest.mark.parametrize("layers, write", [
    (1, lambda m, x: [m.a(x), m.b(x), m.c(x)]), (2, lambda m, x: [torch.relu(m.a(x)), m.b(x), m.c(x)]),
    (2, lambda m, x: [m.a(x), m.b(x), m.biased(x)]), (2, lambda m, x: [m.a(x), m.b(x), m.c(x + 1)]),
    (1, lambda m, x: [m.a(x), m.b(x)[..., 1:]]), (1, lambda m, x: [m.b(x), m.a(m.b(x).repeat(1, 1, 2)[..., :FIELDS])][:1])])
def test_layers_of_the_same_fields_are_one(layers, write):
    parts = {name: nn.Linear(FIELDS, out, bias=name == "biased") for name, out in
             (("a", 2), ("b", 4), ("c", 3), ("biased", 2))}
    made = exported(Function(lambda m, x: torch.cat(write(m, x.transpose(1, 2)), 2), **parts))
    assert len(ops(made, "field_linear")) == layers


# --- norms of fields


def norming(function):
    parts = {"layer": nn.Linear(FIELDS * DIM, FIELDS * DIM), "norm": nn.LayerNorm(DIM), "other": nn.LayerNorm(DIM)}
    with torch.no_grad():
        for part in parts.values():
            part.weight.normal_()
            part.bias.normal_()
    return exported(Function(function, **parts))


def of_layer(m, x):
    return m.layer(x.flatten(1)).view(x.shape)


@pytest.mark.parametrize("groups, norm", [
    ([FIELDS], lambda m, x: m.norm(of_layer(m, x))), ([1], lambda m, x: m.norm(of_layer(m, x))[:, 2]),
    ([3], lambda m, x: m.norm(of_layer(m, x))[:, 1:4]), ([1] * FIELDS, lambda m, x: m.norm(x.flip(1))),
    ([FIELDS], lambda m, x: m.norm(of_layer(m, x)) * torch.arange(1.0, FIELDS + 1)[:, None] + m.other.bias),
    ([FIELDS], lambda m, x: m.norm(torch.relu(of_layer(m, x)) + of_layer(m, x * 2))),
    ([1] * FIELDS, lambda m, x: m.norm(of_layer(m, x) + of_layer(m, x + 1)[:, :1]))])
def test_norms_of_fields_side_by_side_are_one(groups, norm):
    made = norming(norm)
    assert sorted(op["groups"] for op in ops(made, "layer_norm")) == groups


@pytest.mark.parametrize("is_read", (False, True))
def test_a_sum_that_norms_alone_read_is_divided_as_they_are(is_read):
    def residual(m, x):
        total = torch.cat([of_layer(m, x)[:, 2:4], torch.relu(of_layer(m, x + 1))[:, :3]], 1) + of_layer(m, x * 2)
        return torch.cat([m.norm(total), total], 2) if is_read else m.norm(total)
    made = norming(residual)
    assert sorted(op["groups"] for op in ops(made, "layer_norm")) == [2, 3]
    assert len(ops(made, "concat")) == 2 + is_read  # fields, what is normed, and what is added


# --- mixtures of crosses


class MixtureOfCrosses(nn.Module):
    """DCN-Mix (Wang et al. 2021): sum_e softmax(g)_e x_0 (U_e tanh(V_e x) + b) + x."""

    def __init__(self, experts=3, rank=4):
        super().__init__()
        width = FIELDS * DIM
        self.down, self.up = (nn.ModuleList(nn.Linear(i, o) for _ in range(experts))
                              for i, o in ((width, rank), (rank, width)))
        self.gate = nn.Linear(width, experts)

    def forward(self, x):
        x0 = x.flatten(1)
        crosses = torch.stack([x0 * up(torch.tanh(down(x0))) for down, up in zip(self.down, self.up)], 2)
        return (crosses @ self.gate(x0).softmax(1).unsqueeze(2)).squeeze(2) + x0


def test_crosses_are_mixed_before_their_common_factor():
    made = exported(MixtureOfCrosses())
    assert len(ops(made, "mix")) == 1
    found = [[i["function"] for i in op["program"]["instructions"]] for op in ops(made, "elementwise")]
    assert sum("mul" in functions for functions in found) == 1  # x_0 times the mixture


# --- products of pairs, sums, multiples


class Products(nn.Module):
    """Of all pairs of fields, [B, pairs, DIM], as FFM and PNN write them, and what is made of them."""

    def __init__(self, behind):
        super().__init__()
        self.behind = behind
        self.pairs = [(i, j) for i in range(FIELDS) for j in range(i + 1, FIELDS)]

    def forward(self, x):
        return self.behind(torch.stack([x[:, i] for i, _ in self.pairs], 1) *
                           torch.stack([x[:, j] for _, j in self.pairs], 1))


def test_products_that_a_constant_mask_picks():
    """PyTorch does not know how many rows these are of."""
    mask = torch.triu(torch.ones(FIELDS, FIELDS), 1).bool()

    class Picked(nn.Module):
        def forward(self, x):
            return torch.masked_select(x @ x.transpose(1, 2), mask).view(-1, FIELDS * (FIELDS - 1) // 2)
    assert len(ops(exported(Picked()), "dot")) == 1


def test_sums_of_products_of_pairs_are_dots():
    made = exported(Products(lambda products: products.sum(-1)))
    assert len(ops(made, "dot")) == 1 and not ops(made, "reduce")
    assert len(ops(made, "elementwise")) == 1  # the sigmoid


def test_pairs_are_dots_where_most_dots_of_their_fields_are_wanted():
    made = exported(Products(lambda products: products[:, [0, 7]].sum(-1)))
    assert len(ops(made, "dot")) == 1  # two pairs of four fields, six dots

    class Halves(nn.Module):
        def forward(self, x):
            return (x[:, :5] * x[:, 5:]).sum(-1)

    batch = ids(20, 10)
    module = OfFields(Halves(), 5)
    made = check(module, batch)
    assert not ops(made, "dot")  # five pairs of ten fields, 45 dots


def test_sums_over_pairs_read_products_where_they_lie():
    made = exported(Products(lambda products: products.sum(1)))
    assert len(ops(made, "concat")) <= 2 and not ops(made, "reduce")
    made = exported(Products(lambda products: torch.relu(products).sum(2)))
    assert len(ops(made, "concat")) <= 3 and len(ops(made, "reduce")) == 10


def test_sums_of_one_column_are_that_column():
    made = exported(Column())
    assert not ops(made, "reduce") and steps(made) <= 3


class Column(nn.Module):
    def forward(self, x):
        return x[:, :, 2:3].sum(-1)


class CrossOfOneVector(nn.Module):
    """x0 (xl w) + b + xl, with products of matrices as deepctr writes it."""

    def __init__(self, turned):
        super().__init__()
        self.turned = turned
        self.w = nn.Parameter(torch.randn(FIELDS * DIM, 1) / 8)
        self.b = nn.Parameter(torch.randn(FIELDS * DIM, 1))

    def forward(self, x):
        x0 = xl = x.flatten(1).unsqueeze(2)
        for _ in range(2):
            number = torch.tensordot(xl, self.w, dims=([1], [0]))
            crossed = torch.matmul(number, x0.mT).mT if self.turned else torch.matmul(x0, number)
            xl = crossed + self.b + xl
        return xl.squeeze(2)


@pytest.mark.parametrize("turned", [False, True])
def test_multiples_are_no_dots(turned):
    made = exported(CrossOfOneVector(turned))
    assert not ops(made, "dot") and steps(made) <= 6


class PowersOfComplexFields(nn.Module):
    """A layer of EulerNet: products of powers of fields, which are complex numbers, by their sizes and angles."""

    def __init__(self, out=3):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(1, FIELDS, 1))
        self.powers, self.bias = nn.Parameter(torch.randn(FIELDS, out)), nn.Parameter(torch.randn(2, 1, DIM, out) / 9)
        self.layer = nn.Linear(FIELDS * DIM, out * DIM)

    def forward(self, x):
        parts = real, imaginary = self.scale * torch.cos(x), self.scale * torch.sin(x)
        logs = 0.5 * torch.log(real**2 + imaginary**2 + 1e-8), torch.atan2(imaginary, real)
        size, angle = (each.mT @ self.powers + bias for each, bias in zip(logs, self.bias))
        size, angle = torch.exp(size).mT, angle.mT
        real, imaginary = (torch.relu(self.layer(each.flatten(1))).view(B, -1, DIM) for each in parts)
        return torch.cat([real + size * torch.cos(angle), imaginary + size * torch.sin(angle)], 1)


def test_a_layer_of_euler_net_is_few_launches():
    made = exported(PowersOfComplexFields())
    assert len(ops(made, "field_linear")) == 2 and steps(made) <= 11


class NumbersTimesEmbeddings(nn.Module):
    """As RecBole has fields of numbers."""

    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(20, DIM), nn.Linear(3 * DIM, 1)

    def forward(self, x, numbers):
        return self.head((self.table(x) * numbers[:, :, None]).flatten(1)).squeeze(1)


def test_numbers_are_not_repeated_for_the_columns_that_they_multiply():
    batch = {"x": ids(20, 3), "numbers": torch.randn(B, 3)}
    made = check(NumbersTimesEmbeddings(), batch)
    products = nodes(made, "elementwise")
    assert len(products) == 3 and all(node["width"] == DIM for node in products)
    assert steps(made) == 3  # look-ups, products, head

# SPDX-License-Identifier: Apache-2.0
"""Modules as users write them: their graphs score as PyTorch does, and what cannot be expressed is told."""

import models
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import warprank as wr
import warprank.torch
from warprank.rows import convert_rows

B = 6
CLOSE = 1e-5


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(3)


def trained(module):
    """With statistics and scales that are not those of a new module."""
    for part in module.modules():
        if isinstance(part, nn.BatchNorm1d):
            part.running_mean.normal_()
            part.running_var.uniform_(0.5, 2)
        if isinstance(part, (nn.BatchNorm1d, nn.LayerNorm)) and part.weight is not None:
            part.weight.data.uniform_(0.5, 2)
            if part.bias is not None:
                part.bias.data.normal_()
    return module


def check(module, batch, **options):
    exported = wr.torch.export(trained(module), batch, **options)
    for name, difference in exported.check(batch).items():
        assert difference.largest <= CLOSE, (name, difference)
    return exported


def ids(high, *shape):
    return torch.randint(0, high, (B, *shape))


# --- models


def test_deepfm():
    sparse = torch.cat([ids(10, 1), ids(20, 1), ids(30, 1)], 1)
    exported = check(models.DeepFM([10, 20, 30], 2), (sparse, torch.randn(B, 2)))
    plan = wr.compile(exported.graph)
    assert [i.name for i in plan.ids] == ["sparse.0", "sparse.1", "sparse.2"]
    assert "deep.0.weight" in exported.weights and "deep.1.running_var" in exported.weights
    assert set(exported.tables) == {f"{part}.{i}" for part in ("embeddings", "first_order") for i in range(3)}


def dcn_batch():
    return {"user_id": ids(50), "film_id": ids(80), "tags": ids(20, 4), "context": torch.randn(B, 3)}


AXES = {"user_id": "user", "film_id": "user/item", "tags": "user/item", "context": "user"}


def test_dcn_v2_on_two_axes():
    exported = check(models.DCNv2(), dcn_batch(), axes=AXES)
    plan = wr.compile(exported.graph)
    assert [a.name for a in plan.axes] == ["user", "item", "tags"]
    assert exported.outputs == ["ctr", "like"]
    # What is the user's is computed once for each user, and scores stay.
    data, _ = exported.columns(dcn_batch())
    own = {"user_id": np.array([7]), "context": np.float32([[1, 2, 3]])}
    items = {"film_id": np.arange(B), "tags": data["tags"]}
    together = exported.model().score(own | items, {"item": [0, B]})
    repeated = {name: np.repeat(column, B, 0) for name, column in own.items()} | items
    apart = exported.model().score(repeated, {"item": np.arange(B + 1)})
    np.testing.assert_allclose(together["ctr"], apart["ctr"], atol=1e-6)


def test_dlrm():
    exported = check(models.DLRM([10, 20], 3), (torch.randn(B, 3), ids(10, 2), ids(20, 4)))
    assert '"op": "dot"' in exported.graph.to_json()


def test_other_batches_than_the_example():
    module = models.DCNv2()
    exported = check(module, dcn_batch(), axes=AXES)
    batch = {name: torch.cat([tensor] * 3).flip(0) for name, tensor in dcn_batch().items()}
    assert exported.check(batch)["ctr"].largest <= CLOSE


def test_a_saved_module_is_loaded(tmp_path):
    batch = dcn_batch()
    exported = check(models.DCNv2(), batch, axes=AXES)
    exported.save(tmp_path / "model")
    data, offsets = exported.columns(batch)
    loaded = wr.load(tmp_path / "model").score(data, offsets)
    np.testing.assert_array_equal(loaded["like"], exported.score(batch)["like"])


def test_modules_stay_as_they_were():
    module = models.DeepFM([10, 20, 30], 2).train()
    module.deep[1].eval()
    wr.torch.export(module, (torch.zeros(B, 3, dtype=torch.long), torch.randn(B, 2)))
    assert module.training and not module.deep[1].training


# --- ops, each against PyTorch


class Function(nn.Module):
    def __init__(self, function, **parts):
        super().__init__()
        self.function = function
        for name, part in parts.items():
            if isinstance(part, nn.Module):
                setattr(self, name, part)
            else:
                self.register_buffer(name, part)

    def forward(self, *batch):
        return self.function(self, *batch)


OPS = {
    "activations": lambda m, x: sum([F.relu(x), torch.sigmoid(x), torch.tanh(x), F.silu(x), F.gelu(x),
                                     F.gelu(x, approximate="tanh"), F.leaky_relu(x, 0.3), F.elu(x, 0.7)]),
    "functions": lambda m, x: sum([torch.exp(x), torch.log(x.abs() + 1), torch.sqrt(x * x), torch.rsqrt(x.abs() + 1),
                                   -x]),
    "angles": lambda m, x: torch.cat([
        torch.sin(x) * torch.cos(x), torch.atan2(x, x.flip(1)), torch.arctan2(x, -x.abs()), torch.atan(x),
        torch.atan2(x, torch.tensor(0.5)) + torch.atan2(torch.tensor(-0.5), x), torch.sin(1e4 * x)], 1),
    "signs of zeros": lambda m, x: torch.cat([
        torch.atan2(x.relu() * m.vector, -x.abs()), torch.atan2(x.relu() / -m.vector * m.vector, -x.abs()),
        torch.atan2(-0.5 * x.relu(), -x.abs())], 1),
    "powers": lambda m, x: x**2 + x**3 + (x.abs() + 1)**0.5 + 1 / (x**2 + 1),
    "numbers": lambda m, x: 2 - x * 3 + (x / 4 - 1) + torch.add(x, x, alpha=2) + torch.rsub(x, 1),
    "clamps": lambda m, x: x.clamp(-0.5, 0.25) + F.hardtanh(x) + x.clamp(min=0.1) + torch.minimum(x, x * 2),
    "comparisons": lambda m, x: torch.where(x > 0.1, x, x * 0.5) + (x <= 0.3).float(),
    "truth values": lambda m, x: torch.cat([
        x * torch.logical_and(x, x.flip(1).relu()), x * torch.logical_or(x > 1, x.flip(1).relu()),
        x * torch.logical_and(m.vector > 1, x), x * torch.logical_not(x.relu()), x * ((x > 0) & True | ~(x < 1)),
        x * ((x > 0) + (x > -1)), x * torch.full_like(x, 2, dtype=torch.bool)], 1),
    "whole numbers": lambda m, x: x * torch.full_like(x, 2.7, dtype=torch.int64) + x * (x > 0).int().long() * (
        x > 0).sum(1, keepdim=True, dtype=torch.int64),
    "conversions to truth values": lambda m, x: torch.cat([
        x * x.bool(), x * x.relu().bool(), torch.where((x.relu() / 2).to(torch.bool), x, 7.0)], 1),
    "constants": lambda m, x: ((x + m.vector) * m.vector - m.vector) / m.vector + (m.vector - x),
    "softmax": lambda m, x: torch.softmax(x, 1) + torch.softmax(x.view(B, 2, 3), 1).flatten(1),
    "sums": lambda m, x: torch.stack([x.sum(1), x.mean(-1), x.amax(1), x.view(B, 2, 3).sum((1, 2))], 1),
    "sums of parts": lambda m, x: torch.cat([x.view(B, 2, 3).sum(1), x.view(B, 2, 3).mean(2),
                                             x.view(B, 2, 3).amax(1)], 1),
    "broadcasts": lambda m, x: (x.view(B, 2, 3) * x[:, :3].unsqueeze(1) + x[:, :2].unsqueeze(2)).flatten(1),
    "minima": lambda m, x: torch.cat([x.amin(1, keepdim=True), x.view(B, 2, 3).amin(2)], 1),
    "padding": lambda m, x: torch.cat([F.pad(x, (1, 2), value=3), F.pad(x.view(B, 2, 3), (-1, 2, 1, 0)).flatten(1)], 1),
    "gelu of erf": lambda m, x: x * 0.5 * (1 + torch.erf(x / 2**0.5)) + x / 2 * torch.erfc(-x * 0.5**0.5),
    "halves of gelu": lambda m, x: (x * (1 + torch.erf(x / 2**0.5)) * 0.5 + 0.5 * ((1 + torch.erf(x / 2**0.5)) * x) +
                                    x * (0.5 * (1 + torch.erf(x / 2**0.5))) + x * (1 + torch.erf(x / 2**0.5)) / 2),
    "one column": lambda m, x: x * x[:, :1] + x.sum(1, keepdim=True),
    "moves": lambda m, x: torch.cat([x.flip(1), x.view(B, 2, 3).transpose(1, 2).reshape(B, 6), *x.split(4, 1),
                                     x[:, [5, 0]], x.roll(2, 1), x.repeat(1, 2), x[:, ::2]], -1) * 1.5,
    "products": lambda m, x: torch.bmm(x.view(B, 3, 2), x.view(B, 3, 2).transpose(1, 2)).flatten(1),
    "products of others": lambda m, x: torch.matmul(x.view(B, 3, 2), (x * 2).view(B, 2, 3)).flatten(1),
    "matrices": lambda m, x: (x @ m.matrix).view(B, 2, 2) @ m.matrix[:2, :2],
    "layer of fields": lambda m, x: m.layer(x.view(B, 2, 3)).flatten(1),
    "matrices of fields": lambda m, x: torch.cat([
        (m.matrices @ x.view(B, 2, 3, 1)).flatten(1), (x.view(B, 2, 1, 3) @ m.matrices.mT).flatten(1),
        (x.view(B, 2, 1, 3) @ m.matrices.mT.expand(B, 2, 3, 4)).flatten(1),
        torch.einsum("bfd,fed->bfe", x.view(B, 2, 3), m.matrices).flatten(1)], 1),
    "constant conditions": lambda m, x: torch.cat([
        torch.where(m.matrix[:, 0] > 0, x, -x * 2), torch.where(m.matrix[:, 1] > 0, 3.0, x),
        torch.softmax(x.view(B, 2, 3).masked_fill(torch.eye(3, dtype=torch.bool)[:2], -torch.inf), -1).flatten(1)], 1),
    "parts of none": lambda m, x: torch.cat([torch.cat([part, part * 2 if part.shape[1] else part], 1)
                                             for part in x.split([0, 2, 0, 4], 1)], 1),
    "norms": lambda m, x: m.norm(x) + m.layer_norm(x) + F.layer_norm(x, (6,)) + m.plain(x),
    "norm of fields": lambda m, x: m.field_norm(x.view(B, 2, 3)).flatten(1) + m.channels(x.view(B, 2, 3)).flatten(1),
    "prelu": lambda m, x: m.prelu(x) + m.one_prelu(x),
    # What PyTorch makes of other ops.
    "cosines": lambda m, x: F.cosine_similarity(x.view(B, 2, 3), m.layer.weight, dim=-1) + F.pairwise_distance(
        x[:, :3], x[:, 3:]).unsqueeze(1),
    "unit vectors": lambda m, x: F.normalize(x.view(B, 2, 3), dim=-1).flatten(1) * x.norm(dim=1, keepdim=True),
    "soft steps": lambda m, x: F.softplus(x * 30) + F.logsigmoid(x * 30) + F.mish(x) + F.hardswish(x * 3),
    "fused": lambda m, x: torch.addcmul(x, x, m.vector, value=2) + torch.lerp(x, x * x, 0.3),
    "logsumexp": lambda m, x: torch.logsumexp(x, 1, keepdim=True) + F.glu(x),
    "a step of a GRU": lambda m, x: m.cell(x[:, :3], x[:, 3:]),
}


@pytest.mark.parametrize("name", OPS)
def test_ops(name):
    parts = {"vector": torch.tensor([1.0, 2, 3, -4, 5, 6]), "matrix": torch.randn(6, 4), "layer": nn.Linear(3, 2),
             "norm": nn.BatchNorm1d(6), "plain": nn.BatchNorm1d(6, affine=False), "layer_norm": nn.LayerNorm(6),
             "field_norm": nn.LayerNorm(3), "channels": nn.BatchNorm1d(2), "prelu": nn.PReLU(6, 0.3),
             "one_prelu": nn.PReLU(), "matrices": torch.randn(2, 4, 3), "cell": nn.GRUCell(3, 3)}
    check(Function(OPS[name], **parts), torch.randn(B, 6))


@pytest.mark.parametrize("function", [lambda n: n & 1, lambda n: n | 1, lambda n: ~n])
def test_ops_of_bits_are_refused(function):
    module = Function(lambda m, x: x * function((x > 0).sum(1, keepdim=True)))
    with pytest.raises(wr.InvalidArgument, match="expected truth values, got '.*' of torch.int64"):
        wr.torch.export(module, torch.randn(B, 6))


@pytest.mark.parametrize("convert", [lambda x: x.relu().long(), lambda x: (x > 0).sum(1, keepdim=True).to(torch.int8),
                                     lambda x: x.sum(1, keepdim=True, dtype=torch.int64),
                                     lambda x: (x > 0).sum(1, keepdim=True, dtype=torch.bool),
                                     lambda x: torch.view_as_real(x.to(torch.complex64))[..., 0]])
def test_conversions_that_change_numbers_are_refused(convert):
    with pytest.raises(wr.InvalidArgument, match="expected floating-point numbers, got a conversion to torch."):
        wr.torch.export(Function(lambda m, x: x * convert(x)), torch.randn(B, 6))


@pytest.mark.parametrize("norm", [
    lambda eps: nn.BatchNorm1d(6, eps=eps),
    lambda eps: nn.BatchNorm1d(6, eps=eps, affine=False),
    lambda eps: nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6, eps=eps), nn.ReLU()),
    lambda eps: nn.LayerNorm(6, eps=eps),
    lambda eps: nn.LayerNorm(6, eps=eps, bias=False),
    lambda eps: nn.LayerNorm(6, eps=eps, elementwise_affine=False),
    lambda eps: Function(lambda m, x: F.layer_norm(x, (6,), eps=eps)),
    lambda eps: nn.Sequential(nn.LayerNorm(6, eps=eps), nn.Linear(6, 2)),
])
def test_eps_of_norms(norm):
    for eps in (1e-8, 0.5):
        check(norm(eps), torch.randn(B, 6) * 0.3)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 0])
def test_bags(mode, padding):
    bag = nn.EmbeddingBag(5, 3, mode=mode, padding_idx=padding)
    batch = ids(5, 4)
    batch[1] = 0  # of padding alone
    check(Function(lambda m, x: m.bag(x), bag=bag), batch)


def test_fields_of_one_table():
    exported = check(Function(lambda m, x: m.table(x).flatten(1), table=nn.Embedding(9, 2)), ids(9, 3))
    assert list(exported.tables) == ["table"] and exported.tables["table"].shape == (9, 2)


def test_layers_that_are_used_twice():
    exported = check(Function(lambda m, x: m.layer(torch.relu(m.layer(x))), layer=nn.Linear(4, 4)), torch.randn(B, 4))
    np.testing.assert_array_equal(exported.weights["layer.weight"], exported.weights["layer#2.weight"])


# --- rows


@pytest.mark.parametrize("type, bound", [("f32", 0), ("f16", 2**-11), ("bf16", 2**-8), ("i8", 1 / 255)])
def test_rows(type, bound):
    if type == "bf16":
        pytest.importorskip("ml_dtypes")
    module = models.DCNv2()
    exported = wr.torch.export(module, dcn_batch(), rows={"film": type})
    error = exported.row_errors["film"]
    low, high = module.film.weight.min().item(), module.film.weight.max().item()
    scale = high - low if type == "i8" else max(abs(low), abs(high))
    assert error.type == type and error.largest <= bound * scale and (error.largest > 0) == (type != "f32")
    assert error.root_mean_square <= error.largest and exported.row_errors["user"].largest == 0
    assert exported.check(dcn_batch())["ctr"].largest <= max(CLOSE, 10 * error.largest)


def test_rows_of_one_value_and_rows_that_overflow():
    tensors, error = convert_rows("t", np.float32([[3, 3], [0, 0], [-1, 1]]), "i8")
    assert tensors["t"].dtype == np.int8 and error.largest < 1e-6 * 300
    with pytest.raises(wr.InvalidArgument, match="rows of table 'table': expected values that f16 can hold"):
        table = nn.Embedding(2, 2)
        table.weight.data.fill_(1e6)
        wr.torch.export(Function(lambda m, x: m.table(x), table=table), ids(2), rows="f16")


# --- what is wrong


def test_what_cannot_be_expressed_is_told_together_with_its_module():
    class Tower(nn.Module):
        def __init__(self):
            super().__init__()
            self.pool = nn.MaxPool1d(2, 1, dilation=2)
            self.gru = nn.Linear(4, 2)

        def forward(self, x):
            return self.pool(x.unsqueeze(1)).squeeze(1) + torch.round(self.gru(x)) + torch.frac(x)[:, :2]

    module = nn.Sequential(nn.Linear(3, 4), Tower(), nn.Linear(2, 1))
    with pytest.raises(wr.InvalidArgument) as raised:
        wr.torch.export(module, torch.randn(B, 3))
    problems = raised.value.problems
    assert [p.what for p in problems] == ["module '1.pool' (MaxPool1d): aten.max_pool1d.default",
                                          "module '1' (Tower): aten.round.default",
                                          "module '1' (Tower): aten.frac.default"]
    assert problems[0].expected == "a pool without dilation and ceil_mode, behind F.pad"
    assert problems[2].got == "none that does this in aten.trunc.default"


@pytest.mark.parametrize("function, message", [
    (lambda m, x: x + torch.rand(4),
     "aten.rand.default: expected numbers that are the same in each call, got random ones"),
    (lambda m, x: x.split([0, 4], 1)[0].sum(1), "aten.sum.dim_IntList: expected a batch of numbers, got one of none"),
    (lambda m, x: x.view(B, 1, 4) @ torch.ones(B, 4, 2).cumsum(0),
     "aten.matmul.default: expected a constant that is the same for every row, got one of shape [6, 4, 2]"),
    (lambda m, x: torch.ones(2, 3, B) @ x,
     "aten.matmul.default: expected each row by itself, got a layer over the batch"),
    (lambda m, x: x - x.mean(0), "aten.mean.dim: expected each row by itself, got an op over the batch"),
    (lambda m, x: x.flip(0), "aten.flip.default: expected each row made of itself, and all in one way, got others"),
    (lambda m, x: x.reshape(-1), "output 'output': expected scores of a batch, got rows that are not the batch's"),
    (lambda m, x: x[torch.arange(B), torch.arange(B) % 4],
     "aten.index.Tensor: expected each row made of itself, and all in one way"),
    (lambda m, x: F.pad(x, (0, 0, 1, 0)), "expected columns, of each row by itself, got an op over the batch"),
    (lambda m, x: torch.erf(x), "aten.erf.default: expected an op of the model language, got none that does this"),
    (lambda m, x: x**x, "expected a batch to the power of a number, or a number above 0 to that of a batch"),
    (lambda m, x: m.vector, "output 'output': expected scores of a batch, got Tensor"),
])
def test_what_rows_do_not_do_by_themselves(function, message):
    with pytest.raises(wr.InvalidArgument) as raised:
        wr.torch.export(Function(function, vector=torch.ones(4)), torch.randn(B, 4))
    assert message in str(raised.value)


def test_control_flow_by_values_is_told():
    with pytest.raises(wr.InvalidArgument, match="torch.export of Function: expected a module whose control flow"):
        wr.torch.export(Function(lambda m, x: x if x.sum() > 0 else -x), torch.randn(B, 2))


def test_wrong_axes_are_told_together():
    with pytest.raises(wr.InvalidArgument) as raised:
        wr.torch.export(models.DCNv2(), dcn_batch(), axes={"usr_id": "user", "film_id": "item", "tags": "item"})
    assert [(p.what, p.got) for p in raised.value.problems] == [
        ("axes: input 'user_id'", "none"), ("axes: input 'context'", "none"),
        ("axes: 'usr_id'", "none of that name (did you mean 'user_id'?)")]


def test_axes_of_which_none_is_above_the_other_do_not_mix():
    axes = AXES | {"tags": "user/history"}
    with pytest.raises(wr.InvalidArgument, match="expected tensors of which one's axis lies above the other's"):
        wr.torch.export(models.DCNv2(), dcn_batch(), axes=axes)


class OfLosses(nn.Module):
    """Gives what its losses read, too."""

    def __init__(self):
        super().__init__()
        self.table, self.ctr, self.like = nn.Embedding(20, 4), nn.Linear(4, 1), nn.Linear(4, 1)

    def forward(self, seen, film):
        x = self.table(film)
        return {"seen": self.table(seen), "ctr": self.ctr(x), "mask": seen > 0, "none": None, "like": self.like(x)}


@pytest.mark.parametrize("outputs", [["like", "ctr"], ["ctr"]])
def test_some_outputs_of_a_dictionary(outputs):
    batch = {"seen": ids(20, 3), "film": ids(20)}
    axes = {"seen": "row/seen[]", "film": "row"}
    exported = check(OfLosses(), batch, axes=axes, outputs=outputs)
    assert sorted(exported.outputs) == sorted(outputs) and sorted(exported.check(batch)) == sorted(outputs)
    with pytest.raises(wr.InvalidArgument, match="outputs: expected 5 names, or some of seen, ctr, mask, none, like, "
                       "got 1: cvr"):
        wr.torch.export(OfLosses(), batch, axes, outputs=["cvr"])


def test_wrong_examples_outputs_rows_and_weights():
    linear = nn.Linear(2, 1)
    with pytest.raises(wr.InvalidArgument, match="example_batch: expected 2 to 8192 rows, got 1"):
        wr.torch.export(linear, torch.randn(1, 2))
    with pytest.raises(wr.InvalidArgument, match="outputs: expected 1 names, None for one that is no score, got 2: a, b"):
        wr.torch.export(linear, torch.randn(B, 2), outputs=["a", "b"])
    with pytest.raises(wr.InvalidArgument, match="rows: 'films': expected a table of the model, user, film, tags"):
        wr.torch.export(models.DCNv2(), dcn_batch(), rows={"films": "i8"})
    linear.weight.data[0, 1] = float("nan")
    with pytest.raises(wr.InvalidArgument, match="weight 'weight', element .0, 1.: expected a finite number, got nan"):
        wr.torch.export(linear, torch.randn(B, 2))


def test_batches_that_do_not_fit(tmp_path):
    user, film, tags, context = (dcn_batch()[name] for name in ("user_id", "film_id", "tags", "context"))
    exported = wr.torch.export(models.DCNv2(), dcn_batch(), hashed={"user": np.arange(50) * 10**9})
    wrong = {"user_id": user, "film_id": film[:4], "tags": tags, "context": context[:, :-1]}
    beyond = dcn_batch() | {"film_id": film + 10**6, "user_id": torch.cat([user[:-1], torch.tensor([-1])])}
    typed = dcn_batch() | {"film_id": film.float(), "tags": tags.double()}
    renamed = {"user_id": user, "film_id": film, "tag": tags, "context": context}
    for call in exported.check, exported.score, lambda batch: exported.save(tmp_path / "model", batch):
        with pytest.raises(wr.InvalidArgument) as raised:
            call(wrong)
        assert {p.what for p in raised.value.problems} == {"batch: input 'film_id'", "batch: input 'context'"}
        for changed, names in ((beyond, {"batch: input 'film_id'", "batch: input 'user_id'"}),
                               (typed, {"batch: input 'film_id'", "batch: input 'tags'"}),
                               (renamed, {"batch: input 'tags'", "batch: 'tag'"})):
            with pytest.raises(wr.InvalidArgument) as raised:
                call(changed)
            assert {p.what for p in raised.value.problems} == names
        with pytest.raises(wr.InvalidArgument, match="batch: expected arguments user_id, film_id, tags, .*, got 5"):
            call((user, film, tags, context, context))
        with pytest.raises(wr.InvalidArgument, match="batch: argument 'tags': expected tensors as the example has"):
            call(dcn_batch() | {"tags": [tags]})
    assert not list(tmp_path.iterdir())
    with pytest.raises(wr.InvalidArgument) as raised:
        exported.check(beyond)
    assert sorted((p.expected, p.got) for p in raised.value.problems) == [
        ("ids of 0 to 49, the rows of table 'user'", "-1"),
        ("ids of 0 to 79, the rows of table 'film'", f"{film[0] + 10**6}, and {B - 1} more")]
    with pytest.raises(wr.InvalidArgument) as raised:
        exported.check(typed)
    assert sorted((p.expected, p.got) for p in raised.value.problems) == [
        ("integers", "float32 values"), ("integers", "float64 values")]


def test_arguments_in_any_order():
    batch = dcn_batch()
    exported = wr.torch.export(models.DCNv2(), batch)
    output = exported.outputs[0]
    wanted = exported.score(batch)[output]
    others = dict(reversed(batch.items())), tuple(batch[n] for n in ("user_id", "film_id", "tags", "context"))
    for other in others:
        np.testing.assert_array_equal(exported.score(other)[output], wanted)
        assert exported.check(other)[output].largest <= CLOSE

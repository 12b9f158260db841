# SPDX-License-Identifier: Apache-2.0
"""Ops that the language does not have by their names, made of those that it has: each as PyTorch computes it."""

import numpy as np
import pytest
import torch
from test_export import B, Function, check, ids
from torch import nn
from torch.nn import functional as F

import warprank as wr


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(3)


PAIRS = torch.ones(6, 6, dtype=torch.bool).triu(1)
OPS = {
    "variances": lambda m, x: torch.cat([x.var(1, keepdim=True), x.std(1, keepdim=True), x.view(B, 2, 3).var(
        (1, 2), unbiased=False).unsqueeze(1), *torch.var_mean(x, 1, keepdim=True)], 1),
    "products": lambda m, x: torch.cat([x.prod(1, keepdim=True), x.view(B, 2, 3).prod(2)], 1),
    "softmax and its logarithm": lambda m, x: x.log_softmax(1) + F.selu(x) + F.celu(x, 1.5),
    "signs": lambda m, x: torch.sign(x) + F.softshrink(x) + x.nan_to_num(),
    "powers": lambda m, x: x**4 + x**7 + (x.abs() + 1)**-3 + (x / 2)**20 + x.abs()**1.7 + 2.0**x + x.norm(
        p=1, dim=1, keepdim=True),
    "extremes": lambda m, x: torch.cat([x.max(1, keepdim=True).values, x.view(B, 2, 3).min(2)[0]], 1),
    "whether any or all": lambda m, x: torch.cat([(x > 1).any(1, keepdim=True), (x > -1).all(1, keepdim=True)], 1) * x[
        :, :2],
    "sums up to each": lambda m, x: torch.cat([x.cumsum(1), x.view(B, 2, 3).cumsum(1).flatten(1)], 1),
    "pairs": lambda m, x: torch.masked_select(x.unsqueeze(2) * x.unsqueeze(1), PAIRS).view(B, -1),
    "diagonals": lambda m, x: torch.diagonal(x.unsqueeze(2) * x.unsqueeze(1), dim1=1, dim2=2) + x.unfold(1, 6, 1)[:, 0],
    "columns": lambda m, x: x.gather(1, torch.tensor([[4, 0, 4]]).expand(B, -1)),
    "joined with numbers": lambda m, x: torch.cat([x, torch.zeros(B, 2), m.vector.expand(B, -1)], 1),
    "stacked with numbers": lambda m, x: torch.stack([x, m.vector.expand(B, -1), torch.ones(B, 6)], 1).flatten(1),
    "bilinear": lambda m, x: m.bilinear(x[:, :2], x[:, 3:]),
    "group norm": lambda m, x: m.groups(torch.cat([x, x * 2], 1).view(B, 4, 3)).flatten(1),
    "pools": lambda m, x: torch.cat([F.max_pool1d(x.unsqueeze(1), 2).squeeze(1), F.avg_pool1d(x.unsqueeze(
        1), 3, 1).squeeze(1), F.max_pool2d(x.view(B, 1, 2, 3), (2, 1), padding=(1, 0)).flatten(1)], 1),
    "largest": lambda m, x: torch.cat([x.topk(3, 1)[0], x.view(B, 2, 3).topk(1, 1)[0].flatten(1), x.sort(1)[0],
                                       x.sort(1, descending=True)[0], x.topk(2, 1, largest=False)[0]], 1),
    "largest in their order": lambda m, x: x.gather(1, x.topk(4, 1)[1].sort(1)[0]),
    "the larger of two": lambda m, x: torch.max(x, x.flip(1)) - torch.min(x, torch.tensor(0.5)),
    "stably sorted": lambda m, x: torch.sort(x, dim=1, stable=True)[0],
    "of some rows": lambda m, x: x.view(B, 3, 2).gather(1, x.view(B, 3, 2).sum(2).topk(2, 1)[1].unsqueeze(-1)).flatten(1),
    "pools of one number": lambda m, x: F.max_pool2d(x.view(B, 1, 2, 3), (2, 2), stride=(1,)).flatten(1),
    "equal ones": lambda m, x: x.relu().gather(1, x.relu().topk(5, 1)[1].sort(1)[0]).sum(1, keepdim=True),
}

@pytest.mark.parametrize("name", OPS)
def test_ops(name):
    parts = {"vector": torch.tensor([1.0, 2, 3, -4, 5, 6]), "bilinear": nn.Bilinear(2, 3, 4),
             "groups": nn.GroupNorm(2, 4)}
    check(Function(OPS[name], **parts), torch.randn(B, 6))


@pytest.mark.parametrize("function, compares", [
    (lambda m, x: x.gather(1, x.topk(4, 1)[1].sort(1)[0]), False),
    (lambda m, x: x.gather(1, x.topk(4, 1)[1].topk(4, 1, largest=False)[0]), False),  # as files of ONNX sort
    (lambda m, x: x.topk(4, 1)[0], False),
    (lambda m, x: x.gather(1, x.topk(4, 1)[1]), True),
    (lambda m, x: (x * 2).gather(1, x.topk(4, 1)[1].sort(1)[0]), True)])
def test_the_largest_in_their_order_ask_for_no_places(function, compares):
    made = check(Function(function), torch.randn(B, 6))
    assert ('"function": "equal"' in made.graph.to_json()) == compares


def test_parameters_that_are_joined_with_columns():
    class Token(nn.Module):
        def __init__(self):
            super().__init__()
            self.token = nn.Parameter(torch.randn(1, 3))

        def forward(self, x):
            return torch.relu(torch.cat([self.token.expand(len(x), -1), x], 1))
    check(Token(), torch.randn(B, 2))


class Positions(nn.Module):
    """Numbers of each place beside the events, padding masked."""

    def __init__(self, joined):
        super().__init__()
        self.film = nn.Embedding(20, 4)
        self.places = nn.Parameter(torch.randn(1, 5, 2))
        self.joined = joined

    def forward(self, seen):
        joined = self.joined(self.film(seen), self.places.expand(len(seen), -1, -1))
        return (joined * (seen > 0).unsqueeze(-1)).sum(1)


@pytest.mark.parametrize("joined", [lambda x, places: torch.cat([x, places], -1),
                                    lambda x, places: torch.cat([torch.ones(B, 5, 1), x], -1)])
def test_numbers_that_are_joined_with_events(joined):
    seen = histories()
    check(Positions(joined), seen, axes={"seen": "user/seen[]"})


def histories():
    """Of five events, one, none and some."""
    seen = torch.randint(1, 20, (B, 5)) * (torch.arange(5) < torch.randint(1, 6, (B, 1)))
    seen[0], seen[1], seen[2, 1:] = torch.randint(1, 20, (5,)), 0, 0
    return seen


def test_classes_of_ids():
    check(Function(lambda m, x: m.layer(F.one_hot(x, 9).float()), layer=nn.Linear(9, 2)), ids(9))


@pytest.mark.parametrize("classes", [5, 9])  # as many as events, and more
def test_classes_of_events(classes):
    class Counts(nn.Module):
        def forward(self, seen):
            return (F.one_hot(seen, classes).float() * (seen > 0).unsqueeze(-1)).sum(1)
    check(Counts(), histories() % classes, axes={"seen": "user/seen[]"})


@pytest.mark.parametrize("options", [{}, {"padding": (1, 0)}, {"padding": "same"}, {"stride": (2, 1)},
                                     {"dilation": (2, 1)}, {"groups": 2}, {"bias": False}])
def test_convolutions_over_fields(options):
    class Fields(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(20, 3)
            self.first = nn.Conv2d(1, 2, (3, 1), padding=(1, 0))
            self.second = nn.Conv2d(2, 4, (3, 1), **options)

        def forward(self, x):
            return self.second(torch.tanh(self.first(self.table(x).unsqueeze(1)))).flatten(1)
    check(Fields(), ids(20, 6))


def test_convolutions_over_columns():
    check(Function(lambda m, x: m.wide(m.both(x.view(B, 1, 4, 3)).flatten(2)).flatten(1), both=nn.Conv2d(1, 2, 2),
                   wide=nn.Conv1d(2, 3, 2, stride=2)), torch.randn(B, 12))


@pytest.mark.parametrize("function, message", [
    (lambda m, x: x.max(1)[1].float(), "expected the numbers of max(dim), got their places"),
    (lambda m, x: x.argmax(1).float(), "aten.argmax.default: expected an op of the model language"),
    (lambda m, x: x.repeat(1, 5).topk(2)[0], "topk or sort of at most 16 columns, got 20"),
    (lambda m, x: F.avg_pool1d(x.unsqueeze(1), 3, 1, 1), "a mean without padding, ceil_mode and divisor_override"),
    (lambda m, x: F.avg_pool1d(x.unsqueeze(1), 3, ceil_mode=True).mean(2), "a mean without padding, ceil_mode and"),
    (lambda m, x: F.avg_pool2d(x.view(-1, 1, 2, 2), 2, divisor_override=1).flatten(1), "ceil_mode and divisor_override"),
    (lambda m, x: torch.ops.aten.elu(x, 2, 1, 0.5), "expected elu with an input_scale of 1, got 0.5"),
    (lambda m, x: F.max_pool1d(x.unsqueeze(1), 2, dilation=2), "a pool without dilation and ceil_mode, behind F.pad"),
    (lambda m, x: torch.masked_select(x, x > 0), "expected a mask that is the same for each row"),
    (lambda m, x: torch.round(x), "aten.round.default: expected an op of the model language, got none that does this"),
])
def test_what_is_not_made(function, message):
    with pytest.raises(wr.InvalidArgument) as raised:
        wr.torch.export(Function(function), torch.randn(B, 4))
    assert message in str(raised.value)


def test_convolutions_that_are_large_layers_are_refused():
    with pytest.raises(wr.InvalidArgument, match="a convolution that is a layer of at most 4194304 numbers, got 204624000"):
        wr.torch.export(Function(lambda m, x: m.conv(x.view(-1, 1, 100, 60)).flatten(1), conv=nn.Conv2d(1, 6, 3)),
                        torch.randn(3, 6000))


def test_convolutions_over_events_are_refused():
    module = Function(lambda m, x: m.conv(m.film(x).transpose(1, 2)).sum(2), film=nn.Embedding(20, 4),
                      conv=nn.Conv1d(4, 2, 3, padding=1))
    with pytest.raises(wr.InvalidArgument, match="expected a convolution over channels and columns, got one over ev"):
        wr.torch.export(module, histories(), {"batch_0": "user/seen[]"})


def test_of_an_infinity_nothing_is_in_the_sums_before_it():
    module, x = Function(lambda m, x: x.exp().cumsum(1)), torch.randn(B, 4)
    exported = check(module, x)
    x[1, 2] = 1000
    np.testing.assert_allclose(exported.score(x)["output"], x.exp().cumsum(1), rtol=1e-5)

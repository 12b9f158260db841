# SPDX-License-Identifier: Apache-2.0
"""What rows without events have: what PyTorch makes of their padding, or a refusal."""

import pytest
import torch
from test_events import D, L
from test_export import Function, check, ids
from test_models import padded
from torch import nn

import warprank as wr
import warprank.torch

AXES = {"film": "user", "history": "user/history[]"}
OF_ITEMS = {"film": "user/item", "history": "user/history[]"}


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(3)


class Model(Function):
    """Padding's row of the table is one like others."""

    def __init__(self, function):
        super().__init__(function, films=nn.Embedding(20, D), layer=nn.Linear(D, D), other=nn.Linear(D, D),
                         score=nn.Linear(D, 1), unit=nn.Sequential(nn.Linear(3 * D, 8), nn.Sigmoid(), nn.Linear(8, 1)),
                         places=nn.Parameter(torch.randn(L, D)), norm=nn.LayerNorm(D))

    def forward(self, film, history):
        return self.function(self, self.films(film), self.films(history), history != 0)


def batch_of():
    """The first history has no event; of some the padding is ahead."""
    history = padded(20, L)
    history[4:] = history[4:].flip(1)
    return {"film": ids(20), "history": history}


def exact(function, axes=AXES):
    exported, batch = check(Model(function), batch_of(), axes=axes), batch_of()
    assert not (batch["history"][0] != 0).any()
    for rows in (slice(0, 1), slice(1, 6)):
        assert exported.check({name: x[rows] for name, x in batch.items()})["output"].largest <= 1e-5
    return exported


def refused(function, *messages, axes=AXES):
    with pytest.raises(wr.InvalidArgument) as raised:
        wr.torch.export(Model(function), batch_of(), axes)
    assert all(message in str(raised.value) for message in messages), raised.value


MASKS = {"added": lambda x, kept: x + (1 - kept.float()) * -1e9,
         "added, -1e4": lambda x, kept: x + (1 - kept.float()) * -1e4,
         "subtracted": lambda x, kept: x - (~kept).float() * 1e9, "filled": lambda x, kept: x.masked_fill(~kept, -1e9),
         "selected": lambda x, kept: torch.where(kept, x, -1e4)}
VALUES = {"a table": lambda m, k: k, "a layer": lambda m, k: m.layer(k), "relu": lambda m, k: torch.relu(m.layer(k)),
          "two layers": lambda m, k: m.other(torch.tanh(m.layer(k)) * 2)}


@pytest.mark.parametrize("mask, value", [(mask, "two layers") for mask in MASKS] + [("added", value) for value in VALUES])
def test_maxima(mask, value):
    exact(lambda m, q, k, kept: q + 1e-4 * MASKS[mask](VALUES[value](m, k), kept.unsqueeze(-1)).amax(1))


@pytest.mark.parametrize("function", [
    lambda m, film, x, mask: ((x * film[:, None]).sum(-1) + mask.float().log()).softmax(1).nan_to_num(0)[..., None] * x,
    lambda m, film, x, mask: nn.functional.gelu(mask.float(), approximate="tanh")[..., None] * x,
    lambda m, film, x, mask: nn.functional.gelu(mask.float())[..., None] * x])
def test_functions_of_masks(function):
    check(Model(lambda m, film, x, mask: function(m, film, x, mask).sum(1).sum(-1)), batch_of(), axes=AXES)


def test_maxima_behind_a_mask_of_all():
    exact(lambda m, q, k, kept: q + m.norm(k).masked_fill(~kept.unsqueeze(-1), -1e9).amax(1) * 1e-9)


SCORES = {"an mlp": lambda m, q, k: m.unit(torch.cat([q[:, None].expand_as(k), k, q[:, None] * k], -1)).squeeze(-1),
          "a product": lambda m, q, k: (k @ q.unsqueeze(-1)).squeeze(-1),
          "of events alone": lambda m, q, k: m.score(k).squeeze(-1)}


@pytest.mark.parametrize("mask, score, value", [(mask, "a product", "two layers") for mask in MASKS] + [
    ("added", score, value) for score in ("an mlp", "of events alone") for value in ("a table", "relu")])
def test_sums_behind_a_softmax(mask, score, value):
    def function(m, q, k, kept):
        weights = torch.softmax(MASKS[mask](SCORES[score](m, q, k), kept), 1)
        return q + (weights.unsqueeze(-1) * VALUES[value](m, k)).sum(1)
    exact(function)


@pytest.mark.parametrize("axes", [AXES, OF_ITEMS], ids=["a row", "items"])
def test_heads_with_a_layer_behind_them(axes):
    def function(m, q, k, kept):
        queries, keys = (x.unflatten(-1, (2, D // 2)).transpose(1, 2) for x in (m.other(q)[:, None], m.layer(k)))
        scores = (queries @ keys.mT).masked_fill(~kept[:, None, None], -1e9)
        return q + m.layer((torch.softmax(scores, -1) @ keys).transpose(1, 2).flatten(2)).squeeze(1)
    exact(function, axes)


def test_weights_behind_the_mask():
    def function(m, q, k, kept):
        weights = torch.softmax(MASKS["filled"](SCORES["a product"](m, q, k), kept), 1) * kept
        return q + (weights.unsqueeze(-1) * (k + m.places)).sum(1)
    exact(function)


@pytest.mark.parametrize("function", [
    lambda m, q, k, kept: q + (k * kept.unsqueeze(-1)).sum(1) / kept.sum(1, keepdim=True).clamp(min=1),
    lambda m, q, k, kept: q + (k * kept.unsqueeze(-1)).sum(1) / (kept.sum(1, keepdim=True) + 1e-8),
    lambda m, q, k, kept: q + torch.relu(m.layer((k * kept.unsqueeze(-1)).mean(1))),
    lambda m, q, k, kept: q + (m.layer(k) * kept.unsqueeze(-1)).sum(1),
])
def test_sums_and_means(function):
    exact(function)


def test_maxima_of_which_padding_is_not_known():
    def of_places(mask):
        return lambda m, q, k, kept: q + 1e-9 * MASKS[mask](k + m.places, kept.unsqueeze(-1)).amax(1)
    refused(of_places("added"), "aten.amax.default: expected a maximum of which is known what it is in rows without events",
            "x.masked_fill(is_padding, -1e9)")
    exact(of_places("filled"))


def test_sums_of_which_padding_is_not_known():
    def of_places(behind):
        def function(m, q, k, kept):
            weights = torch.softmax(MASKS["filled"](SCORES["a product"](m, q, k), kept), 1)
            return q + ((weights * kept if behind else weights).unsqueeze(-1) * (k + m.places)).sum(1)
        return function
    refused(of_places(False), "expected a sum in which rows without events have 0", "softmax(..) * is_event")
    exact(of_places(True))


def test_what_is_made_of_a_weight_is_no_sum_of_padding():
    refused(lambda m, q, k, kept: q + torch.relu(torch.softmax(MASKS["filled"](m.score(k).squeeze(-1), kept), 1).unsqueeze(
        -1) * k).sum(1), "expected a sum in which rows without events have 0")


def bare_mean(x, mask):
    return (x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)


def where_other(x):
    return torch.where(x != x, 0.5, x)


def maximum(x, mask):
    return x.masked_fill(~mask[..., None], -torch.inf).amax(1)


@pytest.mark.parametrize("function", [
    lambda x, mask: bare_mean(x, mask).masked_fill(bare_mean(x, mask).isnan(), 0.5),
    lambda x, mask: bare_mean(x, mask).nan_to_num(3.0),
    lambda x, mask: where_other(bare_mean(x, mask)),
    lambda x, mask: maximum(x, mask).nan_to_num(neginf=0.25),
    lambda x, mask: torch.where(maximum(x, mask) == -torch.inf, 0.25, maximum(x, mask)),
    lambda x, mask: x.masked_fill(~mask[..., None], torch.inf).amin(1).nan_to_num(posinf=0.25)])
def test_what_is_not_finite_is_found(function):
    exact(lambda m, film, x, mask: m.score(function(x, mask) * film))


def test_what_is_made_of_something_not_finite():
    refused(lambda m, film, x, mask: m.layer(bare_mean(x, mask)).nan_to_num(3.0),
            "a test for NaN or infinity of a mean or a maximum over events itself")
    refused(lambda m, film, x, mask: (m.score(x)[..., 0].masked_fill(~mask, -torch.inf).softmax(1).nan_to_num(0.25)
                                      [..., None] * x).sum(1), "a sum in which rows without events have 0")

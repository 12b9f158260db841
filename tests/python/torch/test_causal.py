# SPDX-License-Identifier: Apache-2.0
"""Attention of events to what came before them, in the ways in which it is masked."""

import math

import pytest
import torch
from test_events import AXES, D, L, attended, table
from test_export import Function, check, ids
from test_models import kinds, padded
from torch import nn
from torch.nn import functional as F

import warprank as wr
import warprank.torch

LATER = torch.ones(L, L, dtype=torch.bool).triu(1)
OTHERS = torch.arange(L * L).reshape(L, L) * 0.1
NEXT = torch.where(LATER & torch.ones(L, L, dtype=torch.bool).tril(1), float("-inf"), 0.0)
MINUS = nn.Transformer.generate_square_subsequent_mask(L)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(6)


def histories():
    """Whose first event is none of padding, for which PyTorch has NaN."""
    history = padded(20, L)
    history[:, 0] = 1
    return history


def last_of(m, film, history, y):
    return (y * (history != 0).unsqueeze(-1)).sum(1) + m.films(film)


def scored(scores):
    """Attention that is written out, its scores masked by a function."""
    def forward(m, film, history):
        k = m.films(history)
        weights = torch.softmax(scores(k @ k.transpose(1, 2) / math.sqrt(D), history != 0), -1)
        return last_of(m, film, history, weights @ k)
    return forward


def dot(**options):
    def forward(m, film, history):
        k = m.films(history)[:, None]
        masks = {name: x(history != 0) if callable(x) else x for name, x in options.items()}
        return last_of(m, film, history, F.scaled_dot_product_attention(k, k, k, **masks)[:, 0])
    return forward


def both(kept):
    return ~LATER & kept[:, None, None, :]


MASKED = {
    "a triangle": scored(lambda s, kept: (s + MINUS).masked_fill(~kept[:, None], -1e9)),
    "a triangle, then padding": scored(lambda s, kept: s.masked_fill(LATER, -1e9).masked_fill(~kept[:, None], -1e9)),
    "a triangle of zeros": scored(lambda s, kept: s.masked_fill(torch.tril(torch.ones(L, L)) == 0, float("-inf"))
                                  .masked_fill(~kept[:, None], float("-inf"))),
    "where": scored(lambda s, kept: torch.where(~LATER & kept[:, None], s, -1e9)),
    "either": scored(lambda s, kept: s.masked_fill(LATER | ~kept[:, None], -1e9)),
    "numbers": scored(lambda s, kept: s + (1 - (~LATER).float() * kept[:, None].float()) * -1e9),
    "truth": dot(attn_mask=both),
    "numbers of both": dot(attn_mask=lambda kept: torch.where(both(kept), 0.0, float("-inf"))),
}


def exported(forward, history=None):
    made = check(Function(forward, films=table()), (ids(20), histories() if history is None else history), axes=AXES)
    assert kinds(made).count('"op": "attention"') == 1
    return made


@pytest.mark.parametrize("mask", MASKED)
def test_masks(mask):
    assert '"causal": true' in kinds(exported(MASKED[mask]))


@pytest.mark.parametrize("product", [lambda q, k: (k @ q.mT).mT, lambda q, k: torch.einsum("bkd,bqd->bqk", k, q)])
@pytest.mark.parametrize("mask", [None, MINUS])
@pytest.mark.parametrize("is_padded", [False, True])
def test_products_of_keys_with_queries(product, mask, is_padded):
    def forward(m, film, history):
        k = m.films(history)
        scores = product(m.query(k), k)
        scores = scores if mask is None else scores + mask
        scores = scores.masked_fill((history == 0)[:, None], -1e9) if is_padded else scores
        y = torch.softmax(scores, -1) @ k
        return last_of(m, film, history, y) if is_padded else y.mean(1) + m.films(film)
    history = histories() if is_padded else torch.randint(1, 20, (6, L))
    made = check(Function(forward, films=table(), query=nn.Linear(D, D)), (ids(20), history), axes=AXES)
    assert ('"causal": true' in kinds(made)) == (mask is MINUS)


def whole(**options):
    """Of histories without padding."""
    def forward(m, film, history):
        k = m.films(history)[:, None]
        return F.scaled_dot_product_attention(k, k, k, **options)[:, 0].mean(1) + m.films(film)
    return forward


@pytest.mark.parametrize("forward, causal", [
    (whole(is_causal=True), True), (whole(attn_mask=MINUS), True), (whole(attn_mask=~LATER), True), (whole(), False),
    (whole(is_causal=True, scale=0.3), True)])
def test_without_padding(forward, causal):
    made = exported(forward, torch.randint(1, 20, (6, L)))
    assert ('"causal": true' in kinds(made)) == causal


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("mask", [MINUS, LATER])
def test_multihead_attention(need_weights, mask):
    def forward(m, film, history):
        k = m.films(history)
        padding = history == 0 if mask.dtype == torch.bool else torch.where(history == 0, float("-inf"), 0.0)
        y, _ = m.attention(k, k, k, attn_mask=mask, key_padding_mask=padding, need_weights=need_weights)
        return last_of(m, film, history, y)
    assert '"causal": true' in kinds(attended(forward))


def test_heads_that_are_masked_in_different_ways():
    def forward(m, film, history):
        k = m.films(history)
        scores = (k @ k.mT).masked_fill((history == 0)[:, None], -1e9)
        y = m.out(torch.cat([torch.softmax(scores + MINUS, -1) @ k, torch.softmax(scores, -1) @ k], -1))
        return last_of(m, film, history, y)
    module = Function(forward, films=table(), out=nn.Linear(2 * D, D))
    text = kinds(check(module, (ids(20), histories()), axes=AXES))
    assert text.count('"op": "attention"') == 2 and text.count('"causal": true') == 1


def test_minus_infinity_is_no_weight():
    module = Function(lambda m, f, h: last_of(m, f, h, m.films(h) + m.shift), films=table(), shift=nn.Linear(1, 1))
    module.shift = nn.Parameter(torch.tensor([0.0, 1, -math.inf, 0]))
    with pytest.raises(wr.InvalidArgument, match="weight 'shift', element .2.: expected a finite number, got -inf"):
        wr.torch.export(module, (ids(20), histories()), axes=AXES)


class Blocks(nn.Module):
    """SASRec: Kang and McAuley 2018."""

    def __init__(self):
        super().__init__()
        self.films, self.position = nn.Embedding(20, 8, padding_idx=0), nn.Embedding(L, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, film, history):
        x = self.films(history) + self.position(torch.arange(L))
        mask = nn.Transformer.generate_square_subsequent_mask(L)
        padding = torch.where(history == 0, float("-inf"), 0.0)
        y = self.encoder(x, mask=mask, src_key_padding_mask=padding, is_causal=True)
        kept = (history != 0).unsqueeze(-1).float()
        return ((y * kept).sum(1) / kept.sum(1) * self.films(film)).sum(-1)


def test_transformers():
    text = kinds(check(Blocks(), (ids(20), histories()), axes={"film": "user/item", "history": "user/history[]"}))
    assert text.count('"op": "attention"') == 2 and text.count('"causal": true') == 2


def test_as_many_columns_as_events():
    shift = torch.randn(D, D)

    def forward(m, film, history):
        return torch.relu(m.films(history).mT + shift).sum(-1) + m.films(film)
    check(Function(forward, films=table()), (ids(20), torch.randint(1, 20, (6, D))), axes=AXES)


# --- what is wrong


def weighed(mask, weights):
    """Attention whose weights are a function of the softmax."""
    def forward(m, film, history):
        k = m.films(history)
        scores = (k @ k.mT + mask).masked_fill((history == 0)[:, None], -1e9)
        return last_of(m, film, history, weights(torch.softmax(scores, -1)) @ k)
    return forward


@pytest.mark.parametrize("forward, message", [
    (scored(lambda s, kept: (s + MINUS.t()).masked_fill(~kept[:, None], -1e9)),
     "attention in which each event sees itself, too, got one without the diagonal"),
    (scored(lambda s, kept: (s + OTHERS).masked_fill(~kept[:, None], -1e9)), "a triangle, got another"),
    (scored(lambda s, kept: (s + NEXT).masked_fill(~kept[:, None], -1e9)), "a triangle, got another"),
    (scored(lambda s, kept: (s + LATER.float()).masked_fill(~kept[:, None], -1e9)),
     "expected a softmax in which what comes later is masked, got one of that, too"),
    (weighed(0, lambda w: w * ~LATER), "expected what comes later masked before the softmax, got behind it"),
    (weighed(MINUS, lambda w: torch.where(LATER, 0.5, w)), "expected a sum in which what comes later counts nothing"),
    (weighed(MINUS, lambda w: w + LATER * 0.5), "expected a sum in which what comes later counts nothing"),
    (lambda m, f, h: (torch.softmax(m.films(f)[:, None] @ m.films(h).mT + MINUS, -1) @ m.films(h)).sum(1),
     "a triangle, got another"),
])
def test_other_masks(forward, message):
    module = Function(forward, films=table(), block=nn.Identity())
    with pytest.raises(wr.InvalidArgument, match=message):
        wr.torch.export(module, (ids(20), histories()), axes=AXES)


def test_the_modules_path_is_told():
    class Attention(nn.Module):
        def forward(self, k):
            return torch.softmax(k @ k.mT + OTHERS, -1) @ k
    module = Function(lambda m, f, h: m.block(m.films(h)).sum(1), films=table(), block=Attention())
    with pytest.raises(wr.InvalidArgument, match=r"module 'block' \(Attention\): aten.add.Tensor: expected a mask of"):
        wr.torch.export(module, (ids(20), histories()), axes=AXES)

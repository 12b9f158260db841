# SPDX-License-Identifier: Apache-2.0
"""Attention among the events of a history and the candidate behind them, as in the Behavior Sequence Transformer."""

import pytest
import torch
from test_export import B, Function, check, ids
from test_models import kinds, padded
from torch import nn

import warprank as wr
import warprank.torch

FILMS, D, L = 20, 4, 5
AXES = {"film": "row", "history": "row/history[]"}


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(12)


class Block(nn.Module):
    def __init__(self, dim, norm_first):
        super().__init__()
        self.attention = nn.MultiheadAttention(dim, 2, batch_first=True)
        self.ffn = nn.Sequential(nn.Linear(dim, 8), nn.LeakyReLU(), nn.Linear(8, dim))
        self.norms = nn.ModuleList([nn.LayerNorm(dim), nn.LayerNorm(dim)])
        self.norm_first = norm_first

    def forward(self, x, mask):
        if self.norm_first:
            given = self.norms[0](x)
            x = x + self.attention(given, given, given, attn_mask=mask)[0]
            return x + self.ffn(self.norms[1](x))
        x = self.norms[0](x + self.attention(x, x, x, attn_mask=mask)[0])
        return self.norms[1](x + self.ffn(x))


POOLS = {"mean": lambda x, kept: (x * kept).sum(1) / (kept.sum(1) + 1e-12),
         "sum": lambda x, kept: (x * kept).sum(1),
         "max": lambda x, kept: x.masked_fill(kept == 0, -1e9).max(1).values,
         "the candidate": lambda x, kept: x[:, -1]}


class Within(nn.Module):
    """Its mask leaves padding out, but for padding itself, whose rows would have nothing to see."""

    def __init__(self, pool="mean", places=True, causal=False, blocks=1, norm_first=False, one_table=True):
        super().__init__()
        self.pool, self.causal = POOLS[pool], causal
        self.films = nn.Embedding(FILMS, D, padding_idx=0)
        self.candidates = None if one_table else nn.Embedding(FILMS, D)
        dim = 2 * D if places else D
        self.blocks = nn.ModuleList(Block(dim, norm_first) for _ in range(blocks))
        self.places = nn.Parameter(torch.randn(L + 1, D)) if places else None
        self.head = nn.Linear(dim + D, 1)

    def mask(self, is_padding):
        length = is_padding.size(1)
        mask = is_padding.unsqueeze(1).repeat(1, length, 1)
        mask = mask & ~torch.eye(length).bool().unsqueeze(0).expand_as(mask)
        if self.causal:
            mask = mask | torch.triu(torch.ones(length, length), 1).bool().unsqueeze(0).expand_as(mask)
        return mask.unsqueeze(1).repeat(1, 2, 1, 1).flatten(end_dim=1)

    def forward(self, film, history):
        candidate = (self.films if self.candidates is None else self.candidates)(film)
        x = torch.cat([self.films(history), candidate.unsqueeze(1)], 1)
        is_padding = torch.cat([history == 0, torch.zeros(len(film), 1).bool()], -1)
        if self.places is not None:
            x = torch.cat([x, self.places.unsqueeze(0).repeat(len(x), 1, 1)], -1)
        for block in self.blocks:
            x = block(x, self.mask(is_padding))
        pooled = self.pool(x, (1 - is_padding.float()).unsqueeze(-1))
        return self.head(torch.cat([pooled, candidate], -1)).squeeze(-1)


def batch_of():
    """Histories of no events, of one, of all, and with padding before and between them."""
    history = padded(FILMS, L)
    history[3:6] = history[3:6].flip(1)
    return {"film": torch.randint(1, FILMS, (B,)), "history": history}


@pytest.mark.parametrize("options", [
    {}, {"pool": "sum"}, {"pool": "max"}, {"pool": "the candidate"}, {"places": False}, {"causal": True},
    {"causal": True, "pool": "the candidate"}, {"blocks": 2}, {"norm_first": True}, {"one_table": False},
    {"norm_first": True, "places": False, "blocks": 2, "one_table": False, "pool": "the candidate"},
], ids=str)
def test_a_candidate_among_its_history(options):
    batch = batch_of()
    exported = check(Within(**options), batch, axes=AXES)
    plan = wr.compile(exported.graph)
    assert {"history.with_candidate"} <= {i.name for i in plan.ids} <= {
        "film", "history.with_candidate", "history.with_candidate.position"}
    assert ('"causal": true' in kinds(exported)) == options.get("causal", False)
    for rows in (slice(0, 1), slice(1, 2), slice(0, 2), slice(3, 6)):
        assert exported.check({name: x[rows] for name, x in batch.items()})["output"].largest <= 1e-5
    if options.get("places", True):
        longer = {"film": batch["film"], "history": padded(FILMS, L + 1)}
        with pytest.raises(wr.InvalidArgument, match=f"batch: input 'history': expected {L} events at most"):
            exported.columns(longer)


def test_its_requests():
    exported = check(Within(), {"film": ids(FILMS), "history": padded(FILMS, L)}, axes=AXES)
    data, _ = exported.columns({"film": torch.tensor([3, 4]), "history": torch.tensor([[0, 7, 0, 8, 0], [0] * 5])})
    assert data.keys() == {"film", "history.with_candidate", "history.with_candidate.position",
                           "history.with_candidate.is_last"}
    values = {name: column.values.tolist() for name, column in data.items() if name != "film"}
    assert values == {"history.with_candidate": [7, 8, -1, -1], "history.with_candidate.position": [1, 3, 5, 5],
                      "history.with_candidate.is_last": [[0.0], [0.0], [1.0], [1.0]]}
    assert data["history.with_candidate"].offsets.tolist() == [0, 3, 4]
    with pytest.raises(wr.InvalidArgument, match="input 'history': expected ids of 0 to 19, the rows of table 'films'"):
        exported.columns({"film": torch.tensor([3]), "history": torch.tensor([[20, 0, 0, 0, 0]])})


def test_a_hashed_table():
    module, batch = Within().eval(), batch_of()
    exported = wr.torch.export(module, batch, AXES, hashed={"films": torch.randperm(10 * FILMS)[:FILMS].numpy()})
    assert exported.check()["output"].largest <= 1e-5


def test_a_history_that_is_also_pooled_alone():
    class Both(Within):
        def forward(self, film, history):
            alone = (self.films(history) * (history != 0).unsqueeze(-1)).sum(1)
            return super().forward(film, history) + alone.sum(-1)
    exported = check(Both(), batch_of(), axes=AXES)
    assert {i.name for i in wr.compile(exported.graph).ids} >= {"history", "history.with_candidate"}


def test_numbers_and_layers_of_events():
    class Scored(Within):
        def __init__(self):
            super().__init__(places=False)
            self.layer, self.other = nn.Linear(D + 1, D), nn.Linear(D, D)

        def forward(self, film, history, score):
            events = torch.tanh(self.layer(torch.cat([self.films(history), score.unsqueeze(-1)], -1)))
            x = torch.cat([events, self.other(self.films(film)).unsqueeze(1)], 1)
            is_padding = torch.cat([history == 0, torch.zeros(len(film), 1).bool()], -1)
            x = self.blocks[0](x, self.mask(is_padding))
            return self.pool(x, (1 - is_padding.float()).unsqueeze(-1)).sum(-1)
    check(Scored(), batch_of() | {"score": torch.randn(B, L)}, axes=AXES | {"score": "row/history[]"})


class Transformer(nn.Module):
    """As torch-rechub's BST: the mask is one of keys, and numbers are added by the place."""

    def __init__(self):
        super().__init__()
        self.films, self.places = nn.Embedding(FILMS, D, padding_idx=0), nn.Embedding(L + 3, D)
        layer = nn.TransformerEncoderLayer(D, 2, 8, activation=nn.LeakyReLU(), batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

    def forward(self, film, history):
        x = torch.cat([self.films(history), self.films(film).unsqueeze(1)], 1) + self.places(
            torch.arange(L + 1).unsqueeze(0))
        is_padding = torch.cat([history == 0, torch.zeros_like(film, dtype=torch.bool).unsqueeze(1)], 1)
        return self.encoder(x, src_key_padding_mask=is_padding)[:, -1, :].sum(-1)


def test_layers_of_transformers_with_embedded_places():
    batch = {"film": torch.randint(1, FILMS, (B,)), "history": padded(FILMS, L)}
    exported = check(Transformer(), batch, axes=AXES)
    assert exported.check({name: x[:1] for name, x in batch.items()})["output"].largest <= 1e-5


class Among(Function):
    def __init__(self, mask):
        super().__init__(mask, films=nn.Embedding(FILMS, D, padding_idx=0), attention=nn.MultiheadAttention(
            D, 1, batch_first=True))

    def forward(self, film, history):
        x = torch.cat([self.films(history), self.films(film).unsqueeze(1)], 1)
        kept = torch.cat([history != 0, torch.ones(len(film), 1).bool()], -1)
        return (self.attention(x, x, x, attn_mask=self.function(kept))[0] * kept.unsqueeze(-1)).sum((1, 2))


@pytest.mark.parametrize("mask, message", [
    (lambda kept: ~kept.unsqueeze(1).repeat(1, L + 1, 1) | torch.eye(L + 1).bool(),
     "attention in which each event sees itself, too, got one without the diagonal"),
    (lambda kept: (torch.arange(L + 1)[:, None] - torch.arange(L + 1) > 1).expand(len(kept), -1, -1),
     "a mask of padding, of each event by itself, or of what comes after it: a triangle, got another"),
    (lambda kept: torch.zeros(len(kept), L + 1, L + 1).bool(), "a sum in which padding counts nothing|is masked"),
])
def test_masks_that_are_refused(mask, message):
    with pytest.raises(wr.InvalidArgument, match=message):
        wr.torch.export(Among(mask), batch_of(), AXES)


def test_a_candidate_below_the_users_axis():
    with pytest.raises(wr.InvalidArgument, match="expected a candidate with its history, behind it, on the axis of the "
                       "history's rows, 'user', got one on 'user/item'"):
        wr.torch.export(Within(), batch_of(), {"film": "user/item", "history": "user/history[]"})


@pytest.mark.parametrize("function, message", [
    (lambda m, x: x, "expected all events of a sequence, got some of them"),
    (lambda m, x: torch.cat([x[..., 1:], m.places.expand(len(x), -1, -1)], -1),
     "expected a GRU over events by themselves, got one of a candidate behind them, and behind padding"),
])
def test_recurrent_layers(function, message):
    module = Function(lambda m, film, history: m.gru(function(m, torch.cat([
        m.films(history), m.films(film).unsqueeze(1)], 1)))[0][:, -1].sum(-1), films=nn.Embedding(FILMS, D),
        gru=nn.GRU(D, D, batch_first=True), places=nn.Parameter(torch.randn(L + 1, 1)))
    with pytest.raises(wr.InvalidArgument, match=message):
        wr.torch.export(module, (ids(FILMS), padded(FILMS, L)), {"batch_0": "row", "batch_1": "row/history[]"})

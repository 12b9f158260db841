# SPDX-License-Identifier: Apache-2.0
"""A candidate behind its history in one tensor, and features of films that a module knows by their ids."""

import pytest
import torch
from test_export import B, Function, check, ids
from test_models import kinds, padded
from torch import nn

import warprank as wr
import warprank.torch

FILMS, GENRES, D, L = 20, 6, 4, 5
AXES = {"film": "user/item", "history": "user/history[]", "length": "user/history[]"}


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(7)


class Behind(nn.Module):
    """DIN whose films, seen ones and the candidate, are looked up together, with the genre of each."""

    def __init__(self, films=FILMS, genres=GENRES):
        super().__init__()
        self.register_buffer("number", torch.arange(films))
        self.register_buffer("genre", torch.randint(0, genres, (films,)))
        self.table = nn.Embedding(films + genres, D)
        self.unit = nn.Sequential(nn.Linear(8 * D, 8), nn.Sigmoid(), nn.Linear(8, 1))
        self.head = nn.Linear(4 * D, 1)
        self.offsets = torch.tensor([[0, films]])

    def embedded(self, films):
        features = torch.cat([self.number[films].unsqueeze(-1), self.genre[films].unsqueeze(-1)], -1)
        fields = self.table(features.reshape(-1, 2) + self.offsets)
        return fields.view(len(films), -1, 2 * D)

    def forward(self, film, history, length):
        events, candidate = self.embedded(torch.cat([history, film[:, None]], 1)).split([history.shape[1], 1], 1)
        q = candidate.expand(-1, history.shape[1], -1)
        scores = self.unit(torch.cat([q, events, q - events, q * events], -1)).squeeze(-1)
        is_padding = torch.arange(history.shape[1]).repeat(len(film), 1) >= length[:, None]
        scores = scores.masked_fill(is_padding, 0.0)
        interest = torch.bmm(scores[:, None], events).squeeze(1)
        return self.head(torch.cat([interest, candidate.squeeze(1)], -1)).squeeze(-1)


def batch_of(films=FILMS):
    history = padded(films, L)
    return {"film": ids(films), "history": history, "length": (history > 0).sum(1)}


@pytest.mark.parametrize("films", [FILMS, L + 1])  # as many as events with the candidate are other sizes, too
def test_a_candidate_behind_its_history(films):
    exported = check(Behind(films), batch_of(films), axes=AXES)
    assert '"op": "din_attention"' in kinds(exported)
    assert {name: array.shape for name, array in exported.tables.items()} == {
        "table.rows_0": (films, D), f"table.rows_{films}": (films, D)}
    batch = batch_of(films)
    for rows in (slice(0, 1), slice(1, 2), slice(1, 6)):  # the first history is empty
        assert exported.check({name: x[rows] for name, x in batch.items()})["output"].largest <= 1e-6
    with pytest.raises(wr.InvalidArgument, match=f"batch: input 'film': expected ids of 0 to {films - 1}, the rows"):
        exported.columns(batch | {"film": batch["film"] + films})


def test_features_that_are_numbers():
    module = Function(lambda m, film: m.prices[film].sum(1) + m.table(m.genre[film] * 2 + 1).sum(1),
                      prices=torch.randn(FILMS, 3), genre=torch.randint(0, 4, (FILMS,)), table=nn.Embedding(8, D))
    exported = check(module, ids(FILMS))
    assert sorted(array.shape for array in exported.tables.values()) == [(FILMS, 3), (FILMS, D)]


def test_padding_of_mapped_ids():
    table = nn.Embedding(FILMS, D)
    module = Function(lambda m, film, history: (m.table(m.turned[history]) * (history != 0).unsqueeze(-1)).sum(1) +
                      m.table(film), table=table, turned=torch.arange(FILMS).flip(0))
    check(module, (ids(FILMS), padded(FILMS, L)), axes={"batch_0": "user/item", "batch_1": "user/history[]"})


def together(m, film, history):
    return m.table(torch.cat([history, film[:, None]], 1))


@pytest.mark.parametrize("function, message", [
    (lambda m, film, history: together(m, film, history).sum(1),
     "expected a candidate with its history, behind it, on the axis of the history's rows, 'user', got one on 'user/i"),
    (lambda m, film, history: nn.functional.layer_norm(together(m, film, history)[..., 0], (L + 1,)),
     "expected a norm of each event, got one over events"),
    (lambda m, film, history: m.wide(together(m, film, history)[..., 0]), "got a layer over events"),
    (lambda m, film, history: m.table(torch.cat([history[:, :2], film[:, None]], 1)).flatten(1),
     "expected all events of a sequence, got some of them"),
    (lambda m, film, history: m.table(m.beyond[film]), f"numbers of 0 to {FILMS - 1}, the rows of the table, got 1 to"),
    (lambda m, film, history: m.table(m.pairs[film]).sum(1), "a constant with a whole number for each id, got int64"),
    (lambda m, film, history: m.table(m.beyond[m.beyond[film]]), "expected ids that are an input, got some that are"),
])
def test_what_is_refused(function, message):
    module = Function(function, table=nn.Embedding(FILMS, D), wide=nn.Linear(L + 1, 1),
                      beyond=torch.arange(FILMS) + 1, pairs=torch.zeros(FILMS, 2, dtype=torch.int64))
    with pytest.raises(wr.InvalidArgument, match=message):
        wr.torch.export(module, (ids(FILMS), torch.randint(0, FILMS, (B, L))), axes={
            "batch_0": "user/item", "batch_1": "user/history[]"})
